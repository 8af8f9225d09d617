"""LOCOST with a Hepos decoder: each decoder head reads every fourth state of the encoder.

    python -m longsum_jax.train --config=configs/locost_hepos.py:govreport \
        --workdir=runs/govreport-hepos --config.init_from=locost-base

No paper has trained this model; it combines LOCOST (Le Bronnec et al., EACL 2024) and Hepos (Huang
et al., NAACL 2021, section 3) and needs no new parameters, so it can start from any LOCOST
checkpoint. Settings are the same as in configs/locost_finetune.py. The decoder's keys and values
for a document take a quarter of the memory: 9 GB instead of 37 GB for the base model at a million
tokens in bfloat16 (benchmarks/hepos.py). `stride=8` sets another stride; with `stride=1`, every
head reads every state. `json` reads files of your own, up to 4,096 tokens of a document; `small` is
a 19.8M-parameter model for one GPU that reads up to 4,096 tokens as well; `tiny` runs in seconds on
a CPU.
"""

from longsum_jax.configs.common import base, shrink, task_section
from longsum_jax.configs.locost_finetune import (
    LENGTHS,
    set_published_recipe,
    set_source_length,
    task_name,
)

from longsum_jax.errors import InputError

ARGUMENTS = ("stride",)
MODES = ("govreport", "arxiv", "pubmed", "json", "small", "tiny")


def get_config(mode="govreport", stride="4"):
    if not stride.isdecimal() or not int(stride):
        raise InputError(f"stride is {stride}; give a number from 1")
    task = task_name("json" if mode == "small" else mode)
    hepos = {"cross_attention": "hepos", "hepos_stride": int(stride)}
    if int(stride) == 1:
        hepos = {"cross_attention": "full"}
    size = "small" if mode == "small" else "base_hepos"
    config = base(
        "locost", size, task_section(task), dropout_rate=0.1, dtype="bfloat16", remat=True, **hepos
    )
    if mode in ("json", "small"):
        config.task.source = "json:data/{split}.jsonl"
    set_published_recipe(config)
    if task == "govreport_scrolls":
        config.evaluation.max_new_tokens = 1024
    set_source_length(config, LENGTHS["json" if mode == "small" else mode])
    if mode != "tiny":
        return config
    config = shrink(config)
    config.model.update(hepos)
    return config
