"""Classification of documents with BERT or a relative: one or several labels per document.

    python -m longsum_jax.train --config=configs/classify.py:model=DIR,data=FILE \
        --workdir=runs/labels

`model` is a directory in Hugging Face layout, a training workdir (for example of configs/mlm.py),
or a name on the Hub; without it, a small BERT is trained from scratch, with a tokenizer trained on
the data. `data` are JSON lines {"text": ..., "label": ...}, `reviews/{split}.jsonl` or one file, of
which a tenth is held out. A label is an index from 0, a name, or a list of these if documents may
have several labels or none. The evaluation prints accuracy, micro and macro F1 and, for comparison,
the scores of the best constant answer. The mode `words` learns a label for every
white-space-separated word, {"text": "Ann sees Rome", "label": ["B-PER", "O", "B-LOC"]}, and prints
F1 of entities. A head that the checkpoint lacks is initialized randomly. `tiny` runs in seconds on
a CPU.

AdamW with learning rate 5e-5 (3e-4 from scratch) after 100 steps of warm-up, batches of 16, 1,000
steps.

Measured from scratch (width 64, 2 layers, 2 heads, feed-forward size 128, 4,096 pieces, 192 tokens,
batches of 32, learning rate 2e-3, 500 steps, 7 minutes on two CPU cores): trained on 5,000 IMDb
reviews and evaluated five times on 2,000, accuracy 80.2 at the best evaluation (majority: 50.0),
macro F1 77.1 at the last. The best checkpoint was selected on these 2,000 reviews; the model
overfits after step 300.
"""

from longsum_jax.configs.common import buckets, encoder, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "words", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl"):
    task = own_data("tags" if mode == "words" else "labels", data, max_source_length=512)
    config = encoder(model, task)
    lengths = buckets(config.task.max_source_length, shortest=64)
    config.data.update(batch_size=16, source_lengths=lengths)
    config.optimizer.update(
        learning_rate=5e-5 if model else 3e-4, schedule="constant", warmup_steps=100
    )
    config.training.update(
        steps=1000, log_every=10, eval_every=250, checkpoint_every=250, best_metric="accuracy"
    )
    config.evaluation.update(examples=1000, batch_size=32)
    if mode == "words":
        config.training.best_metric = "f1"
    return shrink(config) if mode == "tiny" else config
