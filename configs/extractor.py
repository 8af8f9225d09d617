"""An extractor of important sentences over BERT, RoBERTa or DistilBERT (AWESOME, Cao & Wang 2023,
appendix D).

    python -m longsum_jax.train \
        --config=configs/extractor.py:model=roberta-base,data='reports/{split}.jsonl' \
        --workdir=runs/extractor
    longsum extract --model=runs/extractor --data=reports/test.jsonl --out=short/test.jsonl

`model` is a directory in Hugging Face layout, a training workdir (for example of configs/mlm.py),
or a name on the Hub; without it, a small BERT is trained from scratch, with a tokenizer trained on
the data. `data` are JSON lines {"document": ..., "summary": ...} (and "query"), one file per split
or one file, of which a tenth is held out; `data_set=` selects a data set of configs/awesome.py
instead, from the same source (qmsum: with its queries). Published: means of RoBERTa's states for
each sentence, one self-attention over all sentences of a document, a map with one hidden layer;
trained to predict the sentences that a greedy search by ROUGE-1 and ROUGE-2 selects. Not published,
and our choice: 8 heads, post-norm, no positions of sentences (model.sentence_positions=true adds
them), binary cross-entropy, at most 128 tokens per sentence and 512 sentences per document, AdamW
with learning rate 5e-5 (5e-4 from scratch) after 100 steps of warm-up, 8 documents per step. The
evaluation prints F1 against the greedy search and, for comparison, the F1 of as many first and
random sentences. `tiny` runs in seconds on a CPU.

Measured from scratch on ScisummNet (width 128, 2 layers, 0.94M parameters, the first 192 sentences
of 48 tokens, with positions of sentences, 50 steps of 8 papers, 9 minutes on two CPU cores): F1
15.06 of the 8 best sentences against the greedy search, 14.56 of the first 8, 5.55 of 8 random
ones. After such short training, the model gives no sentence a probability above 0.5.
"""

from longsum_jax.configs.awesome import task_of
from longsum_jax.configs.common import base, checkpoint, shrink

ARGUMENTS = ("model", "data_set", "data")
MODES = ("default", "tiny")


def get_config(mode="default", model="", data_set="json", data="data/{split}.jsonl"):
    reading = {"objective": "extract", "max_source_length": 128, "max_parts": 512}
    task = task_of(data_set, data, reading)
    config = checkpoint(model, task) if model else base("bert", "small", task, vocab_size=8192)
    config.model.sentence_chunk = 64
    config.data.update(batch_size=8, source_lengths=(64, 128, 256, 512))
    config.optimizer.update(
        learning_rate=5e-5 if model else 5e-4,
        schedule="constant",
        warmup_steps=100,
        weight_decay=0.01,
    )
    config.training.update(
        steps=1000,
        log_every=10,
        eval_every=250,
        checkpoint_every=250,
        accumulation=8,
        best_metric="best_k_f1",
    )
    config.evaluation.update(examples=100, batch_size=8)
    return shrink(config) if mode == "tiny" else config
