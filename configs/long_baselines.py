"""Baselines of AWESOME: other ways for a summariser of BART's size to read long documents.

    python -m longsum_jax.train \
        --config=configs/long_baselines.py:unlimiformer,data='reports/{split}.jsonl' \
        --workdir=runs/unlimiformer --config.init_from=bart-large

unlimiformer     BART reads pages of 1,024 tokens with a quarter of context on both sides; every
                 head reads the 1,024 states of the whole document with the largest scores, found
                 exactly (Bertsch et al. 2023)
pagesum          BART reads and decodes pages of 1,024 tokens each by itself; outputs are averaged
                 by learned weights (Liu et al. 2022)
block_attention  BART with blocks and global tokens (PEGASUS-X, Phang et al. 2022); start from
                 `longsum convert bart-large DST --max_source_length=6144`
led, longt5      Longformer's and LongT5's own models (Beltagy et al. 2020, Guo et al. 2022)

Lengths are AWESOME's for GovReport: 2,048 tokens in training for unlimiformer, 3,072 for pagesum,
6,144 for block_attention and longt5, 8,192 for led; reading is not limited to them where a page is
read at a time. Learning rates (5e-5, LongT5 1e-4), batches of 8 and the optimiser are those of
configs/awesome.py, a run's length is training.steps. `data` are JSON lines of your own. `tiny` runs
in seconds on a CPU.
"""

from longsum_jax.configs.common import base, own_data, shrink

ARGUMENTS = ("data",)
MODES = ("unlimiformer", "pagesum", "block_attention", "led", "longt5", "tiny")
# Mode -> family, tokens read in training, options of the model.
BASELINES = {
    "unlimiformer": (
        "bart",
        2048,
        {
            "page_length": 1024,
            "page_context": 256,
            "cross_attention": "nearest",
            "cross_nearest": 1024,
        },
    ),
    "pagesum": ("bart", 3072, {"page_length": 1024, "page_decoding": True}),
    "block_attention": (
        "bart",
        6144,
        {
            "encoder_attention": "block_staggered",
            "block_size": 512,
            "max_position_embeddings": 6144,
        },
    ),
    "led": ("led", 8192, {}),
    "longt5": ("longt5", 6144, {"encoder_attention": "transient_global"}),
}


def get_config(mode, data="data/{split}.jsonl"):
    family, length, options = BASELINES["unlimiformer" if mode == "tiny" else mode]
    task = own_data("summaries", data, max_source_length=length, max_target_length=1024)
    config = base(
        family,
        "base" if family == "longt5" else "large",
        task,
        dtype="bfloat16",
        remat=True,
        **options,
    )
    rate = 1e-4 if family == "longt5" else 5e-5
    config.data.update(batch_size=8)
    config.optimizer.update(
        name="adamw", learning_rate=rate, schedule="linear", warmup_steps=300, total_steps=6546
    )
    config.optimizer.update(weight_decay=0.01, clip_norm=0.1)
    config.loss.label_smoothing = 0.1
    config.training.update(
        steps=6545, log_every=10, eval_every=500, checkpoint_every=100, accumulation=8
    )
    config.evaluation.update(
        examples=100, batch_size=8, max_new_tokens=1024, num_beams=4, no_repeat_ngram_size=3
    )
    if mode != "tiny":
        return config
    config = shrink(config)
    config.model.update(options, page_length=64, page_context=16, cross_nearest=16)
    return config
