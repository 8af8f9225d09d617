"""What the config files share: every section at its defaults, ready to be changed and overridden."""

import dataclasses
from typing import Any

from ml_collections import ConfigDict

from longsum_jax.experiment import default_sections
from longsum_jax.registry import preset
from longsum_jax.text.gap_sentences import GapSentenceOptions


def base(family: str, preset_name: str, task: dict[str, Any], **model: Any) -> ConfigDict:
    """A config of all sections.

    Args:
        family, preset_name: the model; ``model`` replaces some of its keys.
        task: from ``task_section``.
    """
    return ConfigDict(default_sections() | {"model": preset(family, preset_name, **model), "task": task})


def task_section(name: str, **values: Any) -> dict[str, Any]:
    """The section of a task of ``longsum_jax.data.tasks.TASKS``; what is None here is as the task has it."""
    open_keys = ("source", "document_key", "summary_key", "query_key", "data_dir", "cache_dir", "prefix")
    lengths = ("max_source_length", "max_target_length", "piece_words")
    gaps = {"gap_sentences": dataclasses.asdict(GapSentenceOptions())}
    return {"name": name, **dict.fromkeys(open_keys + lengths), **gaps, **values}


def shrink(config: ConfigDict) -> ConfigDict:
    """Turns a config into its ``tiny`` mode: the embedded corpus and a model that trains in seconds on a CPU."""
    family, dropout = config.model.family, config.model.dropout_rate
    config.model = ConfigDict(preset(family, "tiny", dropout_rate=dropout))
    config.task = ConfigDict(task_section("embedded", max_source_length=256, max_target_length=64))
    config.data.update(reader="memory", shuffle="all", batch_size=4, source_lengths=())
    config.tokenizer.path = ""
    config.training.update(steps=4, log_every=1, eval_every=0, checkpoint_every=4, accumulation=1)
    config.evaluation.update(examples=2, batch_size=2, max_new_tokens=16)
    return config
