"""One encoder attention with one cross-attention: a cell of Table 3 of the Hepos paper (Huang et
al., NAACL 2021).

    python -m longsum_jax.train \
        --config=configs/attention_study.py:encoder=lsh,cross=hepos,data=FILE --workdir=runs/lsh
    python studies/study.py --data=FILE --workdir=runs/study  # every cell, table and picture

`encoder` is an encoder attention or several joined by "+", `cross` is full, hepos or linformer. At
equal cost, as in section 6.2 of the paper: 1,024 source tokens, windows, spans, rows of Linformer,
rounds of LSH and pairs of Sinkhorn blocks of 256 keys, 128 strided, global or random keys; with
Hepos and Linformer, each head of the decoder reads a quarter of the source. `length` is another
number of source tokens: below 1,024, the numbers of keys shrink in proportion; above, they stay the
same. `data` are JSON lines {"document": ..., "summary": ...}, `reports/{split}.jsonl` or one file,
of which a tenth is held out.

The paper fine-tunes BART large: `model=DIR` starts from a checkpoint, with the optimizer, the
batches and the generation options of configs/hepos.py; parameters that an attention adds are
initialized randomly. Without it, a small PEGASUS is trained from scratch, with a tokenizer trained
on the data. (PEGASUS is pre-norm. A small BART, which is post-norm, learned to ignore its source:
after 489 steps with a learning rate of 3e-3, its encoder gave all tokens nearly the same state.)
For measurements, see docs/results. `tiny` runs in seconds on a CPU.
"""

from longsum_jax.configs.common import base, checkpoint, own_data, shrink
from longsum_jax.configs.hepos import set_published_recipe

from longsum_jax.errors import InputError

ARGUMENTS = ("encoder", "cross", "model", "data", "length")
MODES = ("default", "tiny")
ROUNDS = 4  # of LSH


def get_config(
    mode="default", encoder="full", cross="full", model="", data="data/{split}.jsonl", length="1024"
):
    if not length.isdecimal() or int(length) < 64 or int(length) % 64:
        raise InputError(f"length is {length}; give a multiple of 64")
    config = fine_tuned(model, data, int(length)) if model else small(data, int(length))
    config.training.update(log_every=10, eval_every=0, checkpoint_every=100)
    config.evaluation.update(examples=50, batch_size=25)
    if mode == "tiny":
        config = shrink(config)
    config.model.update(
        equal_cost(config.task.max_source_length), encoder_attention=encoder, cross_attention=cross
    )
    return config


def fine_tuned(model, data, length):
    """Returns the config of a checkpoint with the paper's recipe."""
    task = own_data("summaries", data, max_source_length=length, max_target_length=1024)
    config = checkpoint(model, task)
    set_published_recipe(config)
    config.evaluation.max_new_tokens = min(1024, config.task.max_target_length)
    return config


def small(data, length):
    """Returns the config of a model of 1.5M parameters, which trains from scratch."""
    task = own_data("summaries", data, max_source_length=length, max_target_length=128)
    sizes = {
        "d_model": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 512,
        "decoder_ffn_dim": 512,
    }
    positions = max(task["max_source_length"], task["max_target_length"])
    config = base(
        "pegasus",
        "small",
        task,
        vocab_size=4096,
        max_position_embeddings=positions,
        init_std=0.05,
        **sizes,
    )
    config.data.batch_size = 8
    config.optimizer.update(learning_rate=3e-3, schedule="constant", warmup_steps=50, clip_norm=1.0)
    config.training.steps = 1000
    config.evaluation.update(max_new_tokens=128, no_repeat_ngram_size=3, stemmer=True)
    return config


def equal_cost(length):
    """Returns options with which a query reads equally many keys in every attention."""
    keys = min(256, length // 4)
    few = keys // 2
    return {
        "attention_window": (keys,),
        "num_global_tokens": few,
        "attention_stride": length // few,
        "num_random_blocks": 1,
        "block_size": few,
        "linformer_size": keys,
        "linformer_max_length": length,
        "lsh_num_hashes": ROUNDS,
        "lsh_chunk_length": keys // ROUNDS,
        "lsh_num_buckets": 2 * length * ROUNDS // keys,
        "hepos_stride": 4,
        "cross_linformer_size": length // 4,
        "cross_linformer_max_length": length,
    }
