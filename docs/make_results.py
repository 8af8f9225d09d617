"""Writes docs/results/*.md: one page of tables for every file of benchmarks/results.

    python docs/make_results.py            # docs/conf.py runs it at every build

Every number on these pages comes from a JSON file that a script of benchmarks/ wrote. Text here
says what a table shows and never repeats a number.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "results"

Row = dict[str, Any]
QUARTERS = ("to 1/4", "to 1/2", "to 3/4", "to 1")  # of the length, by which probes are divided
PROBES = ("needle", "multi_needle", "recall", "salient_copy", "count", "entity")
PROBES += ("query_focus", "redundancy", "distractor")


class Column(NamedTuple):
    """One column: heading, key of the rows, and how a value is printed."""

    heading: str
    key: str
    show: Callable[[Any], str] = str


class Table(NamedTuple):
    """One table of a page: heading, columns, and the rows that belong to it.

    ``more_columns`` gives columns, from all rows, whose number depends on what was measured.
    """

    heading: str
    columns: Sequence[Column]
    rows: Callable[[list[Row]], list[Row]] = lambda rows: rows
    more_columns: Callable[[list[Row]], list[Column]] = lambda rows: []


class Page(NamedTuple):
    """One page.

    Attributes:
        title: of the page.
        text: what was measured and how to read the tables.
        tables: see ``Table``.
    """

    title: str
    text: str
    tables: Sequence[Table]


def count(value: int) -> str:
    """Returns an integer with separators of thousands."""
    return f"{value:,}"


def digits(places: int) -> Callable[[Any], str]:
    """Returns a printer of numbers with ``places`` decimal places."""
    return lambda value: f"{value:,.{places}f}"


def significant(value: float) -> str:
    """Returns a number to three digits, however large or small."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def small(value: float) -> str:
    """Returns a small number in scientific notation."""
    return f"{value:.1e}"


def yes(value: bool) -> str:
    """Returns yes or no."""
    return "yes" if value else "no"


def with_peers(rows: list[Row]) -> list[Row]:
    """Returns one row per peer, with the figures of this library's row for the same case in front.

    A peer that was not measured has a note in place of its seconds.
    """
    ours: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row["by"].startswith("longsum_jax"):
            ours[_case(row)] = ours.get(_case(row), {}) | row  # Model.encode, where there is one
    paired = []
    for row in rows:
        if row["by"].startswith("longsum_jax"):
            continue
        here = {f"our_{key}": value for key, value in ours[_case(row)].items()}
        # Rows of Model.encode are what a user calls, so its ratio goes before the module's.
        times = {"times": row.get("public_ratio", row.get("ratio"))}
        paired.append(here | row | times | {"by": row["by"].removeprefix("PyTorch ")})
    return paired


def _case(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in ("model", "length", "beams", "batch"))


def where(**values: Any) -> Callable[[list[Row]], list[Row]]:
    """Returns a filter of rows by equal values."""
    return lambda rows: [
        row for row in rows if all(row.get(key) == value for key, value in values.items())
    ]


def having(key: str, *without: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a filter of rows that have a value for ``key`` and none for ``without``."""
    return lambda rows: [
        row
        for row in rows
        if row.get(key) is not None and all(row.get(name) is None for name in without)
    ]


def pivot(key: str, across: str, value: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that turns rows into one row per ``key`` with a column per ``across``."""

    def turn(rows: list[Row]) -> list[Row]:
        turned: dict[Any, Row] = {}
        for row in rows:
            if value in row:
                turned.setdefault(row[key], {key: row[key]})[str(row[across])] = row[value]
        return list(turned.values())

    return turn


def rouge_by_data(writer: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per strategy with a column per data set."""
    turn = pivot("strategy", "data", "rouge")
    return lambda rows: turn([row for row in rows if row.get("writer") == writer])


def by_machine(rows: list[Row]) -> list[Row]:
    """Returns one row per case with its ratio on every machine, under the machine's name."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        case = {key: row[key] for key in ("what", "model", "length", "claimed")}
        line = found.setdefault(tuple(case.values()), case)
        if "ratio" in row:
            line[row["machine"]] = row["ratio"]
    return list(found.values())


def machines(rows: list[Row]) -> list[Column]:
    """Returns one column per machine."""
    names = dict.fromkeys(row["machine"] for row in rows)
    return [Column(name, name, digits(2)) for name in names]


def probed(task: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per model of a task with a column per length."""

    def turn(rows: list[Row]) -> list[Row]:
        found: dict[tuple[Any, ...], Row] = {}
        for row in having("seeds")(where(task=task)(rows)):
            model = {
                key: row[key] for key in ("tasks", "plan", "encoder", "cross", "memory", "seeds")
            }
            line = found.setdefault(tuple(model.values()), model)
            line[f"exact at {row['length']}"] = f"{row['mean']:.2f} ± {row['interval']:.2f}"
        return list(found.values())

    return turn


def probed_lengths(rows: list[Row]) -> list[Column]:
    """Returns one column per length that probes were read at."""
    lengths = sorted({row["length"] for row in having("seeds")(rows)})
    return [Column(f"{length:,}", f"exact at {length}") for length in lengths]


def probed_distances(task: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per model and length with a column per distance."""

    def turn(rows: list[Row]) -> list[Row]:
        chosen = having("seeds")(where(task=task)(rows))
        return [row | dict(zip(QUARTERS, row["mean_by_distance"], strict=True)) for row in chosen]

    return turn


def learned(rows: list[Row]) -> list[Row]:
    """Returns one row per trained model with the right tokens at the end of each length."""
    found = {}
    for row in having("learned")(rows):
        model = {key: row[key] for key in ("tasks", "plan", "encoder", "cross", "memory", "seed")}
        shares = {f"learned at {length}": value for length, value in row["learned"].items()}
        found[tuple(model.values())] = model | {"parameters": row["parameters"]} | shares
    return list(found.values())


def learned_lengths(rows: list[Row]) -> list[Column]:
    """Returns one column per length that probes were trained at."""
    lengths = {int(length) for row in having("learned")(rows) for length in row["learned"]}
    return [Column(f"{n:,}", f"learned at {n}", digits(3)) for n in sorted(lengths)]


def by_data_set(value: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that turns rows into one row per system with a column per data set."""

    def turn(rows: list[Row]) -> list[Row]:
        return pivot("system", "data_set", value)([row for row in rows if "system" in row])

    return turn


def data_sets(rows: list[Row]) -> list[Column]:
    """Returns one column per data set, and one for their mean."""
    names = dict.fromkeys(row["data_set"] for row in rows if "system" in row)
    return [Column(name, name, digits(1)) for name in names]


def percent(share: float) -> str:
    """Returns a share in percent."""
    return f"{100 * share:.1f}"


def separation(rows: list[Row]) -> list[Row]:
    """Returns one row per data set: shares at the best threshold, and the area under the curve."""
    areas = {row["data_set"]: row["auc"] for row in rows if row["part"] == "separation"}
    means = where(part="thresholds", data_set="mean")(rows)
    best = max(means, key=lambda row: row["balanced_accuracy"])["threshold"]
    found = where(part="thresholds", threshold=best)(rows)
    return [row | {"auc": areas[row["data_set"]]} for row in found]


AGREEMENT = [
    Column("precision, %", "precision", percent),
    Column("recall, %", "recall", percent),
    Column("F1, %", "f1", percent),
]
RULES = {
    "drop": "without a third of their words",
    "replace": "with other words for a third",
    "shorten": "cut in half",
    "merge": "two joined",
    "all": "two joined, words left out and replaced",
}
SWAPS = {"": "", "same": "the document", "other": "another document"}
SYSTEMS = [Column("system", "system")]
MODEL = Column("model", "model")
TOKENS = Column("tokens", "length", count)
LENGTHS = [16384, 65536, 262144, 524288]
GIB_BY_LENGTH = [MODEL, *(Column(f"{n:,}", str(n), digits(1)) for n in LENGTHS)]
ROUGE_BY_DATA = [
    Column("strategy", "strategy"),
    *(
        Column(name, name, digits(1))
        for name in ("scisummnet", "techspecs", "qmsum", "sumpubmed", "crd3", "mean")
    ),
]
SPEED = [
    MODEL,
    TOKENS,
    Column("s", "our_seconds", digits(2)),
    Column("tokens/s", "our_tokens_per_second", digits(0)),
    Column("roofline", "our_roofline", digits(2)),
    Column("peer (PyTorch)", "by"),
    Column("s", "seconds", digits(2)),
    Column("times as fast", "times", digits(2)),
    Column("GiB", "our_gib", digits(2)),
    Column("peer's GiB", "gib", digits(2)),
    Column("note", "note"),
]
SPEED_TEXT = (
    "Ours and the peer take turns in one process and the fastest turn counts. *Roofline* is the "
    "share of the model's own operations in what a large matrix product reaches in the same "
    "time. *GiB* is all that is held, parameters included."
)
SCORES = [
    Column("bits/token", "bits", digits(3)),
    Column("bits, another source", "bits_other", digits(3)),
    Column("ROUGE-1", "rouge1", digits(2)),
    Column("ROUGE-2", "rouge2", digits(2)),
    Column("ROUGE-Lsum", "rougeLsum", digits(2)),
    Column("mean", "mean_rouge", digits(2)),
    Column("lead", "lead", digits(2)),
    Column("MiB of a step", "step_mib", digits(0)),
    Column("parameters", "parameters", count),
    Column("steps", "steps", count),
]
STUDY_TEXT = (
    "*Bits/token* are of the references of the validation set. *Bits, another source* are of the"
    " same references with the source of another document: where both are equal, the model does "
    "not use its source and the row compares nothing. *Lead* is the mean ROUGE of the first "
    "sentences."
)
LAYER_TIMES = [
    Column("forward, s", "forward_seconds", digits(3)),
    Column("MiB", "forward_mib", digits(0)),
    Column("training, s", "training_seconds", digits(3)),
    Column("MiB", "training_mib", digits(0)),
]
KIND = Column("attention", "kind")


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
    """Returns a function that gives the rows of a section with the growth of their memory."""

    def turn(rows: list[Row]) -> list[Row]:
        found = where(section=section)(rows)
        return [
            row | {"growth": 100 * (row["resident_mib"] / found[1]["resident_mib"] - 1)}
            for row in found
        ]

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
PROBED_MODEL = (
    Column("trained on", "tasks"),
    Column("length:steps", "plan"),
    Column("encoder attention", "encoder"),
    Column("cross-attention", "cross"),
    Column("memory", "memory"),
    Column("seeds", "seeds", count),
)

PLANNED = [
    Column("case", "case"),
    Column("devices", "devices_of", str),
    Column("program", "program"),
]
PLANNED_WORK = [
    Column("arguments", "arguments_gb", significant),
    Column("temporary", "temporary_gb", significant),
    Column("total", "total_gb", significant),
    Column("of", "device_gb", significant),
    Column("TFLOP", "tflop", significant),
    Column("GB moved", "moved_gb", significant),
    Column("GB sent", "sent_gb", significant),
    Column("collectives", "collectives"),
    Column("at least, ms", "least_ms", significant),
    Column("bound by", "bound"),
    Column("compiled in, s", "compile_seconds", significant),
]

PAGES_BY_FILE: Mapping[str, Page] = {
    "encode": Page(
        "Encoders",
        f"Time and memory of `Model.encode`, base models, one document. {SPEED_TEXT}",
        [Table("", SPEED, with_peers)],
    ),
    "train_step": Page(
        "Training steps",
        f"One step with AdamW: forward, backward, update. {SPEED_TEXT}",
        [Table("", SPEED, with_peers)],
    ),
    "decode": Page(
        "Decoding",
        "Tokens per second of decoding alone; *whole call* includes the encoder. The peer is the"
        " `generate` of transformers.",
        [
            Table(
                "",
                [
                    MODEL,
                    TOKENS,
                    Column("beams", "beams"),
                    Column("documents at once", "batch", count),
                    Column("tokens/s", "our_tokens_per_second", digits(1)),
                    Column("peer (PyTorch)", "by"),
                    Column("tokens/s", "tokens_per_second", digits(1)),
                    Column("times as fast", "decode_ratio", digits(2)),
                    Column("whole call", "ratio", digits(2)),
                ],
                with_peers,
            )
        ],
    ),
    "drafts": Page(
        "Drafts",
        "Greedy search with `prompt_lookup_num_tokens`: the same ids, in fewer and longer steps. "
        "Its gain is the number of tokens that a step keeps over how many times as long the step "
        "takes. Steps were measured with random weights and drafts of which next to nothing is "
        "kept; tokens kept were counted by writing summaries of real documents, those of people "
        "and the best sentences of the built-in ranker.",
        [
            Table(
                "Tokens that a step keeps",
                [
                    Column("documents of", "data"),
                    Column("written by", "written by"),
                    Column("drafted", "drafted"),
                    Column("documents", "documents", count),
                    Column("tokens a step", "tokens per step", digits(2)),
                ],
                where(study="kept"),
            ),
            Table(
                "What a step costs",
                [
                    MODEL,
                    Column("tokens of the document", "tokens", count),
                    Column("drafted", "drafted"),
                    Column("steps/s", "steps/s", digits(1)),
                    Column("times as long", "times as long", digits(2)),
                ],
                where(study="steps"),
            ),
        ],
    ),
    "many_documents": Page(
        "Many documents",
        "Documents of mixed lengths, from a news article to a book, base models with random "
        "weights, greedy search, summaries of varied lengths: `Model.summarize` with "
        '`batch_size="auto"`. The peer is the `generate` of transformers over batches of '
        "documents sorted by length, at its best batch size. *Warm* leaves out the time of "
        "compiling. *Equal* is the share of equal summaries.",
        [
            Table(
                "",
                [
                    MODEL,
                    Column("documents", "documents", count),
                    Column("tokens read of each", "our_tokens_per_document", digits(0)),
                    Column("tokens of a summary", "our_tokens_per_summary", digits(0)),
                    Column("documents/s", "our_documents_per_second", digits(3)),
                    Column("s of compiling", "our_compile_seconds", digits(0)),
                    Column("peer (PyTorch)", "by"),
                    Column("its batch", "batch_size", count),
                    Column("documents/s", "documents_per_second", digits(3)),
                    Column("times as fast", "ratio", digits(2)),
                    Column("warm", "warm_ratio", digits(2)),
                    Column("processor seconds", "cpu_ratio", digits(2)),
                    Column("equal", "equal", digits(2)),
                ],
                with_peers,
            )
        ],
    ),
    "builtin_extractor": Page(
        "Summaries without a model",
        "The built-in ranker beside unsupervised extraction: means of stemmed ROUGE-1, -2 and "
        "-Lsum, whole test splits. All systems have the same budget of words on a data set, the "
        "mean length of its training references. *Built-in* are the weights of the package, "
        "which never saw sumpubmed and crd3; *own* was trained on the data set itself, *others* "
        "on the four others, *other kind* on talk (qmsum, crd3) where the data set is writing, and "
        "the other way round. *Reference* takes sentences by the reference itself and bounds what "
        "sentences can reach. Queries of qmsum are known to the rankers alone.",
        [
            Table("", SYSTEMS, by_data_set("mean_rouge"), data_sets),
            Table("First 40 documents, 8 of crd3", SYSTEMS, by_data_set("first"), data_sets),
            Table(
                "Against unsupervised systems",
                [
                    Column("ranker", "system"),
                    Column("data set", "data_set"),
                    Column("documents", "documents"),
                    Column("best of them", "best_peer"),
                    Column("points above it", "gain", digits(2)),
                    Column("points above lead", "gain_over_lead", digits(2)),
                    Column("largest p-value of all six", "highest_p", small),
                ],
                lambda rows: [row for row in rows if "highest_p" in row],
            ),
            Table(
                "Speed",
                [
                    Column("", "what"),
                    Column("words", "words", count),
                    Column("s", "seconds", digits(2)),
                ],
                lambda rows: [row for row in rows if "what" in row],
            ),
        ],
    ),
    "extractive_peers": Page(
        "Summaries without a model, beside sumy",
        "The built-in ranker beside summarizers of sumy on the same documents, with the same "
        "sentences and the same budget of words. Scores are means of stemmed ROUGE-1, -2 and "
        "-Lsum; seconds are those of the processor for one document, from text to summary.",
        [
            Table(
                "",
                [
                    Column("data set", "data_set"),
                    Column("system", "system"),
                    Column("documents", "documents"),
                    Column("ROUGE", "mean_rouge", digits(1)),
                    Column("s", "seconds", digits(3)),
                    Column("times ours", "ratio", digits(1)),
                ],
                lambda rows: rows,
            )
        ],
    ),
    "sources": Page(
        "What summaries rest on",
        "Sentences drawn from documents and rewritten by rule, whose sources are known; support of "
        "reference sentences beside their own and another document; sentences that FactCC's rules "
        "corrupted. Means over five data sets: papers, technical standards, biomedical articles, "
        "meetings and plays of fantasy. *Alignment* is ours, of greedily added words and pairs of "
        "words; *greedy ROUGE* adds sentences as long as ROUGE grows; *nearest* names one "
        "sentence, so that it can find half of two. Precision and recall are of source sentences, "
        "F1 is of these two. *Flags, document* counts names, numbers and dates that the document "
        "lacks, *flags, sources* those that the named sources lack. The next document of meetings "
        "and plays often tells of the same people and things, and does hold some of what counts "
        "there as unsupported.",
        [
            Table(
                "Methods beside known sources",
                [
                    Column("sentences are", "rule", RULES.__getitem__),
                    Column("method", "method"),
                    *AGREEMENT,
                ],
                where(part="methods", data_set="mean"),
            ),
            Table(
                "What alignment is allowed",
                [
                    Column("sources at most", "max_sources"),
                    Column("least gain", "min_gain"),
                    *AGREEMENT,
                ],
                where(part="settings"),
            ),
            Table(
                "Reference sentences that reach a support",
                [
                    Column("support", "threshold"),
                    Column("own document, %", "own", percent),
                    Column("another document, %", "other", percent),
                    Column("right of both, %", "balanced_accuracy", percent),
                ],
                where(part="thresholds", data_set="mean"),
            ),
            Table(
                "The same by data set, at the best support",
                [
                    Column("data set", "data_set"),
                    Column("sentences", "sentences", count),
                    Column("own document, %", "own", percent),
                    Column("another document, %", "other", percent),
                    Column("AUC of support", "auc", digits(3)),
                ],
                separation,
            ),
            Table(
                "AUC of corrupted sentences against unchanged ones",
                [
                    Column("sentences of", "sentence_of"),
                    Column("changed", "kind"),
                    Column("put in from", "swap", SWAPS.__getitem__),
                    Column("support", "support", digits(2)),
                    Column("flags, document", "document flags", digits(2)),
                    Column("flags, sources", "all flags", digits(2)),
                    Column("support and flags", "support and flags", digits(2)),
                ],
                where(part="corrupted", data_set="mean"),
            ),
            Table(
                "Unchanged sentences with flags",
                [
                    Column("data set", "data_set"),
                    Column("sentences of", "sentence_of"),
                    Column("for what the document lacks, %", "by_document", percent),
                    Column("for what the sources lack, %", "by_any", percent),
                ],
                where(part="flagged"),
            ),
        ],
    ),
    "strategies": Page(
        "Strategies for documents longer than an input",
        "What strategies of reading keep of a document, with a writer in a model's place: it "
        "copies the first sentences of an input (*lead*), or its best ones by the built-in ranker "
        "(*ranker*). So strategies are compared, and nothing is said of how well a model writes. "
        "A token is a word. Scores are means of stemmed ROUGE-1, -2 and -Lsum; *read* is the share "
        "of words that the writer sees, *second half* the part of what the summary rests on that "
        "is in the second half of the document.",
        [
            Table(f"ROUGE, writer: {writer}", ROUGE_BY_DATA, rouge_by_data(writer))
            for writer in ("lead", "ranker")
        ]
        + [
            Table(
                "What was read, means over the data sets",
                [
                    Column("writer", "writer"),
                    Column("strategy", "strategy"),
                    Column("read, %", "read", percent),
                    Column("second half, %", "second half", percent),
                    Column("words", "words", digits(0)),
                ],
                where(data="mean"),
            )
        ],
    ),
    "peers": Page(
        "Beside PyTorch, machine by machine",
        "How many times as fast this library is as transformers under PyTorch, base models, one "
        "document, float32: `Model.encode`, one step with AdamW, tokens per second of decoding. "
        "*Aim* is what each case is meant to reach on every machine; an empty cell was not "
        "measured.",
        [
            Table(
                "",
                [Column("", "what"), MODEL, TOKENS, Column("aim", "claimed", digits(1))],
                by_machine,
                machines,
            )
        ],
    ),
    "encode_memory": Page(
        "Memory of encoders",
        "GiB that a pass of the encoder holds, by tokens of the document, from compiled "
        "programs; nothing was run.",
        [Table("", GIB_BY_LENGTH, pivot("model", "length", "gib"))],
    ),
    "train_step_memory": Page(
        "Memory of training steps",
        "GiB that a training step holds, by tokens of the document, with AdamW and "
        "checkpointing, from compiled programs; nothing was run.",
        [Table("", GIB_BY_LENGTH, pivot("model", "length", "gib"))],
    ),
    "million_tokens": Page(
        "A pass over a million tokens",
        "Gigabytes of arguments, results and temporary arrays of compiled programs, and of a "
        "run. Programs compiled on a CPU hold float32 copies of bfloat16 arrays, so that they "
        "are an upper estimate for accelerators.",
        [
            Table(
                "",
                [
                    TOKENS,
                    Column("cross-attention", "cross_attention"),
                    Column("stride", "stride"),
                    Column("program", "program"),
                    Column("total GB", "total_gb", digits(2)),
                    Column("temporary GB", "temp_gb", digits(2)),
                    Column("s", "seconds", digits(0)),
                    Column("peak GB of the process", "peak_gb", digits(2)),
                ],
            )
        ],
    ),
    "plans": Page(
        "Plans for TPUs and GPUs",
        "Compiled by `longsum plan` for described devices, and **never run**: memory, collectives "
        "and compile times are those of XLA's programs, times are rooflines, which no run can "
        "beat and real runs will miss. GB (10^9 bytes) on each device; *at least* is the slowest "
        "of products, memory and links at the vendor's peaks. Compile times are those of two busy "
        "cores. `c4` is `configs/locost_c4.py`, 234.7M parameters, 256 documents of 4,096 tokens "
        "a step, `c4_tiny` its mode of seconds; summaries are those of the large model, float32 "
        "weights, computed in bfloat16, at most 512 tokens by greedy search. The commands are in "
        "`benchmarks/plans.py`; how to read a plan is in the [guide](../guide/plan.md).",
        [
            Table(
                "Training and its evaluations",
                [
                    *PLANNED,
                    Column("parameters", "parameters_gb", significant),
                    Column("optimizer", "optimizer_gb", significant),
                    *PLANNED_WORK,
                ],
                having("arguments_gb", "length"),
            ),
            Table(
                "Summaries",
                [
                    *PLANNED,
                    Column("documents", "batch_size", count),
                    Column("tokens", "length", count),
                    *PLANNED_WORK,
                ],
                having("length"),
            ),
            Table(
                "The longest document that can be summarized",
                [
                    *PLANNED[:2],
                    Column("documents at a time", "batch_size", count),
                    Column("tokens", "tokens", count),
                ],
                having("tokens"),
            ),
            Table(
                "What makes a step fit, found by trying",
                [
                    *PLANNED,
                    Column("changes", "tried"),
                    Column("total", "total_gb", significant),
                    Column("fits", "fits", yes),
                ],
                having("tried"),
            ),
        ],
    ),
    "corpora": Page(
        "Data sets",
        "Means over the documents of the validation splits that other pages use: words, how many"
        " words of the document there are for one of the summary, the share of the summary's words"
        " in fragments that the document has, and the mean length of a word's fragment (Grusky et"
        " al. 2018). The columns are those of table 2 of the Hepos paper.",
        [
            Table(
                "",
                [
                    Column("data", "data"),
                    Column("documents", "documents", count),
                    Column("words of a document", "document_words", digits(0)),
                    Column("words of a summary", "summary_words", digits(0)),
                    Column("compression", "compression", digits(1)),
                    Column("coverage", "coverage", digits(2)),
                    Column("density", "density", digits(2)),
                ],
            )
        ],
    ),
    "salient_ngrams": Page(
        "Where n-grams of summaries first stand",
        "Of the distinct unigrams and bigrams of a summary that its document has, the percentage"
        " that stands in the first tenths of the document; means over documents (Hepos paper,"
        " figure 2).",
        [
            Table(
                "",
                [
                    Column("data", "data"),
                    *(Column(f"{read} %", str(read), digits(1)) for read in range(10, 101, 10)),
                ],
                pivot("data", "read", "seen"),
            )
        ],
    ),
    "fit_length": Page(
        "Training memory by document length",
        "GiB of a training step from compiled programs. Models that read segment by segment hold"
        " the same for every length.",
        [
            Table(
                "",
                [
                    MODEL,
                    Column("6,144 tokens", "6,144", digits(3)),
                    Column("49,152 tokens", "49,152", digits(3)),
                ],
            )
        ],
    ),
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
    "ssm": Page(
        "State-space operation",
        "The bidirectional state-space convolution of LOCOST.",
        [
            Table(
                "Kernels",
                [
                    Column("form", "what"),
                    Column("channels", "channels"),
                    TOKENS,
                    Column("s", "seconds", digits(3)),
                    Column("ratio", "ratio", digits(1)),
                ],
                where(table="kernel"),
            ),
            Table(
                "Temporary memory",
                [
                    Column("pass", "what"),
                    Column("channels", "channels"),
                    TOKENS,
                    Column("GiB", "temp_gib", digits(3)),
                ],
                where(table="memory"),
            ),
            Table(
                "Relative error of kernels against float64",
                [
                    Column("decay", "what"),
                    Column("channels", "channels"),
                    TOKENS,
                    Column("L2", "relative_l2", small),
                ],
                where(table="error"),
            ),
            Table(
                "Time",
                [
                    Column("pass", "what"),
                    Column("channels", "channels"),
                    TOKENS,
                    Column("s", "seconds", digits(2)),
                ],
                where(table="time"),
            ),
        ],
    ),
    "ssm_backends": Page(
        "State-space operation: FFT or matrix products",
        "Processor seconds of both backends. *Ratio* is the FFT's time over that of the "
        'products: below 1 the FFT is faster. `ssm_backend="auto"` looks devices up in this '
        "table.",
        [
            Table(
                "",
                [
                    Column("device", "platform"),
                    Column("pass", "what"),
                    Column("batch", "batch"),
                    TOKENS,
                    Column("channels", "channels"),
                    Column("FFT, s", "fft_cpu_seconds", digits(2)),
                    Column("products, s", "matmul_cpu_seconds", digits(2)),
                    Column("ratio", "ratio", digits(2)),
                ],
            )
        ],
    ),
    "encoder_attentions": Page(
        "Encoder attentions at equal cost",
        "One layer of each encoder attention by length. *Slope* is the exponent with which "
        "processor time grows between the two longest inputs; *expected* follows from the "
        "complexity that Table 1 of the Hepos paper gives, plus the layer's own maps.",
        [
            Table("", [KIND, TOKENS, *LAYER_TIMES]),
            Table(
                "Growth with length",
                [
                    KIND,
                    Column("complexity", "complexity"),
                    Column("new parameters", "new_parameters", count),
                    Column("forward slope", "forward_slope", digits(2)),
                    Column("expected", "forward_expected", digits(2)),
                    Column("training slope", "training_slope", digits(2)),
                    Column("expected", "training_expected", digits(2)),
                ],
                lambda rows: [row for row in rows if "forward_slope" in row],
            ),
        ],
    ),
    "lsg": Page(
        "LSG beside its peers",
        "One layer of each attention at one length. LSG settings are written as block size / "
        "sparsity factor and selection.",
        [Table("", [KIND, TOKENS, Column("keys of a token", "keys"), *LAYER_TIMES])],
    ),
    "lsg_classifier": Page(
        "LSG classifiers beside their peers",
        "A training step of a whole RoBERTa that tells two classes, with each attention, with and"
        " without dropout of attention weights. Linear, efficient and Performer attention have no"
        " weights to drop.",
        [
            Table(
                "",
                [
                    KIND,
                    TOKENS,
                    Column("dropout of attention", "attention_dropout", digits(1)),
                    Column("GiB held", "gib", digits(2)),
                    Column("of these at work", "work_gib", digits(2)),
                    Column("s", "seconds", digits(2)),
                ],
            )
        ],
    ),
    "lsg_lengths": Page(
        "LSG by length",
        "One layer of each attention by length, forward pass; the slope of time and memory is "
        "what to look at.",
        [Table("", [KIND, TOKENS, Column("keys of a token", "keys"), *LAYER_TIMES[:2]])],
    ),
    "lsg_embeddings": Page(
        "Converted to LSG: embeddings",
        "A pretrained sentence encoder with 512 positions, converted and not trained: cosine of "
        "its mean state to the mean over chunks of 512 tokens read by the original. *Another "
        "document* is the level of chance.",
        [
            Table(
                "",
                [
                    Column("variant", "variant"),
                    TOKENS,
                    Column("mean cosine", "cosine", digits(4)),
                    Column("lowest", "lowest", digits(4)),
                    Column("documents", "documents"),
                ],
            )
        ],
    ),
    "lsg_masked_lm": Page(
        "Converted to LSG: masked language model",
        "Bits per hidden token of a masked language model trained at 512 tokens and then "
        "converted, and after a few training steps at the longer length.",
        [
            Table(
                "",
                [
                    Column("variant", "variant"),
                    TOKENS,
                    Column("bits", "bits", digits(3)),
                    Column("guessed", "accuracy", digits(3)),
                    Column("bits after training", "bits_fine_tuned", digits(3)),
                    Column("guessed after training", "accuracy_fine_tuned", digits(3)),
                ],
            )
        ],
    ),
    "hepos": Page(
        "Hepos: memory of decoding",
        "Gigabytes that the decoder of the base LOCOST holds, by source length and stride. "
        "*Kept* says whether keys and values or the encoder states stay in the cache.",
        [
            Table(
                "",
                [
                    TOKENS,
                    Column("stride", "stride"),
                    Column("kept", "kept"),
                    Column("cache GB", "cache_gb", digits(2)),
                    Column("temporary GB, fill", "fill_temp_gb", digits(2)),
                    Column("temporary GB, step", "step_temp_gb", digits(2)),
                ],
            )
        ],
    ),
    "attention_study": Page(
        "Encoder attentions and cross-attentions on real text",
        "Every encoder attention with cross-attentions, continued from one small start. "
        f"{STUDY_TEXT}",
        [Table("", [Column("encoder", "encoder"), Column("cross-attention", "cross"), *SCORES])],
    ),
    "reading_study": Page(
        "More input for the same model",
        f"The same start, reading longer inputs. {STUDY_TEXT}",
        [
            Table(
                "",
                [
                    Column("encoder", "encoder"),
                    Column("cross-attention", "cross"),
                    Column("tokens read", "tokens", count),
                    *SCORES,
                ],
            )
        ],
    ),
    "s4d_hepos_study": Page(
        "A state-space encoder with Hepos",
        f"A small LOCOST encoder with full and with Hepos cross-attention. {STUDY_TEXT}",
        [Table("", [Column("encoder", "encoder"), Column("cross-attention", "cross"), *SCORES])],
    ),
    "segment_study": Page(
        "Segments and memories compared",
        f"Variants of AWESOME on real documents, continued from one small start. {STUDY_TEXT}",
        [
            Table(
                "",
                [
                    Column("data", "data"),
                    Column("variant", "variant"),
                    Column("memory in the decoder", "decoder_memory"),
                    *SCORES,
                ],
            )
        ],
    ),
    "empty_segments": Page(
        "Segments without a target",
        "Segments that no sentence of the summary belongs to, read without a loss (*false*) or"
        " trained to be silent (*true*), on technical specifications: the first 1,024 tokens in"
        " segments of 96 to 128, a model of one million parameters from scratch, greedy search."
        " Bits are of segments with a target, in both. The model makes hardly any use of its"
        " source, as the bits with another document's say; what the table shows is when it stops.",
        [
            Table(
                "",
                [
                    Column("trained to be silent", "train_empty"),
                    Column("bits per token", "bits", digits(3)),
                    Column("other source", "bits_other", digits(3)),
                    Column("mean ROUGE", "mean_rouge", digits(2)),
                    Column("lead", "lead", digits(2)),
                    Column("tokens of a summary", "summary_tokens", digits(0)),
                ],
            )
        ],
    ),
    "input": Page(
        "Input pipeline",
        "Documents per second of one core.",
        [
            Table(
                "",
                [
                    Column("stage", "stage"),
                    Column("documents", "documents", count),
                    Column("documents/s", "documents_per_second", digits(0)),
                ],
            )
        ],
    ),
    "metrics": Page(
        "Metrics of summaries",
        "Our metrics beside their reference implementations on the same pairs of texts, on one"
        " core: the largest difference of a score from 0 to 100 (of BARTScore and LongDocFACTScore"
        " of log-probabilities), pairs per second of processor time, and how many times as fast"
        " ours is. Those over models read with random ones. Their lengths are spread as those of"
        " real summaries and sentences, and what is saved at the base size is padding: over many"
        " summaries of one length bert-score is about as fast. Tests of significance likewise.",
        [
            Table(
                "Metrics",
                [
                    Column("metric", "metric"),
                    Column("reference", "peer"),
                    Column("pairs", "pairs", count),
                    Column("largest difference", "largest_difference", small),
                    Column("pairs/s", "pairs_per_second", digits(1)),
                    Column("reference, pairs/s", "peer_pairs_per_second", digits(1)),
                    Column("times as fast", "ratio", digits(1)),
                ],
                lambda rows: [row for row in rows if "metric" in row],
            ),
            Table(
                "Metrics that no package computes; `tests/evaluation` has their twins",
                [
                    Column("metric", "definition"),
                    Column("as defined by", "of"),
                    Column("pairs", "pairs", count),
                    Column("pairs/s", "pairs_per_second", digits(1)),
                ],
                having("definition"),
            ),
            Table(
                "Many summaries, on one core",
                [
                    Column("metric", "many"),
                    Column("summaries", "summaries", count),
                    Column("seconds", "seconds", digits(1)),
                ],
                having("many"),
            ),
            Table(
                "Significance of one column of scores",
                [
                    Column("", "test"),
                    Column("reference", "peer"),
                    Column("documents", "documents", count),
                    Column("rounds", "rounds", count),
                    Column("seconds", "seconds", digits(3)),
                    Column("reference, seconds", "peer_seconds", digits(3)),
                    Column("times as fast", "ratio", digits(1)),
                ],
                lambda rows: [row for row in rows if "test" in row],
            ),
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
    "probes": Page(
        "Probes",
        "Small models that learn generated tasks with exact answers (`benchmarks/probe_tasks.py` "
        "says which, with an example of each; `python benchmarks/probes.py --show` draws one). "
        "Every model has the same number of parameters, sees the same texts, and writes "
        "greedily. A number is the share of answers that are right to the last token, with half "
        "the 95 % interval: over seeds, or over texts where there is one seed. Lengths beyond "
        "those of training are read without further training. The last table says what was "
        "learned: a low number there is no property of an attention, but a training that ended "
        "too early, as for key-value recall learned beside the needle.\n\n"
        "First findings, of one seed. The needle is found far beyond the trained lengths where "
        "what the encoder does does not depend on the length: windows, whose every distance was "
        "trained in short texts, and the state space; Hepos loses nothing up to twice the trained "
        "length. Full attention loses it, in places that change with the length, and had learned "
        "the longer trained texts least. A likely reason is the recipe, not the code: short "
        "texts train T5's biases of short distances alone, those of far keys wait for the few "
        "long texts. It was not tested by training longer. Recall, where it is a training's only "
        "task, is learned in short texts by all; the state space alone keeps it in longer ones. "
        "Windows see no far keys, so biases are not why they do not, and what is has not been "
        "found.",
        [
            *(
                table
                for task in PROBES
                for table in (
                    Table(
                        f"{task}: exact answers, by length",
                        PROBED_MODEL,
                        probed(task),
                        probed_lengths,
                    ),
                    Table(
                        f"{task}: by the distance of the fact, in parts of the length",
                        [
                            *PROBED_MODEL,
                            Column("length", "length", count),
                            *(Column(name, name, digits(2)) for name in QUARTERS),
                        ],
                        probed_distances(task),
                    ),
                )
            ),
            Table(
                "Learned: right answer tokens at the end of training for each length",
                [
                    *PROBED_MODEL[:-1],
                    Column("seed", "seed"),
                    Column("parameters", "parameters", count),
                ],
                learned,
                learned_lengths,
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
    "soak": Page(
        "Soak",
        "One process that summarises short and long documents, and one that trains with a "
        "checkpoint and an evaluation after every step. Rows are tenths of the work. Resident "
        "memory is the least of a tenth; a leak shows as growth, of memory, files or threads, and "
        "programs that are compiled late as their number. Seconds are those of a machine that "
        "others used, too.\n\n"
        "Summaries: memory grows until every pair of lengths has come and its programs are "
        "compiled, and is flat from then on; LOCOST keeps kernels of the lengths that it has seen, "
        "up to a limit.\n\n"
        "What grows in training grows with saves, and is no object of this library: TensorStore "
        "keeps a list for every metric that it is asked for, of which orbax asks for some at every "
        "save, and glibc keeps memory for threads that come and go. Without those questions and "
        "with `MALLOC_ARENA_MAX=1`, a tiny run hardly grows.",
        [
            Table(
                heading,
                [
                    Column("part", "part"),
                    Column(units, "done", count),
                    Column("programs compiled", "compiled", count),
                    Column("resident MiB", "resident_mib", digits(1)),
                    Column("growth since the second part, %", "growth", digits(2)),
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
    "segments": Page(
        "Segmentation",
        "Documents per second of processor time: cutting documents into segments and dealing out"
        " their summaries.",
        [
            Table(
                "",
                [
                    Column("stage", "part"),
                    Column("words of a document", "words", count),
                    Column("documents", "documents", count),
                    Column("documents/s", "documents_per_second", digits(2)),
                ],
            )
        ],
    ),
}

SETTINGS = ("size", "dtype", "batch", "new_tokens", "beams", "summary", "layers", "budget_gib")


def write_pages(out: Path = PAGES) -> list[Path]:
    """Writes one page per file of results and returns their paths.

    Raises:
        SystemExit: a file of results that no page describes.
    """
    paths = sorted(RESULTS.glob("*.json"))
    if unknown := [path.name for path in paths if path.stem not in PAGES_BY_FILE]:
        raise SystemExit(f"docs/make_results.py describes no page for {', '.join(unknown)}")
    written = []
    for path in paths:
        result = json.loads(path.read_text(encoding="utf-8"))
        target = out / f"{path.stem}.md"
        text = render(PAGES_BY_FILE[path.stem], result, path.name)
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
        written.append(target)
    return written


def render(page: Page, result: Mapping[str, Any], name: str) -> str:
    """Returns one page as Markdown."""
    lines = [f"# {page.title}", "", page.text, "", *_origin(result, name)]
    for table in page.tables:
        rows = table.rows(result["rows"])
        if not rows:
            continue
        columns = [
            column
            for column in (*table.columns, *table.more_columns(result["rows"]))
            if any(row.get(column.key) is not None for row in rows)
        ]
        if table.heading:
            lines += [f"## {table.heading}", ""]
        lines += ["| " + " | ".join(column.heading for column in columns) + " |"]
        lines += ["|" + "---|" * len(columns)]
        for row in rows:
            cells = [_cell(column, row) for column in columns]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(column: Column, row: Row) -> str:
    value = row.get(column.key)
    return "" if value is None else column.show(value)


def _origin(result: Mapping[str, Any], name: str) -> list[str]:
    """Returns lines that say where the numbers come from."""
    found = result["machines"].values() if "machines" in result else [result["machine"]]
    lines = [_machine(machine) for machine in found]
    settings = [f"{key} {result[key]}" for key in SETTINGS if result.get(key) is not None]
    if settings:
        lines.append(f"- Settings: {', '.join(settings)}")
    lines += [
        f"- {key.capitalize()}: {result[key]}"
        for key in ("start", "note", "date", "seed")
        if key in result
    ]
    lines += [f"- File: `benchmarks/results/{name}`, written by", ""]
    commands = [command.strip() for command in result["command"].split(";")]
    return [*lines, "```bash", *commands, "```", ""]


def _machine(machine: Mapping[str, Any]) -> str:
    packages = machine["packages"]
    shown = ("jax", "torch", "transformers")
    versions = ", ".join(f"{name} {packages[name]}" for name in shown if name in packages)
    hardware = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    accelerators = sorted({device for device in machine["devices"] if device != "cpu"})
    if accelerators:
        hardware += ", " + ", ".join(accelerators)
    return f"- Machine: {hardware}; Python {machine['python']}, {versions}"


if __name__ == "__main__":
    print(f"{len(write_pages())} pages in {PAGES}", file=sys.stderr)
