"""Pages about memory, and about programs compiled ahead of time."""

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
# Problems found by compiling ahead of time: item, before, now.
FOUND_BY_COMPILING = (
    (
        "sequential loop iterations of a base encoder pass on a TPU, over 4,096 "
        "and 1,048,576 tokens",
        "22,272 and 21.6 million",
        "120 and 1,440",
    ),
    (
        "FFT launches on a GPU over 4,096 tokens",
        "16 to 256 per layer",
        "1 per layer, 4 for 32 documents",
    ),
    (
        "a training step of 8 x 16,384 and 8 x 32,768 -> 1,024 tokens on an H200: the "
        "decoder's scores, the logits",
        "26.6 and 52.1 GB",
        "9.0 and 13.0 GB",
    ),
    (
        "float32 matmuls",
        "TF32 on GPUs, bfloat16 passes on TPUs",
        "`highest` precision on every device; `matmul_precision=default` restores the previous one",
    ),
    (
        "the decoder's keys are precomputed up to",
        "2 GiB on any device",
        "an eighth of the device's memory",
    ),
    (
        "attention scores of windows, LED, LongT5, PEGASUS-X and LSG",
        "in memory",
        "in fused kernels, unless a bias or dropout needs them",
    ),
    (
        "LSG's selections on TPUs",
        "2 sorts and 2 scatters (lsh), 2 sorts and 3 gathers (norm)",
        "none of these",
    ),
    (
        "gradient communication; state-space kernels",
        "once per micro-batch or segment",
        "once per update; kernels still once per micro-batch",
    ),
    (
        "gradient of the loss on TPUs",
        "a scatter over tokens x vocabulary",
        "a comparison",
    ),
    (
        "the decoder's cache in a search on 256 chips, `fsdp`",
        "for all documents on every chip, 5.2 GB",
        "for the chip's own documents, 0.36 GB",
    ),
    (
        "random bits of dropout on TPUs",
        "139 operations per entry (Threefry)",
        "11 (the chip's generator)",
    ),
    (
        "the maximum input length",
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
    Column("device memory", "device_gb", significant),
    Column("TFLOP", "tflop", significant),
    Column("GB moved", "moved_gb", significant),
    Column("GB sent", "sent_gb", significant),
    Column("collectives", "collectives"),
    Column("at least, ms", "least_ms", significant),
    Column("bottleneck", "bound"),
    Column("longest part", "longest_part"),
    Column("share of longest part, %", "share", percent),
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
        "Look up whether your document fits on your device before you select an encoder.",
        "GiB of memory for a pass of the encoder by document length in tokens: base models, "
        "one document, parameters included. From programs compiled ahead of time; nothing was "
        "run. If the compiler reports that a program does not fit, the table shows the memory "
        "that it requires.",
        GIB_BY_DEVICE,
        gib_by_length,
    ),
    "train_step_memory": Page(
        "Memory of training steps",
        "Look up whether your documents fit on your device before you start a training run.",
        "GiB of memory for a training step by document length in tokens: base models, one "
        "document, AdamW and checkpointing, parameters included. From programs compiled ahead "
        "of time; nothing was run. If the compiler reports that a program does not fit, the "
        "table shows the memory that it requires.\n\n"
        "These are the settings of the configs. For the protocol of LOCOST's figure 4, "
        "without optimizer and checkpointing, see [memory by the paper's "
        "protocol](locost_memory.md).",
        GIB_BY_DEVICE,
        gib_by_length,
    ),
    "train_step_pages_memory": Page(
        "Memory of training steps over pages",
        "Set `model.page_recompute` if training over pages does not fit on your device.",
        "GiB of temporary arrays in a training step of BART base by document length in "
        "tokens: one document in pages of 1,024 tokens, a target of 1,024, AdamW and "
        "checkpointing, without parameters and optimizer. The pages are encoded all at once "
        "(`bart_pages`) or one after another and again for the gradients (`bart_cached`: "
        "`model.page_recompute`, CachED). From compiled programs; nothing was run.",
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
        "Use this page to compare memory with the LOCOST paper, not to plan a run.",
        "GiB of memory for the passes of figure 4 and table 3 of the paper by document length "
        "in tokens: base models, one document, a target of 1,024 tokens, no dropout, "
        "bfloat16, parameters included. Training is a forward and a backward pass, without "
        "optimizer and checkpointing, with float32 parameters and gradients; inference is a "
        "forward pass of encoder and decoder up to the logits. From programs compiled for an "
        "H200; nothing was run.\n\n"
        "The paper measures PyTorch programs, which store attention scores for the backward "
        "pass. Here, attention is computed in pieces that are recomputed, for every model. "
        "Therefore the transformers need much less memory than in the paper, and the number "
        "of layers dominates: LED and BART have six in each stack, LongT5 and LOCOST twelve. "
        "T5, which is also in the figure, was not compiled. For practical training with AdamW "
        "and checkpointing, see [training steps](train_step_memory.md).",
        [
            Table("Training: forward and backward pass", SMALL_GIB, gib_of("gradient")),
            Table("Inference: forward pass", SMALL_GIB, gib_of("forward")),
        ],
    ),
    "train_step_batch_memory": Page(
        "Memory of training steps over eight documents",
        "Use this page to compare memory for batches with the LOCOST paper.",
        "GiB of memory for a training step of base models on one NVIDIA H200: eight "
        "documents, targets of 1,024 tokens, AdamW and checkpointing, parameters included. "
        "From compiled programs; nothing was run. In the paper, LOCOST needs half of LongT5's "
        "memory. Here the difference is smaller, because parameters, optimizer, decoder and "
        "loss are the same in both, and LongT5's scores are also computed in pieces.",
        [
            Table(
                "",
                [MODEL, Column("16,384", "16384", digits(1)), Column("32,768", "32768", digits(1))],
                pivot("model", "length", "gib"),
            )
        ],
    ),
    "million_tokens": Page(
        "A forward pass over a million tokens",
        "Plan memory by the column of total gigabytes before you read a million tokens.",
        "Gigabytes of arguments, results and temporary arrays of compiled programs, and of a "
        "run. Programs compiled on a CPU contain float32 copies of bfloat16 arrays, so they "
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
    "checkpoints": Page(
        "Checkpoints",
        "Choose checkpoint_every so that it takes longer than writing a checkpoint.",
        "Saving and restoring the state of the base LOCOST with Adafactor, parameters in "
        "float32. Checkpoints are written asynchronously, while this machine continues with "
        "steps that change every parameter and use the same two cores. The first steps after a "
        "save take long, probably because arrays on CPUs are written from their own memory, which "
        "a step may not reuse until then. Accelerators were not measured. Restoring includes "
        "verification of the checksums. Two processes restore half of every sharded parameter "
        "each.\n\n"
        "For a large model, bytes follow from the shardings of the state (preset fsdp, eight "
        "devices per host); no arrays were made.",
        [
            Table(
                "Saving",
                [
                    Column("parameters", "parameters", count),
                    Column("state GiB", "state_gib", digits(2)),
                    Column("a step waits, s", "wait_seconds", digits(2)),
                    Column("written after, s", "seconds", digits(1)),
                    Column("s per step", "step_seconds", digits(2)),
                    Column("while writing", "step_seconds_during", digits(2)),
                    Column("longest while writing", "longest_step_during", digits(2)),
                    Column("peak GiB of the process", "peak_gib", digits(2)),
                ],
                where(part="write"),
            ),
            Table(
                "Restoring",
                [
                    Column("process", "part"),
                    Column("its part of the state, GiB", "state_gib", digits(2)),
                    Column("s", "seconds", digits(1)),
                    Column("peak GiB of the process", "peak_gib", digits(2)),
                    Column("before restoring", "gib_before", digits(2)),
                ],
                lambda rows: [row for row in rows if row["part"].startswith("read")],
            ),
            Table(
                "T5Gemma 9B-2B with AdamW, on abstract shapes",
                [
                    Column("hosts", "hosts"),
                    Column("devices", "devices"),
                    Column("parameters", "parameters", count),
                    Column("whole state, GiB", "whole_gib", digits(1)),
                    Column("at most on one host, GiB", "state_gib", digits(1)),
                ],
                where(part="hosts"),
            ),
        ],
    ),
    "accelerator": Page(
        "Results on a GPU",
        "Run the same script on your GPU if its results matter to you.",
        "Results of `benchmarks/accelerator.py` on a GPU. The losses and gradient norms of "
        "eight families' tiny models are compared with the same program on the machine's CPU, "
        "in float32 at full precision. Attention kernels, values and gradients in bfloat16, "
        "are compared with the float32 reference on the CPU; the error is relative to the "
        "largest entry. All checks pass, for the kernels within bfloat16 precision; for "
        "families in bfloat16, the check is that loss and gradients are finite.\n\n"
        "Only one timing is available from an otherwise idle GPU: training steps of LongT5 "
        "base with one document per step, both libraries in bfloat16, with the same loss. "
        "There are no results for other models, decoding and longer documents, and none for "
        "TPUs, for which programs have only been [compiled](plans.md).\n\n"
        "Predicted memory was compared with the peak memory of the GPU in two ways: the "
        "memory of the compiled step for [six models](reading_start_study.md) in training, "
        "and `longsum plan` for three configs on a machine without a GPU. The predictions are "
        "accurate to a ninth; the difference is waiting batches and the model read at the "
        "start. These two tables are taken from the trainings' metrics.jsonl, not from the "
        "script.",
        [
            Table(
                "Correctness",
                [
                    Column("check", "check"),
                    Column("relative difference", "error", small),
                    Column("passed", "holds", yes),
                ],
                having("check"),
            ),
            Table(
                "Training steps",
                [
                    Column("model", "model"),
                    Column("document tokens", "length", count),
                    Column("by", "by"),
                    Column("s", "seconds", digits(4)),
                    Column("tokens/s, summaries included", "tokens_per_second", digits(0)),
                    Column("relative to ours", "ratio", digits(1)),
                    Column("GiB", "gib", digits(1)),
                    Column("loss difference", "difference", small),
                ],
                having("case"),
            ),
            Table(
                "Memory in training, 6.4 million parameters, 16 documents of 1,024 tokens",
                [
                    Column("model", "trained"),
                    Column("compiled step, GiB", "compiled_gib", digits(2)),
                    Column("peak, GiB", "held_gib", digits(2)),
                    Column("share, %", "share", percent),
                ],
                having("trained"),
            ),
            Table(
                "Memory predicted by longsum plan --device=h200 without a GPU, and measured",
                [
                    Column("config", "config"),
                    Column("planned, GB", "planned_gb", digits(2)),
                    Column("peak, GB", "peak_gb", digits(2)),
                    Column("share, %", "share", percent),
                ],
                having("planned_gb"),
            ),
        ],
    ),
    "plans": Page(
        "Plans for TPUs and GPUs",
        "Run `longsum plan` for your own config before you rent a device.",
        "Compiled by `longsum plan` for described devices and **not run**: memory, collectives "
        "and compile times are properties of XLA's programs; times are rooflines, a lower bound "
        "for real runs. GB (10^9 bytes) per device; *at least* is the slowest of matrix products, "
        "memory and interconnect at the vendor's peak rates. Compile times are from two busy "
        "cores. *Idle* is memory on the device that the program does not use. `c4` is "
        "`configs/locost_c4.py`, 234.7M parameters, 256 documents of 4,096 tokens per step, "
        "`c4_tiny` its `tiny` mode; summaries use the base model, or a published size of T5Gemma, "
        "with float32 weights, bfloat16 computation, at most 512 tokens by greedy search. The "
        "commands are in "
        "`benchmarks/plans.py`; for how to read a plan, see the [guide](../guide/plan.md).\n\n"
        "Problems found by compiling ahead of time, and their fixes:\n\n"
        "| item | before | now |\n|---|---|---|\n"
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
                    Column("batch size", "batch_size", count),
                    Column("tokens", "tokens", count),
                ],
                having("tokens"),
            ),
            Table(
                "Changes that make a step fit",
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
        "Look up the memory of a shipped config before you start it.",
        "One update of every shipped config on one NVIDIA H200, compiled by `longsum plan` "
        "and **not run**: its input (documents, micro-batches, and maximum tokens of a "
        "document, for configs/awesome.py of a segment), memory in GB, and the roofline. The "
        "other data sets of configs/lsg_classify.py differ from imdb only in the number of "
        "classes; `long_baselines:cached` and `prefer` have no plan yet. An empty *idle* was "
        "not computed. Models in float32 use `highest` matmul precision, which takes longer "
        "than TF32 (`model.matmul_precision`). For how to read a plan, see the "
        "[guide](../guide/plan.md).",
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
                "Changes that make a step fit",
                [
                    PLANNED[0],
                    *TRIED,
                ],
                having("tried"),
            ),
            Table("Not planned", [PLANNED[0], Column("reason", "note")], having("note")),
        ],
    ),
    "fit_length": Page(
        "Training memory by document length",
        "Look up the longest document that fits before you set `max_source_length`.",
        "GiB of memory for a training step, from compiled programs. Models that read segment "
        "by segment need the same memory for every length.",
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
        "Hepos: maximum source length in training",
        "Look up the longest source that fits before you select a Hepos stride.",
        "The rows of table 4 of the paper, encoder/cross-attention: BART large, two documents "
        "per step, targets of 1,024 tokens, AdamW, float32, no gradient checkpointing, within "
        "48 GB of an A100, compiled ahead of time. The paper's maximum lengths are between "
        "3,072 (Linformer) and 10,240 tokens (Sinkhorn with Hepos). Here attention is "
        "computed in pieces, so scores of the whole source are never stored; the "
        "cross-attention contributes little, and the states of the layers dominate. LSH, "
        "which sorts its tokens in four rounds, has the shortest sources.",
        [
            Table(
                "",
                [
                    Column("encoder/cross", "model"),
                    Column("maximum source length", "tokens", count),
                ],
            )
        ],
    ),
    "awesome_lengths": Page(
        "AWESOME: maximum document length in training",
        "Look up the longest document that fits before you select a memory.",
        "The models of table 14 of the paper: BART large and models of its width and depth, "
        "and LongT5 with sliding windows in the sizes of its base checkpoint, one document "
        "per step, AdamW, float32, within 27 GB of an A100, compiled ahead of time. Models "
        "that read segment by segment take the same memory at every length: they fit even at "
        "the longest length that was tried. Their segments are padded to 1,024 tokens, so "
        "`se3` and `attentive` also represent the paper's Txt and Attn+Txt. Other models read "
        "longer documents than in the paper, because attention is computed in pieces that are "
        "recomputed in the backward pass, so scores of a whole document are never stored. "
        "Extract-Abstract, which reads 1,024 tokens of any document, has no row.",
        [
            Table(
                "",
                [
                    MODEL,
                    Column("maximum document length", "tokens", count),
                    Column("fits at the longest length tried", "at_end", yes),
                ],
            )
        ],
    ),
    "hepos": Page(
        "Hepos: memory of decoding",
        "Compare the memory of cross-attentions here before you decode long sources.",
        "Gigabytes of memory for the decoder of the base LOCOST, by source length and stride. "
        "*Stored* is the content of the cache: keys and values, or encoder states.",
        [
            Table(
                "",
                [
                    TOKENS,
                    Column("stride", "stride"),
                    Column("stored", "kept"),
                    Column("cache GB", "cache_gb", digits(2)),
                    Column("temporary GB, fill", "fill_temp_gb", digits(2)),
                    Column("temporary GB, step", "step_temp_gb", digits(2)),
                ],
            )
        ],
    ),
}
