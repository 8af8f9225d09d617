"""Loads models from directories, training runs and the Hugging Face Hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import flax.traverse_util
import jax.numpy as jnp

from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.hub import local_directory
from longsum_jax.errors import InputError
from longsum_jax.models.family import Family
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import has_tokenizer, load_tokenizer
from longsum_jax.typing import Params

if TYPE_CHECKING:
    pass

from longsum_jax.inference.model import Model

TRAINING_MODEL = (
    "model"  # inside a training workdir: the model directory, its weights being in checkpoints/
)


def load(
    path: str | Path,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    param_dtype: Literal["float32", "bfloat16"] = "float32",
    tokenizer: str | Path | None = None,
    which: Literal["best", "latest"] = "best",
    revision: str | None = None,
) -> Model:
    """Loads a model directory, a training workdir, or a repository of the Hugging Face hub.

    Args:
        path: a directory in Hugging Face layout (as published, or written by ``save`` or
            ``convert``), or the workdir of a training run; or the name "org/name" of a repository.
        dtype: of the computation.
        param_dtype: of the parameters; "bfloat16" halves their memory (those of state-space kernels
            stay float32).
        tokenizer: a .model file or directory to use instead of the one in ``path``.
        which: of a training run: the best checkpoint by its evaluation, or the latest.
        revision: of a repository: branch, tag or commit.

    Raises:
        InputError: names the file that is missing, damaged or does not fit.
    """
    if param_dtype not in ("float32", "bfloat16"):
        raise InputError(
            f'param_dtype={param_dtype!r} is not supported; give "float32" or "bfloat16"'
        )
    path = local_directory(path, revision)
    run = path / TRAINING_MODEL
    directory = run if (run / huggingface.CONFIG).exists() else path
    family, config = huggingface.read_config(directory, dtype=dtype)
    if directory is run:
        params = _trained_params(path, family, config, which, param_dtype)
    else:
        config, params = huggingface.read_params(directory, family, config, dtype=param_dtype)
    return Model(
        family,
        config,
        params,
        _tokenizer(tokenizer, directory, config.vocab_size),
        huggingface.read_generation_config(directory),
        huggingface.read_summarization(directory),
    )


def _trained_params(
    workdir: Path, family: Family, config: Any, which: Literal["best", "latest"], dtype: str
) -> Params:
    """Parameters of a training run, which must be those of the config beside them."""
    from longsum_jax.training.checkpointing import check_names, describe, restore_params

    params = restore_params(workdir, which=which)
    wanted = {name: [list(shape), ""] for name, shape in family.parameter_shapes(config).items()}
    check_names(wanted, describe(params), str(workdir), "parameters of the checkpoint")
    table = family.weight_map(config)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    flat = {name: jnp.asarray(value, table.dtype(name, dtype)) for name, value in flat.items()}
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def _tokenizer(given: str | Path | None, directory: Path, vocab_size: int) -> Tokenizer | None:
    if given is not None:
        return load_tokenizer(given, vocab_size=vocab_size)
    return load_tokenizer(directory, vocab_size=vocab_size) if has_tokenizer(directory) else None
