"""Masked language modeling with BERT or a relative (Devlin et al. 2019, section 3.1; masks as in
RoBERTa), or causal language modeling.

    python -m longsum_jax.train --config=configs/mlm.py:model=DIR,data=FILE --workdir=runs/mlm

`model` is a directory in Hugging Face layout, a training workdir, or a name on the Hub; without it,
a small BERT is trained from scratch, with a tokenizer trained on the data. `data` are JSON lines
{"text": ...} or {"document": ...}, `novels/{split}.jsonl` or one file, of which a tenth is held
out; every document is read completely, in pieces of at most 512 tokens. In every step, 15% of the
tokens are selected for prediction; `config.mlm` sets the shares. The evaluation prints accuracy,
bits per predicted token and bits per character. The mode `causal` predicts every token from the
previous ones, with a causal mask, and full or LSG attention. `tiny` runs in seconds on a CPU.

AdamW with learning rate 1e-4 (5e-4 from scratch) after 100 steps of warm-up, batches of 16, 1,000
steps.

Measured from scratch on ScisummNet (width 64, 2 layers, 2 heads, feed-forward size 128, 1,024
pieces, 128 tokens, batches of 16, learning rate 4e-3, 900 steps, 3 minutes on two CPU cores):
accuracy 12.7 %, 7.65 bits per token (untrained: 10), 2.67 per character. That is little better than
predicting by token frequencies.
"""

from longsum_jax.configs.common import encoder, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "causal", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl"):
    objective = "lm" if mode == "causal" else "mlm"
    task = own_data("masked_tokens", data, objective=objective, max_source_length=512)
    config = encoder(model, task)
    config.data.batch_size = 16
    config.optimizer.update(
        learning_rate=1e-4 if model else 5e-4, schedule="constant", warmup_steps=100
    )
    config.training.update(
        steps=1000, log_every=10, eval_every=250, checkpoint_every=250, best_metric="accuracy"
    )
    config.evaluation.update(examples=50, batch_size=16)
    return shrink(config) if mode == "tiny" else config
