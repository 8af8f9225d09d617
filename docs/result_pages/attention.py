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
        "Compare the backends here before you change the length or the state size of a model.",
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
                "Relative error of kernels compared with float64",
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
        "State-space backends: FFT vs. matrix products",
        "Leave `ssm_backend` at `auto`, which selects the backend by this table.",
        "CPU seconds of both backends. *Ratio* is the FFT's time divided by the matrix "
        'products\' time: below 1 the FFT is faster. `ssm_backend="auto"` selects the backend '
        "by this table.",
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
        "Compare the time and memory of attentions here before you select one for long inputs.",
        "One layer of each encoder attention by length. *Slope* is the exponent of the growth "
        "of CPU time between the two longest inputs; *expected* follows from the complexity "
        "in Table 1 of the Hepos paper, plus the layer's projections.",
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
        "LSG vs. other attentions",
        "Compare the cost of LSG's sparse patterns here before you select one.",
        "One layer of each attention at one length. LSG settings are written as block size / "
        "sparsity factor and selection.",
        [Table("", [KIND, TOKENS, Column("keys per token", "keys"), *LAYER_TIMES])],
    ),
    "lsg_classifier": Page(
        "LSG classifiers vs. other attentions",
        "Compare accuracies here before you select an attention for a classifier.",
        "A training step of a whole RoBERTa for binary classification, with each attention, "
        "with and without attention dropout. Linear, efficient and Performer attention have "
        "no weights to drop.",
        [
            Table(
                "",
                [
                    KIND,
                    TOKENS,
                    Column("attention dropout", "attention_dropout", digits(1)),
                    Column("GiB in total", "gib", digits(2)),
                    Column("temporary GiB", "work_gib", digits(2)),
                    Column("s", "seconds", digits(2)),
                ],
            )
        ],
    ),
    "lsg_lengths": Page(
        "LSG by length",
        "Look up the cost of LSG for your document length here before you select it.",
        "Forward pass of one layer of each attention by length; compare how time and memory grow.",
        [Table("", [KIND, TOKENS, Column("keys per token", "keys"), *LAYER_TIMES[:2]])],
    ),
    "lsg_embeddings": Page(
        "Conversion to LSG: embeddings",
        "Check here which initialization of the longer position table to select for a conversion.",
        "A pretrained sentence encoder with 512 positions is converted without training. The "
        "table shows the cosine similarity of its mean state and the mean over chunks of 512 "
        "tokens read by the original. *Another document* is the chance level.",
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
        "Conversion to LSG: masked language model",
        "Check here how much a converted model loses before you "
        "decide whether to train it further.",
        "Bits per masked token of a masked language model that was trained at 512 tokens and "
        "then converted, without training and after a few training steps at the longer "
        "length. The model is MiniLM, a sentence encoder, with a new head that was trained "
        "for 120 steps on transcripts; each sparse key represents four tokens.\n\n"
        "**The order of the selections contradicts table 1 of the paper.** The paper converts "
        "RoBERTa base with its own head, untrained, and each sparse key represents two "
        "tokens: norm selection is the best of five, pooling and LSH are the worst. Here norm "
        "is the worst and pooling the best. No widely used model was measured here, so this "
        "table is no reason to change the published default. To measure your own model, with "
        "all rows of the paper, run `python studies/paper.py lsg_table_1 --model=DIR "
        "--documents=FILE`.",
        [
            Table(
                "",
                [
                    Column("variant", "variant"),
                    TOKENS,
                    Column("bits", "bits", digits(3)),
                    Column("accuracy", "accuracy", digits(3)),
                    Column("bits after training", "bits_fine_tuned", digits(3)),
                    Column("accuracy after training", "accuracy_fine_tuned", digits(3)),
                ],
            )
        ],
    ),
}
