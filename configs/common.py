"""What the config files share: every section at its defaults, ready to be changed and overridden."""

from typing import Any

from ml_collections import ConfigDict

from longsum_jax.experiment import default_sections
from longsum_jax.registry import preset


def base(family: str, preset_name: str, task: str, **model: Any) -> ConfigDict:
    """A config of all sections.

    Args:
        family, preset_name: the model; ``model`` replaces some of its keys.
        task: a name of ``longsum_jax.data.tasks.TASKS``.
    """
    config = ConfigDict(default_sections())
    config.model = ConfigDict(preset(family, preset_name, **model))
    # Only these keys of the task can be overridden; empty means the task's own.
    config.task = ConfigDict({"name": task, "source": "", "document_key": "", "summary_key": "", "data_dir": ""})
    return config


def shrink(config: ConfigDict) -> ConfigDict:
    """Turns a config into its ``tiny`` mode: the embedded corpus and a model that trains in seconds on a CPU."""
    config.model = ConfigDict(preset(config.model.family, "tiny"))
    config.task = ConfigDict({"name": "embedded", "max_source_length": 256, "max_target_length": 64})
    config.data.update(reader="memory", shuffle="all", batch_size=4, source_lengths=())
    config.tokenizer.path = ""
    config.training.update(steps=4, log_every=1, eval_every=0, checkpoint_every=4, accumulation=1)
    config.evaluation.update(examples=2, batch_size=2, max_new_tokens=16)
    return config
