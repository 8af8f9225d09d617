"""A LOCOST that a laptop can pre-train and fine-tune in an hour, on your own text.

    for words in 60 280; do
        python studies/pretraining_mix.py --data=corpus.jsonl.xz --words=$words \
            --examples=20000 --out=mix_$words.jsonl.gz
    done
    python studies/pretraining_mix.py --data=corpus.jsonl.xz --tasks=copy --words=24 \
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
{"document": ...}). `copy` learns to repeat words in random order, which cannot be guessed without
the source; `mix` learns tasks that can only be solved by reading, over pieces of `words` words;
then fine-tuning reads 512 tokens of rows {"document": ..., "summary": ...}. `pretrain` replaces
both by gap sentences of 300 words, as in the paper, taken directly from the corpus. `scratch`
fine-tunes without pre-training, for comparison; set its tokenizer with
config.tokenizer.path=runs/copy/model. `tiny` runs in seconds.

`size=6m` and `size=10m` are for a GPU: 6.4M and 10.2M parameters, 8,192 pieces; `copy`, `mix` and
`finetune` then have longer rows, and more of them per step. Their mixes have 60, 280 and 600 words;
the last one also contains rows generated with
`--words=800 --pieces=extract --tasks=marked,lead,rank --most_copied=0.5`. Fine-tuning reads 1,152
tokens, selected from long documents by `longsum extract --length="600 words"`. For the results of
the larger model after fifteen minutes, see docs/results/studies.md.

Measured, mean of ROUGE-1, -2 and -Lsum on the 100 test papers of ScisummNet (stemmed), after 150
steps of fine-tuning on 549 papers: 19.59 after copying and mixes, 18.24 after 450 steps of gap
sentences, 13.13 from scratch; 25.48 for the lead baseline, 23.75 for random sentences. The mixes
were made from novels, papers, specifications and transcripts, the gap sentences from novels and
specifications; the models with gap sentences and from scratch had tokenizers of 8,192 pieces.
"""

from typing import NamedTuple

from longsum_jax.configs.common import OWN_FILES, base, shrink, task_section

from longsum_jax.errors import InputError

MODES = ("copy", "mix", "pretrain", "finetune", "scratch", "tiny")
ARGUMENTS = ("words", "size")
SOURCE = f"json:{OWN_FILES}"
TOKENS_OF_A_WORD = 1.8  # at most, with 4,096 pieces
HELD_OUT = 0.003  # of the rows of a mix: 180 of 60,000
SMALL = {"d_state": 64, "d_kv": 32, "num_layers": 3, "num_decoder_layers": 2}
SIZES = {
    "2m": SMALL | {"vocab_size": 4096, "d_model": 128, "d_ff": 384, "num_heads": 4},
    "6m": SMALL | {"vocab_size": 8192, "d_model": 256, "d_ff": 640, "num_heads": 8},
    "10m": SMALL
    | {"vocab_size": 8192, "d_model": 256, "d_ff": 1024, "num_heads": 8}
    | {"num_layers": 4, "num_decoder_layers": 3},
}


class Stage(NamedTuple):
    """A training: lengths in tokens, rows of a step, learning rate, warm-up and steps."""

    source: int
    target: int
    rows: int
    rate: float
    warmup: int
    steps: int


def get_config(mode="copy", words="", size="2m"):
    if words and (mode != "mix" or not words.isdecimal() or not int(words)):
        raise InputError(f"words={words}: only mix has it, the words of a piece, such as 280")
    if size not in SIZES:
        raise InputError(f"size={size}: give one of {', '.join(SIZES)}")
    if mode in ("copy", "mix"):
        stage = copy(size) if mode == "copy" else mix(int(words or 60), size)
        return reading_config(stage, size)
    config = pretrain(size) if mode == "pretrain" else finetune(size)
    return shrink(config) if mode == "tiny" else config


def copy(size):
    """Returns the first training, of rows of words in random order."""
    if size == "2m":
        return Stage(32, 32, rows=64, rate=1e-3, warmup=100, steps=1200)
    return Stage(64, 64, rows=128, rate=1e-3, warmup=200, steps=2500)


def mix(words, size):
    """Returns the training on pieces of ``words`` words; short ones come first."""
    source = -(-int(TOKENS_OF_A_WORD * words) // 16) * 16
    if size == "2m":
        if words <= 100:
            return Stage(source, 64, rows=32, rate=7e-4, warmup=50, steps=500)
        return Stage(source, 128, rows=16, rate=5e-4, warmup=30, steps=200)
    if words <= 100:
        return Stage(source, 80, rows=128, rate=7e-4, warmup=100, steps=3000)
    if words <= 300:
        return Stage(source, 160, rows=64, rate=6e-4, warmup=100, steps=5000)
    return Stage(min(source, 1024), 384, rows=32, rate=5e-4, warmup=100, steps=3600)


def reading_config(stage, size):
    """Returns the config of a training that teaches to read."""
    task = task_section(
        "summaries",
        source=SOURCE,
        held_out=HELD_OUT,
        max_source_length=stage.source,
        max_target_length=stage.target,
    )
    config = model_config(task, 0.0, size)
    config.data.update(source_lengths=(stage.source,), batch_size=stage.rows)
    config.optimizer.update(schedule="constant", b2=0.98)
    config.optimizer.update(learning_rate=stage.rate, warmup_steps=stage.warmup)
    config.training.update(steps=stage.steps, log_every=20, eval_every=0, checkpoint_every=200)
    config.evaluation.update(examples=32, batch_size=16, max_new_tokens=stage.target)
    if size != "2m":  # hundreds of thousands of rows, and a step in hundredths of a second
        config.data.update(reader="stream", shuffle="block")
        config.training.update(log_every=50, checkpoint_every=1000)
    return config


def pretrain(size):
    """Returns the config of gap sentences, of pieces of 300 words."""
    task = task_section(
        "c4", source=SOURCE, max_source_length=512, max_target_length=128, piece_words=300
    )
    config = model_config(task, 0.0, size)
    config.data.update(batch_size=16, source_lengths=(512,))
    config.optimizer.update(learning_rate=2e-3, schedule="t5", warmup_steps=500)
    config.training.update(steps=1200, log_every=20, checkpoint_every=200)
    return config


def finetune(size):
    """Returns the config of summaries."""
    source, target = (512, 160) if size == "2m" else (1152, 448)
    task = task_section(
        "govreport", source=SOURCE, max_source_length=source, max_target_length=target
    )
    config = model_config(task, 0.1, size)
    config.data.update(batch_size=16, source_lengths=(source,))
    config.optimizer.update(learning_rate=1e-3, schedule="linear", warmup_steps=20)
    config.training.update(steps=400, log_every=10, eval_every=100, checkpoint_every=100)
    config.evaluation.update(
        examples=32, batch_size=16, max_new_tokens=target, no_repeat_ngram_size=3
    )
    if size != "2m":
        config.data.batch_size = 32
        config.optimizer.update(learning_rate=3e-4, b2=0.98, warmup_steps=100)
        config.training.update(steps=1800, log_every=50, eval_every=600, checkpoint_every=600)
    return config


def model_config(task, dropout_rate, size):
    """Returns the config of the model with a task; larger ones compute in bfloat16."""
    dtype = "float32" if size == "2m" else "bfloat16"
    return base("locost", "tiny", task, dtype=dtype, dropout_rate=dropout_rate, **SIZES[size])
