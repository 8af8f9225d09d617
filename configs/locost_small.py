"""A LOCOST that a laptop can pre-train and fine-tune in an hour, on text of your own.

    for words in 60 280; do
        python benchmarks/pretraining_mix.py --data=corpus.jsonl.xz --words=$words \
            --examples=20000 --out=mix_$words.jsonl.gz
    done
    python benchmarks/pretraining_mix.py --data=corpus.jsonl.xz --tasks=copy --words=24 \
        --out=copy.jsonl.gz
    python -m longsum_jax.train --config=configs/locost_small.py:copy --workdir=runs/copy \
        --config.task.source=json:copy.jsonl.gz
    python -m longsum_jax.train --config=configs/locost_small.py:mix --workdir=runs/mix_60 \
        --config.task.source=json:mix_60.jsonl.gz --config.init_from=runs/copy
    python -m longsum_jax.train --config=configs/locost_small.py:mix,words=280 \
        --workdir=runs/mix_280 --config.task.source=json:mix_280.jsonl.gz \
        --config.init_from=runs/mix_60
    python -m longsum_jax.train --config=configs/locost_small.py:finetune --workdir=runs/reports \
        --config.task.source='json:reports/{split}.jsonl' --config.init_from=runs/mix_280

1.8M parameters, a tokenizer of 4,096 pieces trained on the corpus (rows {"text": ...} or
{"document": ...}). `copy` repeats words in random order, which only the source tells; `mix` does
tasks that can only be done by reading, over pieces of `words` words; then fine-tuning reads 512
tokens of rows {"document": ..., "summary": ...}. `pretrain` writes gap sentences of 300 words in
place of both, as the paper does, straight from the corpus. `scratch` fine-tunes without any, for
comparison; give it the tokenizer with config.tokenizer.path=runs/copy/model. `tiny` runs in
seconds.

Measured, mean of ROUGE-1, -2 and -Lsum on the 100 test papers of ScisummNet (stemmed), after 150
steps of fine-tuning on 549 papers: 19.59 after copying and mixes, 18.24 after 450 steps of gap
sentences, 13.13 from scratch; 25.48 for the lead baseline, 23.75 for random sentences. The mixes
were of novels, papers, specifications and transcripts, the gap sentences of novels and
specifications; models of gap sentences and from scratch had 8,192 pieces.
"""

from longsum_jax.configs.common import OWN_FILES, base, shrink, task_section

from longsum_jax.errors import InputError

MODES = ("copy", "mix", "pretrain", "finetune", "scratch", "tiny")
ARGUMENTS = ("words",)
SOURCE = f"json:{OWN_FILES}"
TOKENS_OF_A_WORD = 1.8  # at most, with 4,096 pieces
HELD_OUT = 0.003  # of the rows of a mix: 180 of 60,000


def get_config(mode, words=""):
    if words and (mode != "mix" or not words.isdecimal() or not int(words)):
        raise InputError(f"words={words}: only mix has it, the words of a piece, such as 280")
    set_mode = {"copy": copy, "mix": lambda: mix(int(words or 60)), "pretrain": pretrain}
    config = set_mode.get(mode, finetune)()
    return shrink(config) if mode == "tiny" else config


def copy():
    """Returns the config of the first training: 1,200 steps of 64 short rows."""
    config = reading_config(32, 32)
    config.data.batch_size = 64
    config.optimizer.update(learning_rate=1e-3, warmup_steps=100)
    config.training.steps = 1200
    return config


def mix(words):
    """Returns the config of the next ones, over pieces of some words and then of more."""
    source = -(-int(TOKENS_OF_A_WORD * words) // 16) * 16
    if words <= 100:
        config = reading_config(source, 64)
        config.data.batch_size = 32
        config.optimizer.update(learning_rate=7e-4, warmup_steps=50)
        config.training.steps = 500
    else:
        config = reading_config(source, 128)
        config.data.batch_size = 16
        config.optimizer.update(learning_rate=5e-4, warmup_steps=30)
        config.training.steps = 200
    return config


def reading_config(source, target):
    """Returns the config of a training that teaches to read, with the lengths of its rows."""
    task = task_section(
        "summaries",
        source=SOURCE,
        held_out=HELD_OUT,
        max_source_length=source,
        max_target_length=target,
    )
    config = model_config(task, 0.0)
    config.data.source_lengths = (source,)
    config.optimizer.update(schedule="constant", b2=0.98)
    config.training.update(log_every=20, eval_every=0, checkpoint_every=200)
    config.evaluation.update(examples=32, batch_size=16, max_new_tokens=target)
    return config


def pretrain():
    """Returns the config of gap sentences over pieces of 300 words."""
    task = task_section(
        "c4", source=SOURCE, max_source_length=512, max_target_length=128, piece_words=300
    )
    config = model_config(task, 0.0)
    config.data.update(batch_size=16, source_lengths=(512,))
    config.optimizer.update(learning_rate=2e-3, schedule="t5", warmup_steps=500)
    config.training.update(steps=1200, log_every=20, checkpoint_every=200)
    return config


def finetune():
    """Returns the config of summaries."""
    task = task_section("govreport", source=SOURCE, max_source_length=512, max_target_length=160)
    config = model_config(task, 0.1)
    config.data.update(batch_size=16, source_lengths=(512,))
    config.optimizer.update(learning_rate=1e-3, schedule="linear", warmup_steps=20)
    config.training.update(steps=400, log_every=10, eval_every=100, checkpoint_every=100)
    config.evaluation.update(examples=32, batch_size=16, max_new_tokens=160, no_repeat_ngram_size=3)
    return config


def model_config(task, dropout_rate):
    """Returns the config of the model with a task."""
    return base(
        "locost",
        "tiny",
        task,
        vocab_size=4096,
        d_model=128,
        d_state=64,
        d_kv=32,
        d_ff=384,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=dropout_rate,
    )
