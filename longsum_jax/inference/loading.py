"""Loads models from directories, training runs and the Hugging Face Hub."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax import checksums
from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.directories import (
    TRAINING_MODEL,
    base_of,
    load_config,
    load_generation,
    model_directory,
)
from longsum_jax.checkpoints.hub import check_blobs, local_directory
from longsum_jax.checkpoints.lora import (
    has_matrices,
    is_adapter,
    merge_adapter,
    merged_params,
    read_adapter,
)
from longsum_jax.checkpoints.sentence_modules import read_sentence_modules
from longsum_jax.checkpoints.state_dict import check_finite
from longsum_jax.checkpoints.weights import read_weights
from longsum_jax.errors import InputError
from longsum_jax.inference.abstract import parameter_shapes
from longsum_jax.inference.model import AuxiliaryModels, LoadedModel
from longsum_jax.models.config import MatmulPrecision
from longsum_jax.models.family import Family
from longsum_jax.ops.platform import require_devices
from longsum_jax.ops.storage import Storage
from longsum_jax.schema import from_dict
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import has_tokenizer, load_tokenizer
from longsum_jax.training.lora import LoraOptions
from longsum_jax.training.trees import check_names, describe
from longsum_jax.typing import Params

__all__ = [
    "DEFAULTS",
    "TRAINING_MODEL",
    "LoadOptions",
    "load_config",
    "load_generation",
    "load_model",
    "load_shapes",
    "load_shared",
]

M = TypeVar("M", bound=LoadedModel)


class LoadOptions(NamedTuple):
    """The options of ``summarization.loading.load``, which documents them."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    matmul_precision: MatmulPrecision = "highest"
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    tokenizer: str | Path | None = None
    which: Literal["best", "latest"] = "best"
    revision: str | None = None
    architecture: str | None = None
    base: str | Path | None = None
    decoder_storage: Storage = "float32"


DEFAULTS = LoadOptions()
# Values of options that are not checked elsewhere, under the names of options.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("float32", "bfloat16"),
    "matmul_precision": get_args(MatmulPrecision),
    "param_dtype": ("float32", "bfloat16"),
    "which": ("best", "latest"),
}


def load_model(
    kind: type[M],
    path: str | Path,
    options: LoadOptions = DEFAULTS,
    *,
    on_host: bool = False,
) -> M:
    """Loads a model as ``summarization.loading.load`` does, as an object of a class.

    Args:
        kind: ``LoadedModel`` or a subclass.
        path: a directory, a workdir, an adapter, or a repository.
        options: options of loading.
        on_host: True for parameters in NumPy arrays, except of a training run.

    Raises:
        InputError: as ``summarization.loading.load``.
    """
    for name, choices in _CHOICES.items():
        value = getattr(options, name)
        if value not in choices:
            supported = " or ".join(f'"{choice}"' for choice in choices)
            raise InputError(
                f"{name}={value!r} is not supported; give {supported}"
            )
    require_devices()
    path = local_directory(path, options.revision)
    if is_adapter(path):
        return _load_adapter(kind, path, options)
    if options.base is not None:
        raise InputError(
            f"base={options.base} is for adapters, but {path} is a model; leave it out"
        )
    directory = model_directory(path)
    is_run = directory != path
    directory, modules = read_sentence_modules(directory)

    def check(directory: Path) -> None:
        checksums.check(directory)
        check_blobs(path)

    # Verify checksums concurrently with reading.
    with checksums.checking(check, directory):
        family, config = huggingface.read_config(
            directory,
            options.architecture,
            dtype=options.dtype,
            matmul_precision=options.matmul_precision,
        )
        # Weights of training runs are in checkpoints, not in the model
        # directory.
        if is_run:
            params = _trained_params(
                path, family, config, options.which, options.param_dtype
            )
        else:
            config, params = huggingface.read_params(
                directory,
                family,
                config,
                dtype=options.param_dtype,
                place=np.asarray if on_host else jax.device_put,
            )
        if modules is not None and modules.max_length is None:
            # What sentence-transformers reads without another limit.
            modules = modules._replace(max_length=config.max_source_length)
        summarization = huggingface.read_summarization(directory)
        return kind(
            family,
            config,
            params,
            _tokenizer(options.tokenizer, directory, config.vocab_size),
            huggingface.read_generation_config(directory),
            summarization,
            _auxiliary_of(directory, summarization),
            options.decoder_storage,
            modules,
        )


def _load_adapter(kind: type[M], path: Path, options: LoadOptions) -> M:
    """Loads an adapter's base model and merges the adapter into it."""
    check_blobs(path)
    adapter = read_adapter(path)
    tokenizer = options.tokenizer
    if tokenizer is None and has_tokenizer(path):
        tokenizer = path
    base = base_of(adapter, options.base)
    model = load_model(
        kind,
        base,
        options._replace(tokenizer=tokenizer, revision=None, base=None),
        # Kernels are changed in place, before they are moved to the device.
        on_host=True,
    )
    model.params = merge_adapter(
        model.params, model.family, model.config, adapter
    )
    return model


def load_shapes(
    kind: type[M],
    path: str | Path,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    matmul_precision: MatmulPrecision = "highest",
    param_dtype: Literal["float32", "bfloat16"] = "float32",
) -> M:
    """Returns the model that ``load_model`` would, with ``jax.ShapeDtypeStruct`` as parameters.

    Args:
        kind: ``LoadedModel`` or a subclass.
        path: path or name that ``load_model`` accepts.
        dtype: dtype of the computation.
        matmul_precision: precision of float32 matmuls.
        param_dtype: dtype of the parameters.

    Raises:
        InputError: as ``load_model``.
    """
    path = local_directory(path)
    directory = model_directory(path)
    family, config = huggingface.read_config(
        directory, dtype=dtype, matmul_precision=matmul_precision
    )
    if directory == path:  # the config of a training run is complete
        config = family.infer_from_weights(config, read_weights(directory)[0])
    return kind(
        family,
        config,
        parameter_shapes(family, config, param_dtype),
        None,
        huggingface.read_generation_config(directory),
        huggingface.read_summarization(directory),
    )


def _auxiliary_of(
    directory: Path, summarization: Mapping[str, Any]
) -> AuxiliaryModels:
    """Returns the models named by config.json in a model directory."""
    segments = summarization.get("segments")
    # missing, or invalid, which is reported on use
    if not isinstance(segments, Mapping):
        return AuxiliaryModels()
    paths = {name: segments.get(name) for name in AuxiliaryModels._fields}
    loaders: dict[str, Any] = {
        name: functools.partial(_load_named, directory, name, path)
        for name, path in paths.items()
        if path and isinstance(path, str)  # other types are reported on use
    }
    return AuxiliaryModels(**loaders)


def _load_named(directory: Path, name: str, path: str) -> LoadedModel:
    """Loads a model named by config.json, but never from the Hub, as the user did not name it.

    Paths are relative to the model directory or, in older files, to the working
    directory.
    """
    for candidate in (directory / path, Path(path)):
        if candidate.is_dir():
            return _load_once(candidate.resolve())
    raise InputError(
        f'{directory / huggingface.CONFIG}: segments.{name} names "{path}", and there is no such '
        f"directory in {directory} or here; copy that model to {directory / path}"
    )


def load_shared(path: str) -> LoadedModel:
    """Loads a directory or a Hub repository into host memory, once for all callers.

    Raises:
        InputError: as ``load_model``.
    """
    return _load_once(Path(path).resolve() if Path(path).is_dir() else path)


@functools.cache
def _load_once(path: str | Path) -> LoadedModel:
    """Loads a model into host memory; its programs stay compiled between uses on a device."""
    model = load_model(LoadedModel, path)
    model.to_host()
    return model


def _trained_params(
    workdir: Path,
    family: Family,
    config: Any,
    which: Literal["best", "latest"],
    dtype: str,
) -> Params:
    """Returns the parameters of a training run after comparing them with the config."""
    # Imported here because orbax takes a second to import.
    from longsum_jax.training.checkpointing import read_meta, restore_params

    metadata = read_meta(workdir, which)
    # The model directory is written by the same version.
    if checksums.is_marked(metadata):
        checksums.require(workdir / TRAINING_MODEL)
    params = restore_params(workdir, which=which)
    if has_matrices(params):
        lora = from_dict(LoraOptions, metadata["config"]["lora"], "lora")
        params = merged_params(params, lora.scale)
    shapes = family.parameter_shapes(config)
    expected = {name: [list(shape), ""] for name, shape in shapes.items()}
    # The workdir may contain checkpoints of another config.
    check_names(
        expected, describe(params), str(workdir), "parameters of the checkpoint"
    )
    weight_map = family.weight_map(config)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    for name, value in flat.items():
        check_finite(value, name, str(workdir))
        flat[name] = jnp.asarray(value, weight_map.dtype(name, dtype))
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def _tokenizer(
    path: str | Path | None, directory: Path, vocab_size: int
) -> Tokenizer | None:
    if path is None and not has_tokenizer(directory):
        return None
    return load_tokenizer(
        directory if path is None else path, vocab_size=vocab_size
    )
