"""BART with LSG attention on papers, news and interviews (Condevaux and Harispe 2022, section 4.3).

    longsum convert bart-base lsg-bart --encoder_attention=lsg --max_source_length=4096 \
        --block_size=256 --sparsity_type=none --num_global_tokens=1
    python -m longsum_jax.train --config=configs/lsg_summarize.py:arxiv,model=lsg-bart \
        --workdir=runs/arxiv-4096

    # and on to 16,384 tokens, with 64 global tokens instead of one
    longsum convert runs/arxiv-4096 lsg-bart-16384 --max_source_length=16384 --num_global_tokens=64
    python -m longsum_jax.train \
        --config=configs/lsg_summarize.py:arxiv,model=lsg-bart-16384,train=globals \
        --workdir=runs/arxiv-16384
    longsum evaluate --model=runs/arxiv-16384 --data=FILE --out=results --stemmer

`model` is a converted model (any family with LSG attention), a training workdir, or a name on the
Hub; it reads as many tokens as it has positions, up to 16,384. Without `model`, a BART base is
trained from scratch. `train=globals` trains only the table of global tokens; `train=all`, the
default, trains everything. A converted model reads the whole document from its first step;
studies/lsg_study.py measures its quality without training.

Published configuration (table 9): BART base, Adam with learning rate 8e-5, a linear schedule with a
tenth of the steps as warm-up, batches of 32, dropout 0.1, 6 to 12 passes at 4,096 tokens and one
more at 16,384; beam 5, length penalty 2, summaries of at most 128 to 512 tokens (`DATA_SETS`),
stemmed ROUGE. ROUGE-L compares whole texts for MultiNews (table 6: 25.22 at 4,096 tokens) and
sentences for the others (tables 4, 5 and 7); `longsum evaluate` computes it for whole texts with
--metric_option='rouge.types=["rouge1","rouge2","rougeL"]'. From the published scripts and the cards
of the published models: targets of 512 tokens, gradient norm clipped at 1, a beam search that ends
as soon as there are as many finished summaries as beams, and minimum lengths of summaries.
Published ROUGE-1, -2 and -L (of sentences) on arXiv with 16,384 tokens and 64 global tokens (table
4): 48.74, 20.88, 44.23 if everything is trained, 48.08, 20.42, 43.65 if only the global tokens are.
The card of the published model gives 28.50 for ROUGE-L of whole texts. None of these models has
been trained here yet. One mode per data set; `json` reads files of your own, with 6 passes and 100
steps of warm-up (our choice); `tiny` runs in seconds on a CPU. Training ends, and the learning rate
reaches zero, after the passes over the documents.
"""

from typing import NamedTuple

from longsum_jax.configs.common import base, checkpoint, set_dropout, shrink, task_section


class DataSet(NamedTuple):
    """A data set of the paper.

    Attributes:
        documents: number of training documents, from which the warm-up follows; None for your own.
        epochs: passes at 4,096 tokens (table 9); there is one more at 16,384.
        max_new_tokens: length of the longest summary.
        min_new_tokens: length of the shortest summary in the model's card, which also counts the
            token that decoding starts with; None if unknown.
        rouge_l: type of ROUGE-L in the paper's table, "rougeL" or "rougeLsum".
    """

    documents: int | None
    epochs: int
    max_new_tokens: int
    min_new_tokens: int | None = None
    rouge_l: str = "rougeLsum"


ARGUMENTS = ("model", "train")
DATA_SETS = {
    "arxiv": DataSet(203_037, 6, 320),
    "pubmed": DataSet(119_924, 8, 512, 127),
    "multinews": DataSet(44_972, 12, 320, rouge_l="rougeL"),
    "mediasum": DataSet(443_596, 6, 128, 2),
    "json": DataSet(None, 6, 512),
}
MODES = (*DATA_SETS, "tiny")
BATCH = 32
LSG = {
    "encoder_attention": "lsg",
    "block_size": 256,
    "sparsity_type": "none",
    "num_global_tokens": 1,
}


def get_config(mode=MODES[0], model="", train="all"):
    data_set = DATA_SETS.get(mode, DATA_SETS["json"])
    if mode in ("json", "tiny"):
        task = task_section("arxiv", source="json:data/{split}.jsonl")
    else:
        task = task_section(mode)
    if model:
        config = checkpoint(model, task | {"max_source_length": 16384, "max_target_length": 512})
    else:
        config = base("bart", "base", task, max_position_embeddings=4096, **LSG)
    config.model.update(remat=True, dtype="bfloat16")
    set_dropout(config, 0.1)
    longest = config.task.max_source_length or 4096
    epochs = data_set.epochs if longest <= 4096 else 1
    config.data.update(reader="memory", shuffle="all", batch_size=BATCH, epochs=epochs)
    config.optimizer.update(
        name="adamw",
        learning_rate=8e-5,
        schedule="linear",
        warmup_steps=warmup_steps(data_set.documents, epochs),
        clip_norm=1.0,
    )
    per_pass = 4 if longest <= 4096 else 1  # documents that go through together
    config.training.update(
        steps=1_000_000, train=train, log_every=10, eval_every=500, checkpoint_every=500
    )
    config.training.accumulation = BATCH // per_pass
    config.evaluation.update(
        examples=100,
        batch_size=8,
        num_beams=5,
        length_penalty=2.0,
        early_stopping=True,
        max_new_tokens=data_set.max_new_tokens,
        min_new_tokens=data_set.min_new_tokens,
        stemmer=True,
        rouge_types=("rouge1", "rouge2", data_set.rouge_l),
    )
    if data_set.rouge_l == "rougeL":
        config.training.best_metric = "geometric_rouge"  # the mean that these types have
    return tiny(config, model) if mode == "tiny" else config


def warmup_steps(documents, epochs):
    """Returns a tenth of the steps of a run; 100 where the number of documents is not known."""
    if documents is None:
        return 100
    return epochs * documents // BATCH // 10


def tiny(config, model):
    """Returns a config that takes seconds on a CPU."""
    config = shrink(config)
    if not model:
        config.model.update(LSG | {"block_size": 32})
    return config
