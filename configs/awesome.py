"""AWESOME: whole documents segment by segment, with memories and important sentences of elsewhere
(Cao & Wang 2023).

    python -m longsum_jax.train --config=configs/awesome.py:govreport,variant=attn+txt \
        --workdir=runs/govreport --config.init_from=bart-large \
        --config.task.segments.extractor=runs/extractor
    longsum summarize --model=runs/govreport book.txt

Published configuration: BART large, segments of 512 to 768 tokens, a memory of 1,024 slots in the
first (compressive) or last (attentive; BookSum: all) three layers of encoder and decoder, 5 states
compressed into one, gradients through one segment's writing, 1,024 tokens or vectors of important
sentences, learning rate 5e-5, one document at a time and 8 for an update, 51,200 tokens of a
document in training. Not published, and chosen here: AdamW with weight decay 0.01, linear decay,
label smoothing 0.1, clipping at 0.1, four beams, length penalty 2, no trigram twice, segments
compared by TF-IDF (task.segments.sentence_encoder=DIR compares them by a model). Modes are data
sets; `json` reads files of your own (data='reports/{split}.jsonl'), `small` trains a small model
from nothing on them on a CPU, `tiny` runs in seconds.

variant=     se3 (no memory), compressive, attentive, txt and kv (important sentences as text or as
             vectors), attn+txt
decoder_memory=false   leaves the decoder without a memory
model.memory_backprop=3 (segments, 0 for all), model.memory_layers=all, ... change what the paper
leaves open

txt, kv and attn+txt are meant for an extractor of configs/extractor.py; without one, the sentences
nearest to the mean of their document (TF-IDF) count as important.
"""

import dataclasses

from longsum_jax.configs.common import base, own_data, shrink, task_section

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.segment_inputs import SegmentInputOptions

ARGUMENTS = ("variant", "decoder_memory", "data")
MODES = ("govreport", "qmsum", "summscreen", "arxiv", "booksum", "json", "small", "tiny")
# Variant -> options of the model, and how important sentences are read.
VARIANTS = {
    "se3": ({}, "none"),
    "compressive": ({"memory": "compressive"}, "none"),
    "attentive": ({"memory": "attentive"}, "none"),
    "txt": ({}, "text"),
    "kv": ({"salient_vectors": 1024}, "vectors"),
    "attn+txt": ({"memory": "attentive"}, "text"),
}
# Mode -> task, epochs, steps of warm-up, documents for training.
DATA_SETS = {
    "govreport": ("govreport", 3, 300, 17_457),
    "qmsum": ("qmsum", 9, 100, 1_257),
    "summscreen": ("summscreenfd", 6, 300, 3_673),
    "arxiv": ("arxiv", 2, 1000, 203_037),
    "booksum": ("booksum_book", 10, 40, 314),
    "json": ("summaries", 3, 300, 10_000),
}


def get_config(mode, variant="attn+txt", decoder_memory="true", data="data/{split}.jsonl"):
    if variant not in VARIANTS:
        raise InputError(f'variant "{variant}" is unknown; {did_you_mean(variant, VARIANTS)}')
    if decoder_memory not in ("true", "false"):
        raise InputError(f'decoder_memory is "{decoder_memory}"; give true or false')
    memory, salient = VARIANTS[variant]
    memory = memory | {"memory_decoder": decoder_memory == "true"}
    if mode in ("small", "tiny"):
        return small(mode, memory, salient, data)
    name, epochs, warmup, documents = DATA_SETS[mode]
    if mode == "booksum" and "memory" in memory:
        memory |= {"memory_layers": "all"} if memory["memory"] == "attentive" else {}
    reading = {"max_source_length": 1024, "max_target_length": 512, "max_parts": 128}
    reading |= {
        "objective": "summarize_segments",
        "segments": dataclasses.asdict(SegmentInputOptions(salient=salient)),
    }
    task = own_data(name, data, **reading) if mode == "json" else task_section(name, **reading)
    config = base("bart", "large", task, dtype="bfloat16", **memory)
    steps = documents * epochs // 8
    config.data.update(batch_size=8, epochs=epochs, source_lengths=(8, 16, 32, 64, 128))
    config.optimizer.update(
        name="adamw", learning_rate=5e-5, schedule="linear", warmup_steps=warmup
    )
    config.optimizer.update(total_steps=steps + 1, weight_decay=0.01, clip_norm=0.1)
    config.loss.label_smoothing = 0.1
    config.training.update(
        steps=steps, log_every=10, eval_every=500, checkpoint_every=100, accumulation=8
    )
    if mode == "booksum":
        config.training.eval_every = "epoch"  # of 39 steps
    config.evaluation.update(
        examples=100,
        batch_size=8,
        max_new_tokens=512,
        num_beams=4,
        length_penalty=2.0,
        no_repeat_ngram_size=3,
        stemmer=True,
    )
    return config


def small(mode, memory, salient, data):
    """Returns the config of a PEGASUS of width 128 that trains from nothing.

    Segments have 192 to 256 tokens, memories 64 slots or vectors. The model normalises before each
    part; a small BART, which normalises after, learnt to ignore its source.
    """
    if "salient_vectors" in memory:
        memory = memory | {"salient_vectors": 64}
    options = SegmentInputOptions(
        min_tokens=192, max_tokens=256, salient=salient, train_tokens=4096
    )
    reading = {"max_source_length": 320, "max_target_length": 64, "max_parts": 24}
    reading |= {"objective": "summarize_segments", "segments": dataclasses.asdict(options)}
    sizes = {
        "vocab_size": 4096,
        "d_model": 128,
        "encoder_ffn_dim": 512,
        "decoder_ffn_dim": 512,
        "dropout": 0.1,
    }
    sizes |= {
        "encoder_layers": 3,
        "decoder_layers": 3,
        "max_position_embeddings": 320,
        "init_std": 0.05,
    }
    config = base(
        "pegasus",
        "small",
        own_data("summaries", data, **reading),
        **sizes,
        memory_size=64,
        **memory,
    )
    config.data.update(batch_size=8, source_lengths=(8, 16, 24))
    config.optimizer.update(
        learning_rate=1e-3, schedule="linear", warmup_steps=30, total_steps=401, weight_decay=0.01
    )
    config.training.update(steps=400, log_every=10, eval_every=200, checkpoint_every=100)
    config.evaluation.update(
        examples=16, batch_size=8, max_new_tokens=64, num_beams=1, no_repeat_ngram_size=3
    )
    if mode == "small":
        return config
    config = shrink(config)
    config.model.update(memory, memory_size=16)
    options = dataclasses.replace(options, min_tokens=24, max_tokens=32)
    config.task.update(objective="summarize_segments", segments=dataclasses.asdict(options))
    config.task.update(max_source_length=64, max_target_length=16, max_parts=8)
    return config
