"""Extract, then abstract: a summariser that reads the important sentences alone (AWESOME, a
baseline of its tables).

    longsum extract --model=runs/extractor --data=reports/train.jsonl --out=short/train.jsonl
    python -m longsum_jax.train \
        --config=configs/extract_abstract.py:model=bart-large,data='short/{split}.jsonl' \
        --workdir=runs/abstractor

`model` is a checkpoint of any encoder-decoder, `data` what the extract command wrote (`--oracle`
for the best that an extractor could do). Sentences beyond 1,024 tokens are left out. Published:
learning rate 5e-5, 300 steps of warm-up, 8 documents a step, 3 epochs (GovReport's numbers);
optimiser, schedule and decoding are not, and are those of the other AWESOME configs: AdamW with
weight decay 0.01, label smoothing 0.1, gradients clipped at 0.1, four beams, length penalty of the
checkpoint, no trigram twice. Without `model` a small LOCOST starts from nothing, and `tiny` runs in
seconds on a CPU.
"""

from longsum_jax.configs.common import base, checkpoint, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "tiny")


def get_config(mode, model="", data="data/{split}.jsonl"):
    task = own_data("summaries", data, max_source_length=1024, max_target_length=1024)
    config = checkpoint(model, task) if model else base("locost", "small", task)
    config.data.update(batch_size=8, epochs=3)
    config.optimizer.update(
        name="adamw", learning_rate=5e-5, warmup_steps=300, weight_decay=0.01, clip_norm=0.1
    )
    config.optimizer.schedule = "constant"
    config.loss.label_smoothing = 0.1
    config.training.update(
        steps=1_000_000, log_every=10, eval_every="epoch", checkpoint_every=250, accumulation=8
    )
    config.evaluation.update(
        examples=100, batch_size=8, max_new_tokens=512, num_beams=4, no_repeat_ngram_size=3
    )
    return shrink(config) if mode == "tiny" else config
