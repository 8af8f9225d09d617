"""A small LOCOST pre-trained from nothing on the documentation inside Python: the whole library in five minutes.

    python -m longsum_jax.train --config=configs/quickstart.py --workdir=runs/quickstart

Builds a tokenizer, pre-trains with gap sentences, evaluates against the lead baseline, prints a summary. Nothing is
downloaded. Four minutes on two CPU cores; the point is that every part runs, a model this small and young only
begins to pick up the words of its corpus.
"""

from common import base, shrink, task_section

MODES = ("default", "tiny")


def get_config(mode):
    config = base(
        "locost",
        "tiny",
        task_section("embedded", max_source_length=1024, max_target_length=128),
        vocab_size=2048,
        d_model=128,
        d_state=64,
        d_kv=32,
        d_ff=256,
        num_layers=3,
        num_decoder_layers=3,
        num_heads=4,
    )
    config.data.batch_size = 8
    config.data.source_lengths = (256, 512, 1024)
    config.optimizer.update(learning_rate=3e-3, schedule="cosine", warmup_steps=20, total_steps=200)
    config.training.update(steps=200, log_every=10, eval_every=0, checkpoint_every=100)
    config.evaluation.update(examples=7, batch_size=7, max_new_tokens=96, no_repeat_ngram_size=3)
    return shrink(config) if mode == "tiny" else config
