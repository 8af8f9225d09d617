"""Fine-tuning of a pre-trained LOCOST on a summarisation data set (Le Bronnec et al., EACL 2024,
section 4.2).

    python -m longsum_jax.train --config=configs/locost_finetune.py:govreport \
        --workdir=runs/govreport --config.init_from=locost-base

Published configuration: constant learning rate 5e-4, AdamW without weight decay, gradient norm
clipped at 1, dropout 0.1, batches of 128, 60 epochs (100 for whole books), evaluated after each,
best checkpoint by the mean of ROUGE-1, -2 and -Lsum. Targets have up to 1,024 tokens for GovReport
and whole books, 512 elsewhere.

One mode per data set, and `json` for files of your own
(config.task.source='json:reports/{split}.jsonl'). A mode names its TensorFlow Datasets builder;
config.task.source replaces it. Training stops after `steps` or `epochs`, whichever comes first.
`tiny` runs in seconds on a CPU.
"""

from longsum_jax.configs.common import base, shrink, task_section

MODES = (
    "govreport",
    "arxiv",
    "pubmed",
    "summscreenfd",
    "booksum_chapter",
    "booksum_book",
    "qmsum",
    "multinews",
    "mediasum",
    "bigpatent",
    "json",
    "tiny",
)


def get_config(mode):
    task = "govreport" if mode in ("json", "tiny") else mode
    config = base(
        "locost", "base", task_section(task), dropout_rate=0.1, dtype="bfloat16", remat=True
    )
    if mode == "json":
        config.task.source = "json:data/{split}.jsonl"
    config.data.update(
        reader="memory", shuffle="all", batch_size=128, epochs=100 if mode == "booksum_book" else 60
    )
    config.data.source_lengths = (1024, 2048, 4096)
    config.optimizer.update(name="adamw", learning_rate=5e-4, schedule="constant", clip_norm=1.0)
    config.training.update(
        steps=1_000_000, log_every=10, eval_every="epoch", checkpoint_every=500, accumulation=16
    )
    config.evaluation.update(examples=500, batch_size=16, max_new_tokens=512)
    if config.task.name in ("govreport", "booksum_book"):
        config.evaluation.max_new_tokens = 1024
    return shrink(config) if mode == "tiny" else config
