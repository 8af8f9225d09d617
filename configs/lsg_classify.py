"""Classification of long documents with LSG attention (Condevaux and Harispe 2022, section 4.1).

    longsum convert roberta-base lsg-roberta --encoder_attention=lsg --max_source_length=4096 \
        --block_size=128 --sparse_block_size=128 --sparsity_type=norm --sparsity_factor=4
    python -m longsum_jax.train --config=configs/lsg_classify.py:scotus,model=lsg-roberta \
        --workdir=runs/scotus

One mode per data set of the paper, which says how many steps to train and what is compared: IMDb,
the papers of arXiv (11 subjects), Patent (9 classes of claims), ECtHR (articles that were violated,
several or none) and SCOTUS (14 issue areas). Data are JSON lines {"text": ..., "label": ...},
`scotus/{split}.jsonl` in the mode `scotus`, or `data=FILE`; see configs/classify.py for labels.
`model` is a converted model, a training workdir, or a name on the Hub; without it a BERT base with
LSG attention starts from nothing. `train=globals` trains the table of global tokens and the new
head alone, `train=all`, the default, everything. `json` is for data of your own, `tiny` runs in
seconds on a CPU.

RoBERTa base, 4,096 tokens, blocks of 128, every fourth token beyond them by its norm; AdamW,
learning rate 2e-5, a linear schedule with a tenth of warm-up, batches of 32, five passes: the last
two and the learning rate are common choices of ours, not the paper's, and nothing of this has been
trained here yet.
"""

from longsum_jax.configs.common import base, checkpoint, own_data, shrink

from longsum_jax.errors import InputError, did_you_mean

ARGUMENTS = ("model", "data", "train")
# Mode -> documents of its training split, and the score by which checkpoints are compared.
DATA_SETS = {
    "imdb": (25_000, "accuracy"),
    "arxiv": (28_388, "micro_f1"),
    "patent": (25_000, "micro_f1"),
    "ecthr": (9_000, "micro_f1"),
    "scotus": (5_000, "micro_f1"),
    "json": (10_000, "accuracy"),
}
MODES = (*DATA_SETS, "tiny")
TRAINABLE = {"all": "", "globals": "global_embeddings$|^head/"}
BATCH, PASSES = 32, 5
LSG = {
    "encoder_attention": "lsg",
    "block_size": 128,
    "sparse_block_size": 128,
    "sparsity_type": "norm",
}
LSG |= {"sparsity_factor": 4, "num_global_tokens": 1}


def get_config(mode, model="", data="", train="all"):
    if train not in TRAINABLE:
        raise InputError(f'train "{train}" is unknown; {did_you_mean(train, TRAINABLE)}')
    documents, metric = DATA_SETS.get(mode, DATA_SETS["json"])
    directory = mode if mode in DATA_SETS and mode != "json" else "data"
    task = own_data("labels", data or f"{directory}/{{split}}.jsonl", max_source_length=4096)
    if model:
        config = checkpoint(model, task)
    else:
        # A SentencePiece tokenizer has no special tokens of BERT's; two extra ids stand for [MASK]
        # and [CLS].
        task |= {"prefix": "<extra_id_1>"}
        config = base("bert", "base", task, vocab_size=8192, max_position_embeddings=4096, **LSG)
        config.tokenizer.extra_ids = 2
    config.model.update(remat=True, dtype="bfloat16")
    steps = PASSES * documents // BATCH
    longest = config.task.max_source_length
    config.data.update(batch_size=BATCH, epochs=PASSES)
    config.data.source_lengths = tuple(
        sorted({n for n in (512, 1024, 2048) if n < longest} | {longest})
    )
    config.optimizer.update(
        name="adamw",
        learning_rate=2e-5,
        schedule="linear",
        warmup_steps=steps // 10,
        total_steps=steps,
        clip_norm=1.0,
    )
    config.optimizer.trainable = TRAINABLE[train]
    config.training.update(
        steps=steps, log_every=10, eval_every=100, checkpoint_every=100, best_metric=metric
    )
    config.training.accumulation = 8
    config.evaluation.update(examples=1000, batch_size=8)
    return tiny(config, model) if mode == "tiny" else config


def tiny(config, model):
    """Returns a config that takes seconds on a CPU, with the schedule of the full run."""
    config = shrink(config)
    if not model:
        config.model.update(LSG | {"block_size": 32, "sparse_block_size": 32})
    return config
