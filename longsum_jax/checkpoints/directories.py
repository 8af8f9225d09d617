"""Locates the config of anything that can be loaded, without loading parameters."""

from pathlib import Path
from typing import Any

from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.hub import local_directory
from longsum_jax.checkpoints.lora import Adapter, is_adapter, read_adapter
from longsum_jax.checkpoints.sentence_modules import read_sentence_modules
from longsum_jax.errors import InputError
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family

# Subdirectory of a training workdir with the model's files; weights are in
# checkpoints/.
TRAINING_MODEL = "model"


def model_directory(path: Path) -> Path:
    """Returns the directory of config.json: ``path``, or its subdirectory in a training workdir.

    For an adapter it is the one of its base model.
    """
    if is_adapter(path):
        return model_directory(local_directory(base_of(read_adapter(path))))
    trained = path / TRAINING_MODEL
    if (trained / huggingface.CONFIG).exists():
        return trained
    return path


def base_of(adapter: Adapter, base: str | Path | None = None) -> str | Path:
    """Returns the path or name of an adapter's base model.

    A relative path is in the working directory or in the adapter's directory.
    """
    base = base or adapter.base
    if not base:
        raise InputError(
            f"{adapter.directory}: adapter_config.json names no base model; give one (base)"
        )
    nearby = adapter.directory / base
    if not Path(base).is_dir() and nearby.is_dir():
        base = nearby
    if Path(base).is_dir() and is_adapter(Path(base)):
        raise InputError(
            f"{adapter.directory}: its base model {base} is an adapter as well; merge that one "
            "first (longsum convert), and give the result (base)"
        )
    return base


def load_config(path: str | Path) -> tuple[Family, ModelConfig]:
    """Returns family and config of anything that ``longsum_jax.load`` accepts; loads no parameters.

    Raises:
        InputError: as ``inference.loading.load_model``.
    """
    directory = model_directory(local_directory(path))
    return huggingface.read_config(read_sentence_modules(directory)[0])


def load_generation(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the general generation options and the summarization settings, as by ``load_model``.

    Raises:
        InputError: as ``inference.loading.load_model``.
    """
    directory = model_directory(local_directory(path))
    return huggingface.read_generation_config(
        directory
    ), huggingface.read_summarization(directory)
