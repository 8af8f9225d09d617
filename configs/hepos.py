"""BART with a Hepos decoder on long reports and papers (Huang et al., NAACL 2021, section 5).

    longsum convert bart-large bart-7168 --max_source_length=7168
    python -m longsum_jax.train --config=configs/hepos.py:govreport --workdir=runs/govreport \
        --config.init_from=bart-7168
    longsum summarize --model=runs/govreport --num_beams=4 --length_penalty=2 FILE

Published configuration: BART large, every decoder head reads every fourth position, LSH attention
in the encoder for 7,168 tokens or Sinkhorn attention (`encoder=sinkhorn`) for 10,240; Adafactor
with learning rate 1e-4 after 10,000 steps of warm-up, gradient norm clipped at 0.1, batches of 64,
beam 4, length penalty 2, up to 1,024 target tokens for GovReport. Batches go through in 16 parts of
4 documents; the paper's parts of 2 are config.training.accumulation=32. It draws positions beyond
BART's 1,024 at random and its code repeats the last one; `convert` repeats all unless
--position_extension=random or last_row asks for those. One mode per data set; `json` reads files of
your own, `tiny` runs in seconds on a CPU. GovReport as its authors released it: `longsum corpus
govreport`.
"""

from longsum_jax.configs.common import base, shrink, task_section

from longsum_jax.errors import InputError, did_you_mean

ARGUMENTS = ("encoder",)
MODES = ("govreport", "pubmed", "arxiv", "json", "tiny")
# Encoder attention -> longest source, and options of the model.
ENCODERS = {
    "lsh": (7168, {"lsh_num_hashes": 4, "lsh_num_buckets": 256, "lsh_chunk_length": 64}),
    "sinkhorn": (10240, {"block_size": 64}),
    "full": (1024, {}),
}


def get_config(mode, encoder="lsh"):
    if encoder not in ENCODERS:
        raise InputError(f'encoder "{encoder}" is unknown; {did_you_mean(encoder, ENCODERS)}')
    length, options = ENCODERS[encoder]
    attention = {
        "encoder_attention": encoder,
        "cross_attention": "hepos",
        "hepos_stride": 4,
        **options,
    }
    task = task_section(
        mode if mode in ("pubmed", "arxiv") else "govreport", max_source_length=length
    )
    config = base(
        "bart",
        "large",
        task,
        max_position_embeddings=length,
        remat=True,
        dtype="bfloat16",
        **attention,
    )
    if mode == "json":
        config.task.source = "json:data/{split}.jsonl"
    config.data.update(reader="memory", shuffle="all", batch_size=64)
    config.optimizer.update(
        name="adafactor",
        learning_rate=1e-4,
        schedule="constant",
        warmup_steps=10_000,
        clip_norm=0.1,
    )
    config.training.update(
        steps=20_000, log_every=10, eval_every=1000, checkpoint_every=500, accumulation=16
    )
    config.evaluation.update(
        examples=100,
        batch_size=8,
        num_beams=4,
        length_penalty=2.0,
        max_new_tokens=1000,
        no_repeat_ngram_size=3,
        stemmer=True,
    )
    if mode != "tiny":
        return config
    config = shrink(config)
    config.model.update(attention)
    return config
