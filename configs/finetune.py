"""Fine-tuning of any encoder-decoder checkpoint for summarization: T5, LongT5, BART, PEGASUS, LED,
LOCOST and others.

    python -m longsum_jax.train --config=configs/finetune.py:model=DIR,data=FILE \
        --workdir=runs/reports

`model` is a directory in Hugging Face layout, a training workdir, or a name on the Hub; `data` are
JSON lines {"document": ..., "summary": ...}, plain or compressed: `reports/{split}.jsonl` for files
train, validation and test, or one file, of which a tenth (by the documents' ids) is held out for
evaluation. The checkpoint determines tokenizer, prefix ("summarize: "), generation settings and
lengths, up to 4,096 source and 512 target tokens. The evaluation prints ROUGE and, for comparison,
the lead baseline's. Without `model`, a small LOCOST is trained from scratch. `tiny` runs in seconds
on a CPU.

AdamW with learning rate 5e-5 after 100 steps of warm-up, batches of 8, 2,000 steps. T5 and LongT5
need a higher rate, config.optimizer.learning_rate=1e-3 with adafactor (Raffel et al. 2020, section
3.1.2).
"""

from longsum_jax.configs.common import base, checkpoint, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl"):
    task = own_data("summaries", data, max_source_length=4096, max_target_length=512)
    config = checkpoint(model, task) if model else base("locost", "small", task)
    config.data.batch_size = 8
    config.optimizer.update(
        name="adamw", learning_rate=5e-5, schedule="constant", warmup_steps=100, clip_norm=1.0
    )
    config.training.update(steps=2000, log_every=10, eval_every=500, checkpoint_every=250)
    config.evaluation.update(examples=100, batch_size=8)
    if model:
        config.evaluation.update(max_new_tokens=None, num_beams=None, no_repeat_ngram_size=None)
    return shrink(config) if mode == "tiny" else config
