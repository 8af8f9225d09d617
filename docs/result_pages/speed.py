"""Pages about speed: compared with PyTorch, input pipeline, many documents."""

from collections.abc import Mapping
from typing import Any

from result_pages import speed_figure
from result_pages.tables import (
    MODEL,
    TOKENS,
    Column,
    Page,
    Row,
    Table,
    count,
    digits,
    having,
    where,
)


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


SPEED = [
    MODEL,
    TOKENS,
    Column("s", "our_seconds", digits(2)),
    Column("tokens/s", "our_tokens_per_second", digits(0)),
    Column("roofline", "our_roofline", digits(2)),
    Column("baseline (PyTorch)", "by"),
    Column("s", "seconds", digits(2)),
    Column("speed-up", "times", digits(2)),
    Column("GiB", "our_gib", digits(2)),
    Column("baseline's GiB", "gib", digits(2)),
    Column("note", "note"),
]
SPEED_TEXT = (
    "Both libraries alternate in one process, and the fastest run counts. "
    "*Roofline* is the model's operations per second divided by the rate of a large matrix "
    "product. *GiB* is the total memory, parameters included."
)

DECODING = Table(
    "",
    [
        MODEL,
        TOKENS,
        Column("beams", "beams"),
        Column("batch size", "batch", count),
        Column("tokens/s", "our_tokens_per_second", digits(1)),
        Column("baseline (PyTorch)", "by"),
        Column("tokens/s", "tokens_per_second", digits(1)),
        Column("speed-up", "decode_ratio", digits(2)),
        Column("whole call", "ratio", digits(2)),
    ],
    with_peers,
)
DECODING_TEXT = (
    "Tokens per second of decoding without the encoder; *whole call* includes the "
    "encoder. The baseline is transformers' `generate`."
)

PAGES: Mapping[str, Page] = {
    "encode": Page(
        "Encoders",
        "Before you select an encoder, look up here how long it takes to read a document.",
        f"Time and memory of `Model.encode` for base models and one document. {SPEED_TEXT} "
        "Weights are random; position tables of BART and BERT are enlarged if the length exceeds "
        "them. *published* and *published_plain* are LOCOST's published computation in PyTorch, "
        "with its fastest kernel and with the sum over all powers. The instruction sets of the "
        "processor were not recorded; for ratios on two known processors, see "
        "[speed by machine](peers.md).",
        [Table("", SPEED, with_peers)],
    ),
    "encoder_families": Page(
        "Encoders of recent families",
        "Read the row of your length: these encoders gain with long documents.",
        "Time and memory of `Model.encode` for T5Gemma 2, ModernBERT, MPNet and DeBERTaV3 of "
        f"base size and one document. {SPEED_TEXT}",
        [Table("", SPEED, with_peers)],
    ),
    "train_step": Page(
        "Training steps",
        "Look up the time of a step here before you plan a training run on a CPU.",
        f"One step with AdamW: forward, backward, update. {SPEED_TEXT}",
        [Table("", SPEED, with_peers)],
    ),
    "decode": Page(
        "Decoding",
        "Look up the cost of beams here before you set `num_beams`.",
        DECODING_TEXT,
        [DECODING],
    ),
    "decode_t5gemma2": Page(
        "Decoding with T5Gemma 2",
        "Select the number of beams by this table if your model has a large vocabulary.",
        f"{DECODING_TEXT} The models have 262,144 tokens in their vocabulary and random weights.",
        [DECODING],
    ),
    "drafts": Page(
        "Prompt-lookup decoding",
        "Divide accepted tokens by the relative time of a step "
        "before you set `prompt_lookup_num_tokens`.",
        "Greedy search with `prompt_lookup_num_tokens` returns the same ids in fewer but "
        "longer steps. The speed-up is the number of accepted tokens per step divided by the "
        "relative time of a step. The time of steps was measured with random weights and "
        "drafts that are almost always rejected. Accepted tokens were counted by generating "
        "given summaries of real documents: human references, and the best sentences "
        "according to the built-in ranker.",
        [
            Table(
                "Accepted tokens",
                [
                    Column("data set", "data"),
                    Column("summary", "written by"),
                    Column("drafted", "drafted"),
                    Column("documents", "documents", count),
                    Column("tokens per step", "tokens per step", digits(2)),
                ],
                where(study="kept"),
            ),
            Table(
                "Cost of a step",
                [
                    MODEL,
                    Column("document tokens", "tokens", count),
                    Column("drafted", "drafted"),
                    Column("steps/s", "steps/s", digits(1)),
                    Column("relative time", "times as long", digits(2)),
                ],
                where(study="steps"),
            ),
        ],
    ),
    "first_summary": Page(
        "Time to first summary",
        "Keep the cache of compiled programs between runs, because warm starts load them.",
        "Time of `longsum summarize` from the shell to the text, compared with a script for "
        "transformers under PyTorch: base models with random weights, a document of 3,000 "
        "words, truncated to the model's positions in both, 64 new tokens, greedy search. "
        "*Cold* compiles its programs, *warm* loads them from the disk cache of the previous "
        "run.",
        [
            Table(
                "Total time",
                [
                    MODEL,
                    Column("", "what"),
                    Column("s", "seconds", digits(1)),
                    Column("relative to transformers", "ratio", digits(2)),
                ],
                having("seconds"),
            ),
            Table(
                "Time by phase, in seconds",
                [
                    MODEL,
                    Column("", "what"),
                    Column("imports", "import", digits(1)),
                    Column("reading the model", "read", digits(1)),
                    Column("first summary", "first summary", digits(1)),
                    Column("second summary", "summary again", digits(1)),
                ],
                having("first summary"),
            ),
        ],
    ),
    "many_documents": Page(
        "Many documents",
        'Set `batch_size="auto"` for many documents of mixed lengths.',
        "Throughput for documents of mixed lengths, from a news article to a book: base "
        "models with random weights, greedy search, summaries of varied lengths, "
        '`Model.summarize` with `batch_size="auto"`. The baseline is transformers\' `generate` '
        "on batches of documents sorted by length, at its best batch size. *Warm* excludes "
        "compilation. *Equal* is the share of identical summaries.",
        [
            Table(
                "",
                [
                    MODEL,
                    Column("documents", "documents", count),
                    Column("tokens read per document", "our_tokens_per_document", digits(0)),
                    Column("tokens per summary", "our_tokens_per_summary", digits(0)),
                    Column("documents/s", "our_documents_per_second", digits(3)),
                    Column("compilation, s", "our_compile_seconds", digits(0)),
                    Column("baseline (PyTorch)", "by"),
                    Column("its batch size", "batch_size", count),
                    Column("documents/s", "documents_per_second", digits(3)),
                    Column("speed-up", "ratio", digits(2)),
                    Column("speed-up, warm", "warm_ratio", digits(2)),
                    Column("speed-up, CPU seconds", "cpu_ratio", digits(2)),
                    Column("equal", "equal", digits(2)),
                ],
                with_peers,
            )
        ],
    ),
    "peers": Page(
        "Speed vs. PyTorch, by machine",
        "Look up the model and the length that you use, because the "
        "speed-up depends on both and on the machine.",
        "Speed-up over transformers under PyTorch for base models, one document, float32: "
        "`Model.encode`, one step with AdamW, tokens per second of decoding. *Target* is the "
        "speed-up that each case should reach on every machine; empty cells were not "
        "measured. The figure shows the times of the machine with AVX-512 and the "
        "memory of [encoders](encode.md). LOCOST is compared with LongT5.",
        [
            Table(
                "",
                [Column("", "what"), MODEL, TOKENS, Column("target", "claimed", digits(1))],
                by_machine,
                machines,
            )
        ],
        speed_figure.draw,
    ),
    "input": Page(
        "Input pipeline",
        "Compare these rates with your training speed to see whether the input is the bottleneck.",
        "Documents per second on one core.",
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
    "segments": Page(
        "Segmentation",
        "Compare these rates with your training speed before you split documents during training.",
        "Documents per CPU second: splitting documents into segments and assigning their "
        "summaries to segments.",
        [
            Table(
                "",
                [
                    Column("stage", "part"),
                    Column("words per document", "words", count),
                    Column("documents", "documents", count),
                    Column("documents/s", "documents_per_second", digits(2)),
                ],
            )
        ],
    ),
}
