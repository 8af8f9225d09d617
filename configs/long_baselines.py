"""Baselines of AWESOME, and CachED: other ways to read long documents with a summarizer of BART's
size.

    python -m longsum_jax.train \
        --config=configs/long_baselines.py:unlimiformer,data='reports/{split}.jsonl' \
        --workdir=runs/unlimiformer --config.init_from=bart-large
    python -m longsum_jax.train --config=configs/long_baselines.py:longt5,data_set=arxiv \
        --workdir=runs/longt5 --config.init_from=long-t5-local-base
    python -m longsum_jax.train --config=configs/long_baselines.py:cached,data_set=booksum \
        --workdir=runs/cached --config.init_from=bart-large

unlimiformer     BART reads pages of 1,024 tokens that overlap by half; every head reads the 1,024
                 states of the whole document with the largest scores, found exactly (Bertsch et al.
                 2023)
pagesum          BART reads and decodes pages of 1,024 tokens each by itself; outputs are averaged
                 by learned weights (Liu et al. 2022)
block_attention  BART with blocks and global tokens (PEGASUS-X, Phang et al. 2022); start from
                 `longsum convert bart-large DST --max_source_length=6144` (8,192 for qmsum)
led              Longformer's encoder-decoder (Beltagy et al. 2020)
longt5           LongT5 with sliding windows (Guo et al. 2022), as in appendix D of AWESOME; the
                 size is not published, `base` is the choice here
cached           BART encodes whole documents in pages of 1,024 tokens that do not overlap, and the
                 decoder reads all of their states; gradients encode each page again (CachED, Saxena
                 et al. 2025, not a baseline of AWESOME)

data_set= govreport, qmsum, summscreen (TMS), arxiv, booksum, from the sources of
configs/awesome.py, or json: files of your own at `data`, with GovReport's lengths and passes. The
table below has the thousands of tokens read in training (AWESOME, table 14), a thousand being
1,024; models that read page by page can read more after training. The paper has pagesum on three
data sets; on the others, GovReport's length is used here.

                 govreport  arxiv  qmsum  summscreen  booksum
unlimiformer             2      2      2           2        2
pagesum                  3      5      2           -        -
block_attention          6      6      8           6        6
led                      8      8      8           8        8
longt5                   6      6      6           6        6
cached                  64     64     64          64      512

Learning rates (5e-5, LongT5 1e-4), passes, warm-up and batches of 8 are published; the optimizer
and the generation options are the choices of configs/awesome.py. CachED differs, as in its
published code: Adam without weight decay, gradients clipped at norm 1, no label smoothing, one
document at a time, for QMSum a constant learning rate without warm-up. In that code, learning rate,
passes and batch size are arguments without values; here they are AWESOME's. The lengths of `cached`
are our choice, intended to cover whole documents. `tiny` is a small Unlimiformer that trains in
seconds on a CPU.
"""

from longsum_jax.configs.awesome import task_of, train_as_published
from longsum_jax.configs.common import base, buckets, shrink

ARGUMENTS = ("data_set", "data")
MODES = ("unlimiformer", "pagesum", "block_attention", "led", "longt5", "cached", "tiny")
# Mode -> family, options of the model.
BASELINES = {
    "unlimiformer": (
        "bart",
        {
            "page_length": 1024,
            "page_context": 256,
            "cross_attention": "nearest",
            "cross_nearest": 1024,
        },
    ),
    "pagesum": ("bart", {"page_length": 1024, "page_decoding": True}),
    "block_attention": ("bart", {"encoder_attention": "block_staggered", "block_size": 512}),
    "led": ("led", {}),
    "longt5": ("longt5", {"encoder_attention": "local"}),
    "cached": ("bart", {"page_length": 1024, "page_recompute": True}),
}
# Mode -> thousands of tokens read in training: for most data sets, and for those that differ.
THOUSANDS = {
    "unlimiformer": (2, {}),
    "pagesum": (3, {"qmsum": 2, "arxiv": 5}),
    "block_attention": (6, {"qmsum": 8}),
    "led": (8, {}),
    "longt5": (6, {}),
    "cached": (64, {"booksum": 512}),
}


def get_config(mode="unlimiformer", data_set="json", data="data/{split}.jsonl"):
    baseline = "unlimiformer" if mode == "tiny" else mode
    family, options = BASELINES[baseline]
    usual, others = THOUSANDS[baseline]
    length = 1024 * others.get(data_set, usual)
    if mode == "block_attention":
        options = options | {"max_position_embeddings": length}
    config = base(
        family,
        "base" if family == "longt5" else "large",
        task_of(data_set, data, {"max_source_length": length, "max_target_length": 1024}),
        dtype="bfloat16",
        remat=True,
        **options,
    )
    train_as_published(config, data_set, 1e-4 if family == "longt5" else 5e-5)
    if mode == "cached":
        config.data.source_lengths = buckets(length)
        config.optimizer.update(weight_decay=0.0, clip_norm=1.0)
        config.loss.label_smoothing = 0.0
        if data_set == "qmsum":
            config.optimizer.update(schedule="constant", warmup_steps=0)
    if mode != "tiny":
        return config
    config = shrink(config)
    config.model.update(options, page_length=64, page_context=16, cross_nearest=16)
    return config
