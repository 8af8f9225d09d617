"""Pages about exactness and reliability."""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from result_pages.tables import (
    Column,
    Page,
    Row,
    Table,
    count,
    digits,
    having,
    percent,
    small,
    where,
    yes,
)


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


# Guarantees or reports of other libraries, to our knowledge; section and text of our counts.
_ELSEWHERE = (
    (
        "[Composer](https://docs.mosaicml.com/projects/composer/en/latest/examples/"
        "checkpoint_autoresume.html): "
        "a stopped run resumes exactly; its tests stop it in its process",
        "kill",
        "{kills} kills; {equal} of {trials} runs equal, bit for bit",
    ),
    (
        "[Orbax](https://orbax.readthedocs.io/en/latest/api_reference/"
        "checkpoint.path.atomicity.html): "
        "checkpoints are complete or absent; its tests raise errors in its process",
        "kill",
        "{in_saves} of the kills inside a save",
    ),
    (
        "[MaxText](https://github.com/AI-Hypercomputer/maxtext): losses after a resume within 10 %",
        "elastic",
        "parameters on other devices within {largest_difference}",
    ),
    (
        "[Grain](https://github.com/google/grain): data continue at every step",
        "elastic",
        "{changes} changes of hosts, devices and processes; {exact} of {trials} runs exact",
    ),
    (
        "torchft: a run with 1,200 injected failures",
        "all",
        "{kills} kills, {signals} signals, {changes} changes, {flips} flipped bits, {cuts} cuts",
    ),
    (
        "[safetensors](https://pytorch.org/projects/safetensors/): audited and fuzzed",
        "damage",
        "{flips} flipped bits and {cuts} cuts, {wrong} of them wrong when read",
    ),
)


def beside_others(rows: list[Row]) -> list[Row]:
    """Returns the guarantees and reports of other libraries with our counts."""
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


def mutants_page() -> Page:
    """Returns the page about small changes of the package that tests should notice."""
    return Page(
        "Mutants",
        "Check here how many errors in the code the tests would notice before you rely on them.",
        "A mutant is the package with one small change: a swapped comparison, operator or pair of "
        "arguments, a number plus or minus one, a negated condition, or a missing statement. They "
        "are drawn at random from all rooms in proportion to their lines, at least ten from each, "
        "and tried in a random order until the time was over; the share is therefore an estimate "
        "from a sample. For each one, tests of the file run until one fails that passes without "
        "the change: first those that mirror the file, then those that import it, for about a "
        "minute of a shared machine. Mutants that survived this were examined: some change "
        "nothing (the file gives the reason for each), some are noticed by tests that had not run "
        "in time, and for the others tests were added. *Killed before* counts mutants that the "
        "existing tests notice, as far as these had run; *killed now* includes those that the new "
        "tests notice. For changes outside the sample, expect the share before rather than the "
        "share now. Mutants of files that have moved since are counted in their new rooms.",
        [
            Table(
                "",
                [
                    Column("room", "room"),
                    Column("mutants", "mutants", count),
                    Column("change nothing", "equivalent", count),
                    Column("killed before", "killed", count),
                    Column("killed now", "killed_now", count),
                    Column("survive", "survived", count),
                    Column("killed before, %", "share_before", percent),
                    Column("killed now, %", "share", percent),
                ],
                lambda rows: [
                    row | {"killed_now": row["killed"] + row["killed_later"]} for row in rows
                ],
            )
        ],
    )


def by(*keys: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that turns cases of ``studies/meshes.py`` into a row per values of the
    keys, with counts and the largest differences.
    """

    def turn(rows: list[Row]) -> list[Row]:
        groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in rows:
            groups[tuple(row[key] for key in keys)].append(row)
        turned = [
            dict(zip(keys, values, strict=True)) | _sums(group)
            for values, group in sorted(groups.items())
        ]
        return [*turned, {keys[0]: "all"} | _sums(rows)] if rows else []

    return turn


def _sums(rows: list[Row]) -> Row:
    """Returns the counts and the largest differences of cases."""
    sums: Row = {
        "cases": len(rows),
        "skipped": sum(row.get("skipped", False) for row in rows),
        "ids": sum(row.get("equal_ids", False) for row in rows),
        "faults": sum(bool(row["fault"]) for row in rows),
    }
    for name in ("loss_difference", "gradient_difference", "parameter_difference"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            sums[name] = max(values)
    return sums


MESH_COLUMNS = (
    Column("cases", "cases", count),
    Column("largest difference of losses", "loss_difference", small),
    Column("of gradients", "gradient_difference", small),
    Column("of parameters", "parameter_difference", small),
    Column("equal ids", "ids", count),
    Column("skipped on all devices", "skipped", count),
    Column("faults", "faults", count),
)
FAILED = Column("failed", "failed", count)
RUN = Column("run", "what")

PAGES: Mapping[str, Page] = {
    "parity": Page(
        "Parity with transformers",
        "Check the error of your family here before you replace transformers.",
        "Small random models of every family are compared with the PyTorch class, in float32, "
        "with rows of unequal length. Errors are relative to the largest value. "
        "`tests/parity` tests the same.",
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
        "Check here which failures were tested before you rely on automatic continuation.",
        "Runs of `longsum train` are killed, stopped by signals and moved to other devices at "
        "random times; files are damaged, and disks fail. Each trial is compared with an "
        "undisturbed one. The runs are tiny, with dropout, prefetched batches, evaluations "
        "and a checkpoint after every step. *Failed* counts violations; every failure is "
        "recorded in the file with the number of its trial, which reproduces it.\n\n"
        "Faults found in this way are fixed and covered by tests:\n\n"
        "| fault | fix |\n"
        "|---|---|\n"
        "| flipped bits in arrays were loaded silently | files have SHA-256 checksums |\n"
        "| an update that overflowed was saved over good checkpoints | updates are "
        "checked before a save |\n"
        "| a kill during the deletion of an old checkpoint broke loading | steps are "
        "renamed first |\n"
        "| two runs in one directory deleted each other's checkpoints | directories are "
        "locked |\n"
        "| a failed last save kept the process alive for minutes | it exits at once |\n"
        "| dropout depended on the number of devices | its keys depend on positions |\n"
        "| damaged predictions were scored | `longsum score` verifies their checksums |\n"
        "| rows of a batch had another order with several hosts, which changed dropout | "
        "each host has neighboring rows |\n"
        "| allowed versions of jax, flax, nltk, protobuf, TensorFlow, array_record and "
        "tensorboardX did not work together | higher minimum versions |\n"
        "| when one of several processes died, the others blamed the disk | the error "
        "names both causes |\n\n"
        "Invalid input of commands and functions is not part of these tables. It is covered "
        "by tests with more than 300 flags, config values and arguments "
        "(`tests/commands/test_bad_input.py`), more than 100 documents "
        "(`tests/readers/test_bad_input.py`) and more than 200 malicious files "
        "(`tests/test_hostile_files.py`), each of which must give a one-sentence error. Random "
        "damage of files has [its own page](fuzz.md), and so have training steps and summaries "
        "on [several devices](meshes.md). Gradients of operations and layers are compared with "
        "central differences in float64 (`tests/ops/test_finite_differences.py`). How many errors "
        "of the code tests notice is on the page about [mutants](mutants.md).",
        [
            Table(
                "Guarantees and reports of other libraries, to our knowledge, and our counts",
                [Column("other library", "elsewhere"), Column("longsum_jax", "here")],
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
                "Signals: the run saves, exits with code 0, and is resumed",
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
                "Changes of hosts, devices and processes: every example once, in the same step; "
                "parameters equal bit for bit if their number is unchanged, otherwise within 1e-6",
                [
                    Column("change", "what"),
                    Column("runs", "trials", count),
                    Column("changes", "changes", count),
                    Column("examples exact", "exact", count),
                    Column("largest parameter difference", "largest_difference", small),
                    Column("all processes ended within, s", "largest_seconds", digits(1)),
                    FAILED,
                ],
                trials_of("elastic"),
            ),
            Table(
                "Damaged files: detected before use, or harmless",
                [
                    Column("files", "what"),
                    Column("flipped bits", "flips", count),
                    Column("truncated", "cuts", count),
                    Column("detected", "found", count),
                    Column("harmless", "harmless", count),
                    Column("wrong", "wrong", count),
                    Column("other errors", "crashed", count),
                ],
                trials_of("damage"),
            ),
            Table(
                "Disks that are full, broken, read-only or slow from a random call on: the command "
                "succeeds or prints a one-sentence error, and running it again gives the same "
                "result as without a failure",
                [
                    Column("command", "what"),
                    Column("failing disks", "failing", count),
                    Column("slow disks", "slow", count),
                    Column("one-sentence errors", "in_a_sentence", count),
                    Column("equal afterwards", "equal", count),
                    FAILED,
                ],
                trials_of("disk"),
            ),
        ],
    ),
    "mutants": mutants_page(),
    "meshes": Page(
        "Meshes",
        "Check here which models were compared on several devices before you choose a mesh.",
        "Tiny random models take one training step and write greedy summaries on 2 and 4 virtual "
        "CPU devices, and on one. Family, attention, cross-attention, pages, memories, dropout, "
        "lengths, micro-batches and the mesh are drawn at random; four cases in a row share a "
        "model. Rows are full, short, without a source, without a target or padding only, and "
        "padded places hold random ids, which must change nothing. In a fifth of the models a "
        "token has an infinite embedding: if a row reads it, all devices must skip the step. "
        "Differences are relative to the largest entry of an array, or to a hundredth of the "
        "largest of all arrays; more than 2e-5 of a loss or 1e-4 of gradients is a fault. Ids are "
        "counted if they were generated and equal. Programs were compiled with few "
        "optimizations; no accelerator was used.",
        [
            Table(
                "By mesh: batch x fsdp x tensor x sequence",
                [Column("mesh", "mesh"), *MESH_COLUMNS],
                by("mesh"),
            ),
            Table("By family", [Column("family", "family"), *MESH_COLUMNS], by("family")),
            Table(
                "By the way to read a document",
                [Column("source", "source"), *MESH_COLUMNS],
                by("source"),
            ),
            Table(
                "By the place of a token with an infinite embedding",
                [Column("infinite", "infinite"), *MESH_COLUMNS],
                by("infinite"),
            ),
            Table(
                "By encoder attention",
                [Column("attention", "encoder_attention"), *MESH_COLUMNS],
                by("encoder_attention"),
            ),
        ],
    ),
    "precision": Page(
        "bfloat16 vs. float32",
        "Compare bfloat16 with the difference between seeds before you select it.",
        "A small LOCOST is trained on gap sentences of Python's built-in documentation, from "
        "the same parameters and on the same batches, in float32 and in bfloat16; parameters "
        "are float32 in both. A third run in float32, with another seed for parameters and "
        "batches, shows how large a meaningful difference is. float16 is rejected, because "
        "T5's activations exceed its range (`tests/parity/test_precision.py`) and losses are "
        "not scaled.",
        [
            Table(
                "Losses, by tenths of the steps",
                [
                    Column("encoder attention", "attention"),
                    Column("up to step", "last_step", count),
                    Column("float32", "wide", digits(4)),
                    Column("bfloat16", "narrow", digits(4)),
                    Column("largest difference in a step", "largest_difference", small),
                    Column("largest difference, another seed", "of_another_seed", small),
                ],
                having("wide"),
            ),
            Table(
                "After training: parameters, and logits of the float32 run computed in both",
                [
                    Column("encoder attention", "attention"),
                    Column(
                        "parameter difference, relative to the norm", "parameters_differ", small
                    ),
                    Column("parameter difference, another seed", "another_seed_differs", small),
                    Column("logit difference, relative to the largest", "logits_differ", small),
                    Column("same top token", "same_token", digits(3)),
                ],
                having("logits_differ"),
            ),
        ],
    ),
    "fuzz": Page(
        "Fuzzing of readers",
        "Check here which readers were tested before you read untrusted files.",
        "Every reader is given small valid files with random damage. If the format is known, "
        "the content is taken apart, damaged inside and reassembled with correct lengths and "
        "checksums: members of archives, headers of safetensors and arrays, records, pickle "
        "instructions, fields of SentencePiece's messages, JSON values, tags and numbers in "
        "texts. In a quarter of the cases bytes are flipped, removed or repeated. The reader "
        "has to return a value or a one-sentence error. Any other exception, a crash, a "
        "started program, a write to another location, a gigabyte of memory and more than ten "
        "CPU seconds are failures. All faults found are fixed and covered by tests, which "
        "include a short version of this script. The target is two CPU hours for each reader; "
        "the table shows the current state.",
        [
            Table(
                "",
                [
                    Column("reader", "reader"),
                    Column("CPU minutes", "cpu_minutes", digits(1)),
                    Column("files", "files", count),
                    Column("failures found", "failures", count),
                    Column("fixed", "mended", count),
                ],
            )
        ],
    ),
    "soak": Page(
        "Soak tests",
        "Check the growth of memory here before you run a process for days.",
        "One process summarizes short and long documents, and one trains with a checkpoint "
        "and an evaluation after every step. Each row is a tenth of the work. Resident memory "
        "is the minimum of the tenth. A leak shows as growth of memory, files or threads; "
        "late compilation shows in the number of programs. Throughput was measured on a "
        "shared machine. Growth is relative to the first part after which no program was "
        "compiled; before it, memory grows because of compilation.\n\n"
        "**Summaries:** memory is constant within 1 % after all pairs of lengths have "
        "occurred. LOCOST caches kernels of the lengths that it has processed, up to a limit.\n\n"
        "**Training** grows with each save by 76 kB, which is 4 % over the 240 saves after "
        "compilation; the target was 2 %. The reason is a leak of TensorStore (0.1.86, the "
        "newest): every `tensorstore.KvStore.Spec.to_json()` leaks 771 bytes (measured over "
        "30,000 calls), and orbax makes 92 such calls per save here, one for each array and "
        "some for their files, 71 kB in total (its metrics no longer make this call). Tracing "
        "all allocations of 60 saves found no other growth above 1 kB per save. Memory that "
        "glibc keeps for threads that have saved is released after every save "
        "(`training/workarounds.py`); before that, the same run used 676 MiB in the second "
        "part and 709 in the last.",
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
