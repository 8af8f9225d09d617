"""Fine-tuning of a pre-trained LOCOST on a summarization data set (Le Bronnec et al., EACL 2024,
section 5.3).

    python -m longsum_jax.train --config=configs/locost_finetune.py:govreport \
        --workdir=runs/govreport --config.init_from=locost-base

Published configuration: constant learning rate 5e-4, AdamW without weight decay, gradient norm
clipped at 1, dropout 0.1, batches of 128, 60 epochs (100 for whole books) with an evaluation after
each, best checkpoint by the mean of ROUGE-1, -2 and -Lsum. Sources have up to 4,096 tokens for
arXiv and PubMed, 8,192 for chapters, 16,384 for GovReport and SummScreenFD, 1,024 to 32,768 for
whole books; targets up to 1,024 for GovReport and whole books, 512 elsewhere. Other data sets, and
your own, have sources of up to 4,096 tokens.

One mode per data set, and `json` for files of your own
(config.task.source='json:reports/{split}.jsonl'). A mode names its TensorFlow Datasets builder;
GovReport and QMSum are read from SCROLLS. config.task.source replaces it. `length=8192` sets
another maximum source length, which also determines the buckets and the number of documents per
micro-batch. `booksum_book` trains on this many tokens of a book and is evaluated on all of it
(figure 5: length=1024, 2048, and so on to 32768). Training stops after `steps` or `epochs`,
whichever comes first. `tiny` runs in seconds on a CPU.
"""

from longsum_jax.configs.common import base, buckets, shrink, task_section

from longsum_jax.errors import InputError

ARGUMENTS = ("length",)
# Mode -> tokens of the longest source.
LENGTHS = {
    "govreport": 16384,
    "arxiv": 4096,
    "pubmed": 4096,
    "summscreenfd": 16384,
    "booksum_chapter": 8192,
    "booksum_book": 32768,
    "qmsum": 4096,
    "multinews": 4096,
    "mediasum": 4096,
    "bigpatent": 4096,
}
LENGTHS |= {"json": 4096, "tiny": 4096}
MODES = tuple(LENGTHS)
BATCH = 128
SCROLLS = ("govreport", "qmsum")  # modes whose data set is the version in SCROLLS
TOKENS_AT_ONCE = 32768  # of the sources that go through together


def get_config(mode=MODES[0], length=""):
    config = base(
        "locost",
        "base",
        task_section(task_name(mode)),
        dropout_rate=0.1,
        dtype="bfloat16",
        remat=True,
    )
    if mode == "json":
        config.task.source = "json:data/{split}.jsonl"
    set_published_recipe(config)
    if config.task.name in ("govreport_scrolls", "booksum_book"):
        config.evaluation.max_new_tokens = 1024
    set_source_length(config, length or LENGTHS[mode])
    if mode == "booksum_book":
        config.data.epochs = 100
        config.evaluation.update(max_source_length=0, batch_size=1)
    return shrink(config) if mode == "tiny" else config


def task_name(mode):
    """Returns the name of the task of a mode, for files of your own GovReport's."""
    data_set = "govreport" if mode in ("json", "tiny") else mode
    return f"{data_set}_scrolls" if data_set in SCROLLS else data_set


def set_published_recipe(config):
    """Sets batches, optimizer and length of training as published."""
    config.data.update(reader="memory", shuffle="all", batch_size=BATCH, epochs=60)
    config.optimizer.update(name="adamw", learning_rate=5e-4, schedule="constant", clip_norm=1.0)
    config.training.update(steps=1_000_000, log_every=10, eval_every="epoch", checkpoint_every=500)
    config.evaluation.update(examples=500, batch_size=16, max_new_tokens=512)


def set_source_length(config, length):
    """Sets the longest source, its buckets, and how many documents go through together.

    Args:
        length: in tokens, a number or text.

    Raises:
        InputError: no number of tokens.
    """
    if not str(length).isdecimal() or int(length) < 2:
        raise InputError(f"length is {length}; give a number of tokens, 4096 for example")
    length = int(length)
    rows = max(1, min(TOKENS_AT_ONCE // length, BATCH))
    while BATCH % rows:
        rows -= 1
    config.task.max_source_length = length
    config.data.source_lengths = buckets(length)
    config.training.accumulation = BATCH // rows
