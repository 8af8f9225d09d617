"""Helpers of the config files: every section at its defaults, ready to be changed."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.hub import local_directory
from longsum_jax.checkpoints.weights import read_weights
from longsum_jax.data.tasks import get_task, source_of
from longsum_jax.experiment.config import default_sections
from longsum_jax.inference.loading import TRAINING_MODEL
from longsum_jax.models.registry import flat_section, get_family, preset
from longsum_jax.text.gap_sentences import GapSentenceOptions

# Options of several attentions; LSG has other defaults than the rest.
ATTENTION_SIZES = ("block_size", "num_global_tokens")
HIDDEN_DROPOUTS = {"dropout", "dropout_rate", "hidden_dropout_prob"}  # one in every family
# Objective -> changes of its task in the ``tiny`` modes.
_SHORT_OPTIONS = {
    "extract": {"max_source_length": 32, "max_parts": 16},
    "choose": {"max_parts": 2},
    "claims": {"claims": {"piece_words": 60}},
    "cloze": {"cloze": {"context_words": 60, "question_words": 10}},
}
# Objectives that the ``tiny`` modes keep.
KEPT_OBJECTIVES = (
    *("classify", "mlm", "lm", "extract", "answer", "choose", "claims", "cloze", "prefer"),
)
LENGTHS = ("max_source_length", "max_target_length")  # of tasks; limited by positions
OWN_FILES = "data/{split}.jsonl"  # files that configs read without ``data``


def base(family: str, preset_name: str, task: dict[str, Any], **model: Any) -> ConfigDict:
    """Returns a config with all sections.

    Keys of the model that depend on other choices are None: the dropout rates, for the rates of
    ``init_from``, and ``ATTENTION_SIZES``.

    Args:
        family, preset_name: family and preset of the model; ``model`` replaces some of its keys.
        task: section from ``task_section``.
    """
    section = preset(family, preset_name, **model)
    rates = {key for key in section if "dropout" in key}
    section = _left_open(section, {*ATTENTION_SIZES, *rates} - model.keys())
    return _config_dict({"model": section, "task": task})


def checkpoint(model: str, task: dict[str, Any]) -> ConfigDict:
    """Returns a config that trains a checkpoint further, with the prefix of its sources.

    Args:
        model: a model directory, a training workdir, or a name on the Hub.
        task: section from ``task_section``; its lengths are lowered to the model's positions.
    """
    directory = local_directory(model)
    run = directory / TRAINING_MODEL
    described = run if (run / huggingface.CONFIG).exists() else directory
    family, values = huggingface.read_config(described)
    if described is directory:
        values = family.infer_from_weights(values, read_weights(directory)[0])
    task = task | {"prefix": huggingface.read_summarization(described).get("prefix", "")}
    for name in LENGTHS:
        if (table := getattr(values, name, None)) is not None:
            expected = task[name] or getattr(get_task(task["name"]), name)
            task[name] = min(expected, table)
    section = {"family": family.name, **flat_section(values)}
    if "lsg" not in values.encoder_attention:
        section = _left_open(section, ATTENTION_SIZES)
    return _config_dict({"model": section, "task": task, "init_from": model})


def encoder(model: str, task: dict[str, Any]) -> ConfigDict:
    """Returns a config that trains a checkpoint further, or without one a small BERT from scratch.

    Args:
        model, task: arguments as for ``checkpoint``; model "" for none.
    """
    return checkpoint(model, task) if model else new_bert("small", task)


def new_bert(preset_name: str, task: dict[str, Any], **model: Any) -> ConfigDict:
    """Returns a config of a BERT from scratch, with a tokenizer trained on the data.

    A SentencePiece tokenizer has no special tokens of BERT's; two extra ids stand for [MASK] and
    [CLS].

    Args:
        preset_name, task, **model: arguments as for ``base``.
    """
    task = task | {"prefix": "<extra_id_1>"}
    config = base("bert", preset_name, task, vocab_size=8192, **model)
    config.tokenizer.extra_ids = 2
    return config


def _left_open(section: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Returns the section of a model with None for the ``keys`` that have their defaults."""
    defaults = get_family(section["family"]).config_class.flat_defaults()
    at_default = [key for key in keys if section[key] == defaults[key]]
    return section | dict.fromkeys(at_default)


def _config_dict(sections: dict[str, Any]) -> ConfigDict:
    """Returns the defaults of all sections with ``sections`` in their place."""
    # A ConfigDict would refuse training.eval_every="epoch" in place of a number; types are checked
    # when the run's config is built.
    return ConfigDict(default_sections() | sections, type_safe=False)


def set_dropout(config: ConfigDict, rate: float) -> None:
    """Sets the dropout rate of the hidden states, whatever its name in the model's family."""
    (name,) = HIDDEN_DROPOUTS.intersection(config.model.keys())
    config.model[name] = rate


def buckets(longest: int, shortest: int = 1024) -> tuple[int, ...]:
    """Returns the padded lengths of sources: ``shortest``, its doubles, and ``longest``."""
    lengths = [longest]
    while shortest < longest:
        lengths.append(shortest)
        shortest *= 2
    return tuple(sorted(lengths))


def own_data(name: str, data: str, **values: Any) -> dict[str, Any]:
    """Returns the section of a task over the user's own data: files, or a source of ``Task``.

    Of the documents in files without "{split}", a tenth is held out for evaluation; other sources,
    such as "hf:ORG/NAME" or "seqio:MODULE:NAME", have their own splits.
    """
    section = task_section(name, source=source_of(data), **values)
    is_undivided = get_task(name, source=section["source"]).is_undivided
    section["held_out"] = 0.1 if is_undivided else 0.0
    return section


def task_section(name: str, **values: Any) -> dict[str, Any]:
    """Returns the section of a task of ``longsum_jax.data.tasks.TASKS``.

    None selects the task's default.
    """
    open_keys = (
        "source",
        "document_key",
        "summary_key",
        "query_key",
        "document_separator",
        "label_key",
        "choices_key",
        "rejected_key",
        "objective",
        "data_dir",
        "cache_dir",
        "prefix",
    )
    others = ("piece_words", "held_out", "half", "labels")
    sections = {"gap_sentences": dataclasses.asdict(GapSentenceOptions())}
    for key in ("claims", "cloze"):
        if (options := getattr(get_task(name), key)) is not None:
            sections[key] = dataclasses.asdict(options)
    return {"name": name, **dict.fromkeys(open_keys + LENGTHS + others), **sections, **values}


def shrink(config: ConfigDict) -> ConfigDict:
    """Turns a config into its ``tiny`` mode, which trains in seconds on a CPU.

    It has a tiny model, and the embedded corpus in place of large data sets. The user's own files
    are kept, also files at the default path if they exist, and so is a checkpoint, with its
    tokenizer, prefix and lengths.
    """
    objective = config.task.get("objective") or get_task(config.task.name).objective
    short = {"max_source_length": 256, "max_target_length": 64, "prefix": config.task.prefix}
    has_own_files = Path(OWN_FILES.format(split="train")).exists()
    if config.task.source is None or (
        config.task.source == f"json:{OWN_FILES}" and not has_own_files
    ):
        task = task_section("embedded", **short)
    else:
        own = {key: config.task[key] for key in ("source", "held_out", "half", "labels")}
        task = task_section(config.task.name, **own, **short)
    if objective in KEPT_OBJECTIVES:
        task["objective"] = objective
    task |= _SHORT_OPTIONS.get(objective, {})
    if config.init_from:
        task |= {name: min(task[name], config.task[name] or task[name]) for name in LENGTHS}
    else:
        retained = {key: config.model[key] for key in ("dropout_rate",) if key in config.model}
        config.model = ConfigDict(preset(config.model.family, "tiny", **retained))
    config.task = ConfigDict(task)
    config.data.update(reader="memory", shuffle="all", batch_size=4, source_lengths=())
    config.tokenizer.path = ""
    config.training.update(steps=4, log_every=1, eval_every=0, checkpoint_every=4, accumulation=1)
    config.evaluation.update(examples=2, batch_size=2, max_new_tokens=16)
    return config
