"""AWESOME: whole documents segment by segment, with memories and important sentences from other
segments (Cao & Wang 2023).

    python -m longsum_jax.train --config=configs/awesome.py:govreport,variant=attn+txt \
        --workdir=runs/govreport --config.init_from=bart-large \
        --config.task.segments.extractor=runs/extractor
    longsum summarize --model=runs/govreport book.txt

Published configuration: BART large, segments of 512 to 768 tokens, a memory of 1,024 slots in the
first (compressive) or last (attentive; BookSum: all) three layers of encoder and decoder, 5 states
compressed into one, gradients through one segment's writing, 1,024 tokens or vectors of important
sentences, learning rate 5e-5, one document at a time and 8 per update, 51,200 tokens of a document
in training. Not published, and our choice: AdamW; weight decay 0.01, label smoothing 0.1, clipping
at 0.1, linear decay, four beams, length penalty 2 and no repeated trigrams, the settings of Hepos'
scripts for BART large on GovReport (configs/hepos.py); sentences compared by TF-IDF (with
task.segments.sentence_encoder=DIR, by a model). Modes are data sets, each with the paper's passes
and warm-up; the learning rate reaches zero at the end of the passes. `govreport` and `qmsum` read
the authors' releases in the directories gov-report and QMSum, `summscreen` is TMS, and `booksum`
reads a clone of abertsch/booksum-fullbooks, the whole books of Unlimiformer; config.task.source
sets other directories. `json` reads your own files (data='reports/{split}.jsonl') with GovReport's
passes, `small` trains a small model from scratch on your files on a CPU, `tiny` runs in seconds.
With model=DIR, `json` and `small` continue from a checkpoint of any encoder-decoder instead, and
replace its memory, if any, by the variant's; state-space and sparse encoders support only the
attentive one. If it has fewer positions, segments are shorter.

variant=     se3 (no memory), compressive, attentive, txt and kv (important sentences as text or as
             vectors), attn+txt; by default attn+txt, for booksum attentive, as in its tables
decoder_memory=false   leaves the decoder without a memory
model.memory_backprop=3 (segments, 0 for all), model.memory_layers=all, ... change what the paper
leaves open

txt, kv and attn+txt are designed for an extractor trained by configs/extractor.py; without one, the
sentences nearest to the mean of their document (TF-IDF) count as important.
"""

import dataclasses
from typing import NamedTuple

from longsum_jax.configs.common import base, checkpoint, own_data, shrink, task_section

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.segment_inputs import SegmentInputOptions

ARGUMENTS = ("variant", "decoder_memory", "data", "model")
MODES = ("govreport", "qmsum", "summscreen", "arxiv", "booksum", "json", "small", "tiny")
OF_ANY_MODEL = ("json", "small")
NO_MEMORY = {"memory": "none", "salient_vectors": 0}
# Variant -> options of the model, and how important sentences are read.
VARIANTS = {
    "se3": ({}, "none"),
    "compressive": ({"memory": "compressive"}, "none"),
    "attentive": ({"memory": "attentive"}, "none"),
    "txt": ({}, "text"),
    "kv": ({"salient_vectors": 1024}, "vectors"),
    "attn+txt": ({"memory": "attentive"}, "text"),
}


class DataSet(NamedTuple):
    """A data set of the paper: its task, passes over the data, and steps of warm-up."""

    task: str
    epochs: int
    warmup_steps: int


# Passes and warm-up: appendix D. Appendix C.1 has the sources: GovReport and QMSum as released, the
# TMS subset of SummScreen, BookSum in Unlimiformer's version.
DATA_SETS = {
    "govreport": DataSet("govreport", 3, 300),
    "qmsum": DataSet("qmsum", 9, 100),
    "summscreen": DataSet("summscreentms", 6, 300),
    "arxiv": DataSet("arxiv", 2, 1000),
    "booksum": DataSet("booksum_fullbooks", 10, 40),
    "json": DataSet("summaries", 3, 300),
}


def get_config(
    mode="govreport", variant=None, decoder_memory="true", data="data/{split}.jsonl", model=""
):
    variant = variant or ("attentive" if mode == "booksum" else "attn+txt")
    if variant not in VARIANTS:
        raise InputError(f'variant "{variant}" is unknown; {did_you_mean(variant, VARIANTS)}')
    if decoder_memory not in ("true", "false"):
        raise InputError(f'decoder_memory is "{decoder_memory}"; give true or false')
    if model and mode not in OF_ANY_MODEL:
        raise InputError(f"model={model}: only {' and '.join(OF_ANY_MODEL)} have it, not {mode}")
    memory, salient = VARIANTS[variant]
    memory = NO_MEMORY | memory | {"memory_decoder": decoder_memory == "true"}
    if mode in ("small", "tiny"):
        return small(mode, memory, salient, data, model)
    if mode == "booksum" and memory["memory"] == "attentive":
        memory |= {"memory_layers": "all"}
    reading = {"max_source_length": 1024, "max_target_length": 512, "max_parts": 128}
    reading |= {
        "objective": "summarize_segments",
        "segments": dataclasses.asdict(SegmentInputOptions(salient=salient)),
    }
    task = task_of(mode, data, reading)
    config = checkpoint(model, task) if model else base("bart", "large", task)
    config.model.update(memory, dtype="bfloat16")
    shorten_segments(config.task)
    train_as_published(config, mode)
    config.data.source_lengths = (8, 16, 32, 64, 128)
    return config


def data_set_named(name):
    """Returns an entry of ``DATA_SETS``."""
    if name not in DATA_SETS:
        raise InputError(f'data_set "{name}" is unknown; {did_you_mean(name, DATA_SETS)}')
    return DATA_SETS[name]


def task_of(data_set, data, values):
    """Returns the section of the task of a data set, or of the user's own files for "json"."""
    name = data_set_named(data_set).task
    return own_data(name, data, **values) if data_set == "json" else task_section(name, **values)


def train_as_published(config, data_set, learning_rate=5e-5):
    """Sets what runs of AWESOME and of its baselines have in common.

    Learning rate, passes, warm-up and batches are published (appendix D). Optimizer, schedule,
    weight decay, clipping, label smoothing and all generation options are not: they are the
    settings of Hepos' published scripts, with AdamW. The number of steps follows from the documents
    of the data set, 8 a step. Summaries may be as long as targets, which ``checkpoint`` lowers to
    the number of positions of the model.
    """
    _, epochs, warmup = data_set_named(data_set)
    config.data.update(batch_size=8, epochs=epochs)
    config.optimizer.update(
        name="adamw",
        learning_rate=learning_rate,
        schedule="linear",
        warmup_steps=warmup,
        weight_decay=0.01,
        clip_norm=0.1,
    )
    config.loss.label_smoothing = 0.1
    config.training.update(
        steps=1_000_000, log_every=10, eval_every=500, checkpoint_every=100, accumulation=8
    )
    if data_set == "booksum":
        config.training.eval_every = "epoch"  # of some 40 steps
    config.evaluation.update(
        examples=100,
        batch_size=8,
        max_new_tokens=config.task.max_target_length,
        num_beams=4,
        length_penalty=2.0,
        no_repeat_ngram_size=3,
        stemmer=True,
    )


def shorten_segments(task):
    """Leaves a quarter of a source free next to a segment, as the published sizes do."""
    longest = task.max_source_length
    if task.segments.max_tokens > 3 * longest // 4:
        task.segments.update(min_tokens=longest // 2, max_tokens=3 * longest // 4)


def small(mode, memory, salient, data, model):
    """Returns the config of a PEGASUS of width 128, trained from scratch, or of ``model``.

    Segments have 192 to 256 tokens and up to a sentence more, sources 512, memories 64 slots or
    vectors. PEGASUS is pre-norm; a small BART, which is post-norm, learned to ignore its source.
    """
    if memory["salient_vectors"]:
        memory = memory | {"salient_vectors": 64}
    options = SegmentInputOptions(
        min_tokens=192, max_tokens=256, salient=salient, train_tokens=4096
    )
    # Room for important sentences; equal without them, because it also limits segments.
    reading = {"max_source_length": 512, "max_target_length": 64, "max_parts": 24}
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
        "max_position_embeddings": 512,
        "init_std": 0.05,
    }
    task = own_data("summaries", data, **reading)
    config = checkpoint(model, task) if model else base("pegasus", "small", task, **sizes)
    config.model.update(memory, memory_size=64)
    shorten_segments(config.task)
    config.data.update(batch_size=8, source_lengths=(8, 16, 24))
    config.optimizer.update(
        learning_rate=1e-3, schedule="linear", warmup_steps=30, weight_decay=0.01
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
