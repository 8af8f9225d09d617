"""Classification of long documents with LSG attention (Condevaux and Harispe 2022, section 4.2).

    longsum convert roberta-base lsg-roberta --encoder_attention=lsg --max_source_length=4096 \
        --block_size=128 --sparse_block_size=128 --sparsity_type=norm --sparsity_factor=4
    python -m longsum_jax.train --config=configs/lsg_classify.py:scotus,model=lsg-roberta \
        --workdir=runs/scotus

One mode per data set of the paper: IMDb (TensorFlow Datasets), the papers of arXiv (11 subjects),
Patent (9 classes of claims), SCOTUS (14 issue areas), and ECtHR a and b (articles that were
violated, or alleged to be: several or none). All but the first are read from parquet files, clones
of the data sets ccdv/arxiv-classification, ccdv/patent-classification and coastalcph/lex_glue of
the Hugging Face Hub in this directory; `data=FILE` sets other parquet files or JSON lines {"text":
..., "label": ...}, see configs/classify.py for labels. `model` is a converted model, a training
workdir, or a name on the Hub; without it, a BERT base with LSG attention is trained from scratch.
`train=globals` trains only the table of global tokens and the new head; `train=all`, the default,
trains everything. `json` is for your own data, with IMDb's passes and learning rate; `tiny` runs in
seconds on a CPU. Training ends, and the learning rate reaches zero, after the passes over the
documents.

Published configuration (table 9): RoBERTa base, 4,096 tokens, blocks of 128, beyond them a quarter
of the tokens, selected by norm; Adam, batches of 32, the learning rate falls linearly from the
first step, dropout 0.1; passes and learning rates as in `DATA_SETS`. ECtHR is scored as in LexGLUE:
a document without a label has the class "none". Other rows of tables 2 and 10 are other models:

    model=roberta-base                          RoBERTa (512-length)
    model=nlpaueb/legal-bert-base-uncased       Legal-BERT (512-length), the three LexGLUE modes
    longsum convert nlpaueb/legal-bert-base-uncased lsg-legal-bert --encoder_attention=lsg \
        --max_source_length=4096 --block_size=256 --sparsity_type=none
    model=lsg-legal-bert                        LSG-Legal-BERT (256/0)

A model with 512 positions reads 512 tokens. Our choices: the gradient norm is clipped at 1, and the
best checkpoint is the one after the pass with the best score on the validation split, while the
published script uses the last (`--which=latest`). IMDb has no validation split; a tenth of its
training documents, 2,500 of 25,000, is held out for that. None of these models has been trained
here yet.
"""

from typing import NamedTuple

from longsum_jax.configs.common import (
    buckets,
    checkpoint,
    new_bert,
    own_data,
    set_dropout,
    shrink,
    task_section,
)


class DataSet(NamedTuple):
    """A data set of the paper.

    Attributes:
        task: name of a task in ``data.tasks.TASKS``.
        epochs, learning_rate: hyper-parameters of table 9.
        metric: score that ranks checkpoints.
    """

    task: str
    epochs: int
    learning_rate: float
    metric: str


ARGUMENTS = ("model", "data", "train")
DATA_SETS = {
    "imdb": DataSet("imdb_labels", 3, 2e-5, "accuracy"),
    "arxiv": DataSet("arxiv_labels", 3, 5e-5, "micro_f1"),
    "patent": DataSet("patent_labels", 3, 2e-5, "micro_f1"),
    "scotus": DataSet("scotus", 7, 1e-4, "micro_f1"),
    "ecthr_a": DataSet("ecthr_a", 5, 1e-4, "micro_f1"),
    "ecthr_b": DataSet("ecthr_b", 5, 1e-4, "micro_f1"),
    "json": DataSet("labels", 3, 2e-5, "accuracy"),
}
MODES = (*DATA_SETS, "tiny")
BATCH, LONGEST = 32, 4096
LSG = {
    "encoder_attention": "lsg",
    "block_size": 128,
    "sparse_block_size": 128,
    "sparsity_type": "norm",
    "sparsity_factor": 4,
    "num_global_tokens": 1,
}


def get_config(mode=MODES[0], model="", data="", train="all"):
    data_set = DATA_SETS.get(mode, DATA_SETS["json"])
    if data or data_set.task == "labels":
        task = own_data(data_set.task, data or "data/{split}.jsonl", max_source_length=LONGEST)
    else:
        task = task_section(data_set.task, max_source_length=LONGEST)
    if model:
        config = checkpoint(model, task)
    else:
        config = new_bert("base", task, max_position_embeddings=LONGEST, **LSG)
    config.model.update(remat=True, dtype="bfloat16")
    set_dropout(config, 0.1)
    lengths = buckets(config.task.max_source_length, shortest=512)
    config.data.update(batch_size=BATCH, epochs=data_set.epochs, source_lengths=lengths)
    config.optimizer.update(
        name="adamw",
        learning_rate=data_set.learning_rate,
        schedule="linear",
        clip_norm=1.0,
    )
    config.training.update(
        steps=1_000_000,
        train=train,
        log_every=10,
        eval_every="epoch",
        checkpoint_every=100,
        best_metric=data_set.metric,
        accumulation=8,
    )
    config.evaluation.update(examples=25_000, batch_size=8)
    return tiny(config, model) if mode == "tiny" else config


def tiny(config, model):
    """Returns a config that takes seconds on a CPU."""
    config = shrink(config)
    if not model:
        config.model.update(LSG | {"block_size": 32, "sparse_block_size": 32})
    return config
