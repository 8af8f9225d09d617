"""A LOCOST that a laptop can pre-train and fine-tune in an hour, on text of your own.

    python -m longsum_jax.train --config=configs/locost_small.py:pretrain --workdir=runs/small \
        --config.task.source='json:corpus.jsonl.xz'
    python -m longsum_jax.train --config=configs/locost_small.py:finetune \
        --workdir=runs/small-reports --config.task.source='json:reports/{split}.jsonl' \
        --config.init_from=runs/small

2.3M parameters, a tokenizer of 8,192 pieces trained on the corpus (rows {"text": ...}), gap
sentences over pieces of 300 words, 512 source tokens. Fine-tuning reads rows {"document": ...,
"summary": ...}. `scratch` fine-tunes the same model without pre-training, for comparison; give it
the tokenizer with config.tokenizer.path=runs/small/model. `tiny` runs in seconds.

Measured, mean of ROUGE-1, -2 and -Lsum on the 100 test papers of ScisummNet (stemmed): 18.24 with
pre-training, 13.13 without, 25.48 for the lead baseline, 23.75 for random sentences. Pre-training
was 450 steps on 60 novels and 1,405 technical specifications, fine-tuning 150 steps on 549 papers.
"""

from longsum_jax.configs.common import base, shrink, task_section

MODES = ("pretrain", "finetune", "scratch", "tiny")


def get_config(mode):
    summarize = mode in ("finetune", "scratch")
    task = task_section(
        "govreport" if summarize else "c4", source="json:data/{split}.jsonl", max_source_length=512
    )
    task |= (
        {"max_target_length": 160} if summarize else {"max_target_length": 128, "piece_words": 300}
    )
    config = base(
        "locost",
        "tiny",
        task,
        vocab_size=8192,
        d_model=128,
        d_state=64,
        d_kv=32,
        d_ff=384,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.1 if summarize else 0.0,
    )
    config.data.update(batch_size=16, source_lengths=(512,))
    if summarize:
        config.optimizer.update(
            learning_rate=1e-3, schedule="linear", warmup_steps=20, total_steps=400
        )
        config.training.update(steps=400, log_every=10, eval_every=100, checkpoint_every=100)
        config.evaluation.update(
            examples=32, batch_size=16, max_new_tokens=160, no_repeat_ngram_size=3
        )
    else:
        config.optimizer.update(learning_rate=2e-3, schedule="t5", warmup_steps=500)
        config.training.update(steps=1200, log_every=20, checkpoint_every=200)
    return shrink(config) if mode == "tiny" else config
