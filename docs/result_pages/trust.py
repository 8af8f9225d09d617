"""Pages about exactness and reliability."""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from result_pages.tables import Column, Page, Row, Table, count, digits, having, small, where, yes


def trials_of(section: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that gives the rows of a section and one with their sums."""

    def turn(rows: list[Row]) -> list[Row]:
        found = [row | {"failed": len(row["failures"])} for row in where(section=section)(rows)]
        if not found:
            return []
        total: Row = {"what": "all"}
        for name in dict.fromkeys(name for row in found for name in row):
            values = [row[name] for row in found if isinstance(row.get(name), int | float)]
            if values:
                total[name] = max(values) if name.startswith("largest_") else sum(values)
        return [*found, total]

    return turn


def soaked(section: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that gives the rows of a section with the growth of their memory since the
    first one after all programs were compiled.
    """

    def turn(rows: list[Row]) -> list[Row]:
        found = where(section=section)(rows)
        compiled = [place for place, row in enumerate(found) if row["compiled"]]
        settled = min(compiled[-1] + 1 if compiled else 0, len(found) - 1)
        first = found[settled]["resident_mib"] if found else 0
        growth = [{"growth": 100 * (row["resident_mib"] / first - 1)} for row in found[settled:]]
        return [*found[:settled], *map(operator.or_, found[settled:], growth)]

    return turn


# What others promise or report, as far as we know; section and text of what was counted here.
_ELSEWHERE = (
    (
        "Composer: a stopped run resumes exactly; its tests stop it in its process",
        "kill",
        "{kills} kills; {equal} of {trials} runs equal, bit for bit",
    ),
    (
        "Orbax: checkpoints are whole or not there; its tests raise errors in its process",
        "kill",
        "{in_saves} of the kills inside a save",
    ),
    (
        "MaxText: losses after a resume within 10 %",
        "elastic",
        "parameters on other devices within {largest_difference}",
    ),
    (
        "Grain: data continue at every step",
        "elastic",
        "{changes} changes of hosts, devices and processes; {exact} of {trials} runs exact",
    ),
    (
        "torchft: a run with 1,200 injected failures",
        "all",
        "{kills} kills, {signals} signals, {changes} changes, {flips} flipped bits, {cuts} cuts",
    ),
    (
        "safetensors: audited and fuzzed",
        "damage",
        "{flips} flipped bits and {cuts} cuts, {wrong} of them wrong when read",
    ),
)


def beside_others(rows: list[Row]) -> list[Row]:
    """Returns what other libraries promise or report, each beside the counts of this one."""
    totals: dict[str, Row] = {"all": defaultdict(int)}
    for section in ("kill", "signal", "elastic", "damage"):
        *_, total = trials_of(section)(rows) or [{}]
        totals[section] = defaultdict(int, {key: _shown(value) for key, value in total.items()})
        totals["all"] |= totals[section]
    return [
        {"elsewhere": elsewhere, "here": text.format_map(totals[section])}
        for elsewhere, section, text in _ELSEWHERE
        if totals[section]
    ]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return small(value)
    return count(value) if isinstance(value, int) else value


FAILED = Column("failed", "failed", count)
RUN = Column("run", "what")

PAGES: Mapping[str, Page] = {
    "parity": Page(
        "Parity with transformers",
        "Small random models of every family against the PyTorch class, float32, rows of unequal"
        " length. Errors are relative to the largest value. The same is tested in "
        "`tests/parity`.",
        [
            Table(
                "",
                [
                    Column("family", "family"),
                    Column("states", "states_error", small),
                    Column("logits", "logits_error", small),
                    Column("greedy ids equal", "greedy", yes),
                    Column("beam ids equal", "beam", yes),
                    Column("round trip equal", "round_trip", yes),
                ],
            )
        ],
    ),
    "reliability": Page(
        "Reliability",
        "Runs of `longsum train` that are killed, stopped by signals and moved to other devices at "
        "random moments, files that are damaged, and disks that fail; each trial is compared with "
        "one that nothing happened to. The runs are tiny, with dropout, prefetched batches, "
        "evaluations and a checkpoint after every step. *Failed* counts what must not happen; "
        "every failure is in the file by the number of its trial, which repeats it.\n\n"
        "Earlier attacks found, and tests now hold: flipped bits in arrays loaded in silence "
        "(files have SHA-256 sums); an update that overflowed was saved over good checkpoints "
        "(updates are checked before a save); a kill while an old checkpoint was deleted "
        "broke loading (steps are renamed first); two runs in one directory deleted each "
        "other's checkpoints (directories are locked); a failed last save kept the process "
        "alive for minutes (it ends at once); dropout depended on the number of devices (its "
        "keys go by position). This script and its making found: damaged predictions were "
        "scored (`longsum score` compares their sums); rows of a batch stood in another order "
        "with several hosts, so dropout fell on other documents (each host has neighbouring "
        "rows). Runs on the oldest versions that were allowed found bounds of jax, flax, nltk, "
        "protobuf, TensorFlow, array_record and tensorboardX that did not work together (they are "
        "higher); the trial of several processes found that the others blamed the disk for the end "
        "of one (they name both).\n\n"
        "What commands and functions do with bad input is no table here: the tests give them more "
        "than 300 flags, values of configs and arguments (`tests/commands/test_bad_input.py`), "
        "more than 100 documents (`tests/readers/test_bad_input.py`) and more than 200 hostile "
        "files (`tests/test_hostile_files.py`), each with one sentence as its answer.",
        [
            Table(
                "Beside what others promise or report, as far as we know",
                [Column("elsewhere", "elsewhere"), Column("here", "here")],
                beside_others,
            ),
            Table(
                "SIGKILL",
                [
                    RUN,
                    Column("runs", "trials", count),
                    Column("kills", "kills", count),
                    Column("inside a save", "in_saves", count),
                    Column("runs equal, bit for bit", "equal", count),
                    FAILED,
                ],
                trials_of("kill"),
            ),
            Table(
                "Signals: the run saves and exits with code 0, then continues",
                [
                    Column("signal", "what"),
                    Column("signals", "signals", count),
                    Column("while compiling", "in_compilation", count),
                    Column("in a step", "in_step", count),
                    Column("in an evaluation", "in_evaluation", count),
                    Column("in a save", "in_save", count),
                    Column("as documented", "as_documented", count),
                    Column("runs", "trials", count),
                    Column("runs equal, bit for bit", "equal", count),
                    FAILED,
                ],
                trials_of("signal"),
            ),
            Table(
                "Hosts, devices and processes that change: every example once, in the same step; "
                "parameters bit for bit where their number stays, else within 1e-6",
                [
                    Column("what changes", "what"),
                    Column("runs", "trials", count),
                    Column("changes", "changes", count),
                    Column("examples exact", "exact", count),
                    Column("largest difference of a parameter", "largest_difference", small),
                    Column("all processes ended within, s", "largest_seconds", digits(1)),
                    FAILED,
                ],
                trials_of("elastic"),
            ),
            Table(
                "Damaged files: found before they are used, or harmless",
                [
                    Column("files of", "what"),
                    Column("flipped bits", "flips", count),
                    Column("cut short", "cuts", count),
                    Column("found", "found", count),
                    Column("harmless", "harmless", count),
                    Column("wrong", "wrong", count),
                    Column("other errors", "crashed", count),
                ],
                trials_of("damage"),
            ),
            Table(
                "Disks that fill up, break, refuse or are slow from a random call on: the command "
                "ends with success or one sentence, and the same command then leaves what it "
                "leaves where nothing failed",
                [
                    Column("command", "what"),
                    Column("failing disks", "failing", count),
                    Column("slow disks", "slow", count),
                    Column("ended in a sentence", "in_a_sentence", count),
                    Column("equal afterwards", "equal", count),
                    FAILED,
                ],
                trials_of("disk"),
            ),
        ],
    ),
    "precision": Page(
        "bfloat16 beside float32",
        "A small LOCOST learns gap sentences of the documentation inside Python, from the same "
        "parameters on the same batches, computed in float32 and in bfloat16; parameters are "
        "float32 in both. A third run, in float32 with another seed, of parameters and batches, "
        "says how much a difference means. float16 is refused with a sentence: activations of T5 "
        "leave its range (`tests/parity/test_precision.py`), and losses are not scaled.",
        [
            Table(
                "Losses, by tenths of the steps",
                [
                    Column("encoder attention", "attention"),
                    Column("up to step", "last_step", count),
                    Column("float32", "wide", digits(4)),
                    Column("bfloat16", "narrow", digits(4)),
                    Column("largest difference at a step", "largest_difference", small),
                    Column("the same, of another seed", "of_another_seed", small),
                ],
                having("wide"),
            ),
            Table(
                "At the end: parameters, and logits of the float32 run computed in both",
                [
                    Column("encoder attention", "attention"),
                    Column("parameters differ, of their norm", "parameters_differ", small),
                    Column("those of another seed", "another_seed_differs", small),
                    Column("logits differ, of the largest", "logits_differ", small),
                    Column("same likeliest token", "same_token", digits(3)),
                ],
                having("logits_differ"),
            ),
        ],
    ),
    "fuzz": Page(
        "Damaged files",
        "Every reader is given small valid files that were damaged at random. Content is taken "
        "apart where its format is known, damaged inside and put together again with right "
        "lengths and sums: members of archives, headers of safetensors and arrays, records, "
        "instructions of pickles, fields of SentencePiece's messages, values of JSON, tags and "
        "numbers of texts; in a quarter of the cases bytes are flipped, cut out or repeated. It "
        "has to end in a value or in one sentence. Any other exception, the end of the process, a "
        "program that is run, writing elsewhere, a gigabyte of memory and more than ten seconds of "
        "the processor are failures. What was found is mended and stands among the tests, of which "
        "a short form of this is one. The aim is two hours of a processor for each reader; the "
        "table says how much of that has been.",
        [
            Table(
                "",
                [
                    Column("reader", "reader"),
                    Column("minutes of a processor", "cpu_minutes", digits(1)),
                    Column("files", "files", count),
                    Column("failures found", "failures", count),
                    Column("of them mended", "mended", count),
                ],
            )
        ],
    ),
    "soak": Page(
        "Soak",
        "One process that summarises short and long documents, and one that trains with a "
        "checkpoint and an evaluation after every step. Rows are tenths of the work. Resident "
        "memory is the least of a tenth; a leak shows as growth, of memory, files or threads, and "
        "programs that are compiled late as their number. Seconds are those of a machine that "
        "others used, too.\n\n"
        "Growth is that of resident memory since the first part after which no program was "
        "compiled; before it, memory grows by the programs.\n\n"
        "Summaries: it is flat within 1 %, once every pair of lengths has come; LOCOST keeps "
        "kernels of the lengths that it has seen, up to a limit.\n\n"
        "Training grows with saves: by 76 kB each, 4 % in the 240 after all was compiled, where "
        "2 % was the aim. They are a leak of TensorStore (0.1.86, the newest): every "
        "`tensorstore.KvStore.Spec.to_json()` leaves 771 bytes that are never freed (measured over "
        "30,000 calls of it alone), and orbax makes 92 such calls a save here, one for each array "
        "and some for their files: 71 kB (its metrics do not ask any more). Tracing all "
        "allocations of 60 saves found nothing else that grows by more than 1 kB a save. "
        "What glibc keeps for threads that have saved is given back after every save "
        "(`training/workarounds.py`); before that the same run held 676 MiB in the second part "
        "and 709 in the last.",
        [
            Table(
                heading,
                [
                    Column("part", "part"),
                    Column(units, "done", count),
                    Column("programs compiled", "compiled", count),
                    Column("resident MiB", "resident_mib", digits(1)),
                    Column("growth, %", "growth", digits(2)),
                    Column("files", "files", count),
                    Column("threads", "threads", count),
                    Column(f"{units}/s", "per_second", digits(1)),
                ],
                soaked(section),
            )
            for section, heading, units in (
                ("summaries", "Summaries", "documents"),
                ("training", "Training", "steps"),
            )
        ],
    ),
}
