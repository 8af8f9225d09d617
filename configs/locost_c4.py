"""Gap-sentence pre-training of LOCOST on C4 (Le Bronnec et al., EACL 2024, section 5.2), as
published.

    python -m longsum_jax.train --config=configs/locost_c4.py --workdir=runs/locost_c4 \
        --config.tokenizer.path=spiece.model

Published configuration: 234.7M parameters, 4,096 source and 910 target tokens, gap ratio 0.2,
batches of 256, 1,000,000 steps, AdamW without weight decay, learning rate 0.02 constant for 10,000
steps and then proportional to 1/sqrt(step), gradient norm clipped at 1, no dropout, bfloat16 with
float32 parameters, kernels and FFTs. The paper's run took 140 hours on 16 GPUs that drew 190 W each
(section 8). docs/guide/clusters.md estimates its memory, data and operations; the run itself has
not been done here.

The tokenizer is T5's SentencePiece model (32,000 pieces and 100 sentinels: 32,100 rows). Modes:

    base        the published model from TensorFlow Datasets c4/en, as a stream
    adafactor   the same with Adafactor in place of AdamW
    prepared    the same from shards written by `longsum prepare --task=c4`; set data.prepared
    small       a 19.8M-parameter model for one GPU
    tiny        seconds on a CPU, on the embedded corpus
"""

from longsum_jax.configs.common import base, shrink, task_section

MODES = ("base", "adafactor", "prepared", "small", "tiny")


def get_config(mode="base"):
    size = "small" if mode == "small" else "base"
    config = base(
        "locost", size, task_section("c4"), dropout_rate=0.0, dtype="bfloat16", remat=True
    )
    config.data.update(reader="stream", shuffle="block", batch_size=256)
    config.optimizer.update(
        name="adamw",
        learning_rate=0.02,
        schedule="t5",
        warmup_steps=10_000,
        eps=1e-8,
        clip_norm=1.0,
    )
    config.training.update(
        steps=1_000_000, log_every=50, eval_every=10_000, checkpoint_every=1000, accumulation=8
    )
    config.evaluation.update(examples=500, batch_size=16, max_new_tokens=512)
    if mode == "adafactor":
        config.optimizer.name = "adafactor"
    if mode == "prepared":
        config.data.update(reader="prepared", shuffle="all", prepared="data/c4/train")
    if mode == "small":
        config.data.batch_size = 64
        config.optimizer.learning_rate = 1e-3
        config.training.update(steps=100_000, accumulation=1)
    return shrink(config) if mode == "tiny" else config
