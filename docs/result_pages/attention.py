"""Pages about the operations of encoders: state spaces, attentions, converted models."""

from collections.abc import Mapping

from result_pages.tables import TOKENS, Column, Page, Table, count, digits, small, where

LAYER_TIMES = [
    Column("forward, s", "forward_seconds", digits(3)),
    Column("MiB", "forward_mib", digits(0)),
    Column("training, s", "training_seconds", digits(3)),
    Column("MiB", "training_mib", digits(0)),
]
KIND = Column("attention", "kind")

PAGES: Mapping[str, Page] = {
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
        "converted, and after a few training steps at the longer length. The model is MiniLM, a "
        "sentence encoder, with a new head that was trained for 120 steps on transcripts; sparse "
        "keys stand for four tokens.\n\n"
        "**The order of the selections contradicts table 1 of the paper.** The paper converts "
        "RoBERTa base with its own head, untrained, and sparse keys stand for two tokens: norm "
        "selection is the best of five, pooling and LSH are the last. Here norm is the last and "
        "pooling the first. No model that people use was measured here, so this table is no "
        "reason to change the published default. `python benchmarks/paper.py lsg_table_1 "
        "--model=DIR --documents=FILE` measures a model of your own, all rows of the paper "
        "included.",
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
}
