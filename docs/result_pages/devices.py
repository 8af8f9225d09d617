"""Pages about memory, and about what programs take of devices that need not be there."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from longsum_jax.analysis.figures import lines_figure
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
    percent,
    pivot,
    significant,
    small,
    where,
    yes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gib_on(device: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per model, GiB on this device by length."""
    turn = pivot("model", "length", "gib")
    return lambda rows: turn(where(device=device)(rows))


def gib_of(program: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per model, GiB of this program by length."""
    turn = pivot("model", "length", "gib")
    return lambda rows: turn(where(program=program)(rows))


def gib_by_length(rows: list[Row]) -> "Figure":
    """Draws GiB by length on one H200, a line for every model."""
    points = where(device="h200")(rows)
    return lines_figure(points, x="length", y="gib", by="model", scale="log", size=(5.0, 3.2))


LENGTHS = [1024, 4096, 16384, 32768, 65536, 262144, 1048576, 4194304, 10485760]
PAGED_LENGTHS = [8192, 32768, 131072, 524288]
GIB_BY_LENGTH = [MODEL, *(Column(f"{n:,}", str(n), digits(1)) for n in LENGTHS)]
SMALL_GIB = [MODEL, *(Column(f"{n:,}", str(n), digits(2)) for n in LENGTHS)]
GIB_BY_DEVICE = [
    Table(heading, GIB_BY_LENGTH, gib_on(device))
    for device, heading in {
        "h200": "One NVIDIA H200, 141 GiB",
        "v5p": "One chip of TPU v5p, 95.7 GiB",
        "v5e": "One chip of TPU v5e, 15.75 GiB",
    }.items()
]
# What compiling showed, as it was at first, and as it is.
FOUND_BY_COMPILING = (
    (
        "loops of a pass of the base encoder on a TPU, one after another, over 4,096 "
        "and 1,048,576 tokens",
        "22,272 and 21.6 million",
        "120 and 1,440",
    ),
    (
        "launches of the FFT on a GPU over 4,096 tokens",
        "16 to 256 a layer",
        "1 a layer, 4 for 32 documents",
    ),
    (
        "a training step of 8 x 16,384 and 8 x 32,768 -> 1,024 tokens on an H200: the "
        "decoder's scores, the logits",
        "26.6 and 52.1 GB",
        "9.0 and 13.0 GB",
    ),
    (
        "float32 products",
        "TF32 on GPUs, bfloat16 passes on TPUs",
        "all digits on every device; `matmul_precision=default` has what was before",
    ),
    (
        "keys of the decoder are projected beforehand up to",
        "2 GiB on any device",
        "an eighth of the device",
    ),
    (
        "scores of windows, LED, LongT5, PEGASUS-X and LSG",
        "in memory",
        "in fused kernels, where no bias and no dropout needs them",
    ),
    (
        "LSG's selections on TPUs",
        "2 sorts and 2 scatters (lsh), 2 sorts and 3 gathers (norm)",
        "none of these",
    ),
    (
        "exchanges of gradients; kernels of state spaces",
        "once a micro-batch or segment",
        "once an update; kernels still once a micro-batch",
    ),
    (
        "gradient of the loss on TPUs",
        "a scatter over tokens x vocabulary",
        "a comparison",
    ),
    (
        "the decoder's cache of a search on 256 chips, `fsdp`",
        "of all documents on every chip, 5.2 GB",
        "of a chip's own, 0.36 GB",
    ),
    (
        "random bits of dropout on TPUs",
        "139 operations an entry (Threefry)",
        "11 (the chip's generator)",
    ),
    (
        "the longest input",
        "1,048,576 tokens",
        "16,777,216",
    ),
)
PLANNED = [
    Column("case", "case"),
    Column("devices", "devices_of", str),
    Column("program", "program"),
]
PLANNED_STATE = [
    Column("parameters", "parameters_gb", significant),
    Column("optimizer", "optimizer_gb", significant),
]
PLANNED_WORK = [
    Column("arguments", "arguments_gb", significant),
    Column("temporary", "temporary_gb", significant),
    Column("idle", "idle_gb", significant),
    Column("total", "total_gb", significant),
    Column("of", "device_gb", significant),
    Column("TFLOP", "tflop", significant),
    Column("GB moved", "moved_gb", significant),
    Column("GB sent", "sent_gb", significant),
    Column("collectives", "collectives"),
    Column("at least, ms", "least_ms", significant),
    Column("bound by", "bound"),
    Column("longest part", "longest_part"),
    Column("its share, %", "share", percent),
    Column("compiled in, s", "compile_seconds", significant),
]
TRIED = [
    Column("changes", "tried"),
    Column("total", "total_gb", significant),
    Column("fits", "fits", yes),
]

PAGES: Mapping[str, Page] = {
    "encode_memory": Page(
        "Memory of encoders",
        "GiB that a pass of the encoder holds, by tokens of the document: base models, one "
        "document, parameters included. From programs compiled for described devices; nothing was "
        "run. What a compiler refused is what it would have needed.",
        GIB_BY_DEVICE,
        gib_by_length,
    ),
    "train_step_memory": Page(
        "Memory of training steps",
        "GiB that a training step holds, by tokens of the document: base models, one document, "
        "AdamW and checkpointing, parameters included. From programs compiled for described "
        "devices; nothing was run. What a compiler refused is what it would have needed.\n\n"
        "This is how the configs train. The protocol of LOCOST's figure 4, without optimizer and "
        "checkpointing, has [a page of its own](locost_memory.md).",
        GIB_BY_DEVICE,
        gib_by_length,
    ),
    "train_step_pages_memory": Page(
        "Memory of training steps over pages",
        "GiB of temporary arrays in a training step of BART base, by tokens of the document: one "
        "document in pages of 1,024 tokens, a target of 1,024, AdamW and checkpointing, without "
        "parameters and optimizer. Encoded all at once (`bart_pages`) and one after another, "
        "again for the gradients (`bart_cached`: `model.page_recompute`, CachED). From compiled "
        "programs; nothing was run.",
        [
            Table(
                "",
                [MODEL, *(Column(f"{n:,}", str(n), digits(2)) for n in PAGED_LENGTHS)],
                pivot("model", "length", "work_gib"),
            )
        ],
    ),
    "locost_memory": Page(
        "LOCOST: memory by the paper's protocol",
        "GiB of the passes of figure 4 and table 3 of the paper, by tokens of the document: base "
        "models, one document, a target of 1,024 tokens, no dropout, bfloat16, parameters "
        "included. Training is a forward and a backward pass, without optimizer and "
        "checkpointing, with float32 parameters and gradients; inference is a forward pass of "
        "encoder and decoder up to the logits. From programs compiled for an H200; nothing was "
        "run.\n\n"
        "The paper measures PyTorch programs, which keep the scores of attention for the backward "
        "pass. Here attention goes in pieces that are computed again, with every model, so the "
        "transformers need much less than there, and the layers decide: LED and BART have six in "
        "each stack, LongT5 and LOCOST twelve. T5, which the figure also has, was not compiled. "
        "Training in practice, with AdamW and "
        "checkpointing, has [another page](train_step_memory.md).",
        [
            Table("Training: forward and backward pass", SMALL_GIB, gib_of("gradient")),
            Table("Inference: forward pass", SMALL_GIB, gib_of("forward")),
        ],
    ),
    "train_step_batch_memory": Page(
        "Memory of training steps over eight documents",
        "GiB that a training step of base models holds on one NVIDIA H200, eight documents and "
        "targets of 1,024 tokens, AdamW and checkpointing, parameters included. From compiled "
        "programs; nothing was run. The paper has LOCOST at half of LongT5's: here parameters, "
        "optimizer, decoder and loss are the same in both, and LongT5's scores, too, go through "
        "in pieces.",
        [
            Table(
                "",
                [MODEL, Column("16,384", "16384", digits(1)), Column("32,768", "32768", digits(1))],
                pivot("model", "length", "gib"),
            )
        ],
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
    "accelerator": Page(
        "On a GPU",
        "What `benchmarks/accelerator.py` found on a GPU. The losses of eight families' tiny "
        "models and the norms of their gradients are beside the same program on the machine's CPU, "
        "in float32 "
        "at full precision; kernels of attention, values and gradients in bfloat16, beside the "
        "reference in float32 on the CPU, the error being that of the largest entry. Everything "
        "holds, the kernels to what bfloat16 can tell; rows of families in bfloat16 say that both "
        "are finite.\n\n"
        "One measurement was made alone on the card, training steps of LongT5 base, one document "
        "a step, both libraries in bfloat16, with the same loss; others were not finished, so "
        "nothing is said of other models, of decoding and of longer documents, and nothing of "
        "TPUs, for which programs have been [compiled](plans.md) and never run.\n\n"
        "What the compiled program of a step says it needs is what the card held at most while "
        "[six models](reading_start_study.md) were trained, but for batches that wait and the "
        "model that was read at the start; and so is what `longsum plan` said of three configs on "
        "a machine without a GPU. So memory of programs that are compiled and not run can be "
        "believed, to a ninth; these two tables are of the trainings' metrics.jsonl, not of the "
        "script.",
        [
            Table(
                "What is computed",
                [
                    Column("check", "check"),
                    Column("relative difference", "error", small),
                    Column("holds", "holds", yes),
                ],
                having("check"),
            ),
            Table(
                "Training steps",
                [
                    Column("model", "model"),
                    Column("tokens of a document", "length", count),
                    Column("by", "by"),
                    Column("s", "seconds", digits(4)),
                    Column("tokens/s, summaries counted", "tokens_per_second", digits(0)),
                    Column("times ours", "ratio", digits(1)),
                    Column("GiB", "gib", digits(1)),
                    Column("difference of losses", "difference", small),
                ],
                having("case"),
            ),
            Table(
                "Memory in training, 6.4 million parameters, 16 documents of 1,024 tokens",
                [
                    Column("model", "trained"),
                    Column("by the compiled step, GiB", "compiled_gib", digits(2)),
                    Column("held at most, GiB", "held_gib", digits(2)),
                    Column("share, %", "share", percent),
                ],
                having("trained"),
            ),
            Table(
                "What longsum plan --device=h200 said without a card, and what the card held",
                [
                    Column("config", "config"),
                    Column("planned, GB", "planned_gb", digits(2)),
                    Column("held at most, GB", "peak_gb", digits(2)),
                    Column("share, %", "share", percent),
                ],
                having("planned_gb"),
            ),
        ],
    ),
    "plans": Page(
        "Plans for TPUs and GPUs",
        "Compiled by `longsum plan` for described devices, and **never run**: memory, collectives "
        "and compile times are those of XLA's programs, times are rooflines, which no run can "
        "beat and real runs will miss. GB (10^9 bytes) on each device; *at least* is the slowest "
        "of products, memory and links at the vendor's peaks. Compile times are those of two busy "
        "cores. *Idle* is what a device holds and the program does not use. `c4` is "
        "`configs/locost_c4.py`, 234.7M parameters, 256 documents of "
        "4,096 tokens a step, `c4_tiny` its mode of seconds; summaries are those of the base "
        "model, float32 weights, computed in bfloat16, at most 512 tokens by greedy search. "
        "The commands are in `benchmarks/plans.py`; how to read a plan is in the "
        "[guide](../guide/plan.md).\n\n"
        "What compiling showed before anything ran on a device, and what became of it:\n\n"
        "| what | at first | now |\n|---|---|---|\n"
        + "\n".join(f"| {' | '.join(row)} |" for row in FOUND_BY_COMPILING),
        [
            Table(
                "Training and its evaluations",
                [
                    *PLANNED,
                    *PLANNED_STATE,
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
                    *TRIED,
                ],
                having("tried"),
            ),
        ],
    ),
    "config_plans": Page(
        "Plans of shipped configs",
        "One update of every shipped config on one NVIDIA H200, compiled by `longsum plan` and "
        "**never run**: what it reads (documents, in how many micro-batches, and tokens of one at "
        "most; of configs/awesome.py tokens of a segment), GB it takes, and the roofline. The "
        "other data sets of configs/lsg_classify.py differ from imdb by the classes of the "
        "last map only, and `long_baselines:cached` and `prefer` have no plan yet. Where *idle* is "
        "empty, it was not counted. Models in float32 "
        "multiply with all digits, which takes longer than TF32 (`model.matmul_precision`). How to "
        "read a plan is in the [guide](../guide/plan.md).",
        [
            Table(
                "",
                [
                    PLANNED[0],
                    Column("documents", "documents", count),
                    Column("micro-batches", "accumulation", count),
                    Column("tokens", "tokens", count),
                    *PLANNED_STATE,
                    *PLANNED_WORK,
                    Column("fits", "fits", yes),
                ],
                having("arguments_gb"),
            ),
            Table(
                "What makes a step fit, found by trying",
                [
                    PLANNED[0],
                    *TRIED,
                ],
                having("tried"),
            ),
            Table("Not planned", [PLANNED[0], Column("why", "note")], having("note")),
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
    "hepos_lengths": Page(
        "Hepos: the longest sources in training",
        "The rows of table 4 of the paper, encoder/cross-attention: BART large, two documents a "
        "step, targets of 1,024 tokens, AdamW, float32, no gradient checkpointing, within 48 GB of "
        "an A100, compiled for it without one. The paper's longest sources are between 3,072 "
        "(Linformer) and 10,240 tokens (Sinkhorn with Hepos). Here attention goes in pieces, so "
        "that no scores of the whole source are ever held; what is left to a cross-attention is "
        "little, and the states of the layers decide. Rows with LSH, which sorts its tokens in "
        "four rounds, are the shortest.",
        [Table("", [Column("encoder/cross", "model"), Column("longest source", "tokens", count)])],
    ),
    "awesome_lengths": Page(
        "AWESOME: the longest documents in training",
        "The models of table 14 of the paper: BART large and models of its width and depth, and "
        "LongT5 with sliding windows in the sizes of its base checkpoint, one document a step, "
        "AdamW, float32, within 27 GB of an A100, compiled for it without one. "
        "Models that read segment by segment take the same memory whatever the length: their rows "
        "fit even at the longest that was tried. Their segments are padded to 1,024 tokens, so "
        "`se3` and `attentive` are also the paper's Txt and Attn+Txt. Other models read longer "
        "documents than in the paper, because attention goes in pieces that are computed again in "
        "the backward pass, so no scores of a whole document are held. Extract-Abstract, which "
        "reads 1,024 tokens of any document, has no row.",
        [
            Table(
                "",
                [
                    MODEL,
                    Column("longest document", "tokens", count),
                    Column("fits at the longest tried", "at_end", yes),
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
}
