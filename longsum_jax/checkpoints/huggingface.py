"""Directories in Hugging Face layout: configs, weights and tokenizer files.

Nothing in a directory is ever executed: weights are safetensors, or a pickle
read by torch's weights-only loader; config.json entries that refer to code are
ignored.
"""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax import atomic, checksums
from longsum_jax.checkpoints.state_dict import to_lazy_state_dict, to_params
from longsum_jax.checkpoints.weights import read_weights, write_weights
from longsum_jax.decoding.options import with_options
from longsum_jax.errors import InputError
from longsum_jax.files import read_json
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family
from longsum_jax.models.lsg_layout import plain_architecture
from longsum_jax.models.registry import family_of
from longsum_jax.schema import shortened
from longsum_jax.tokenizers.files import DOCUMENT_TOKEN, MAX_BYTES, added_ids
from longsum_jax.tokenizers.files import JSON as TOKENIZER
from longsum_jax.typing import Params

_LOG = logging.getLogger(__name__)
# Major version of transformers that every family is compared with.
_TRANSFORMERS = 5
CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TASKS, SUMMARIZATION = "task_specific_params", "summarization"  # in config.json

# Decoding options of config.json, which preceded generation_config.json, with
# their default values: old versions of transformers wrote all of them into
# every file.
_LEGACY_GENERATION = {
    "max_length": 20,
    "min_length": 0,
    "do_sample": False,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "num_return_sequences": 1,
    "max_new_tokens": None,
    "min_new_tokens": None,
    "bad_words_ids": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "decoder_start_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_SPECIAL_TOKENS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
# In the first files of BART, this flag means that bos_token_id begins every
# output.
_FORCES_FIRST = "force_bos_token_to_be_generated"


def read_config(
    directory: Path, architecture: str | None = None, **runtime: Any
) -> tuple[Family, ModelConfig]:
    """Returns the family and config of a directory.

    Args:
        architecture: name of the class in transformers whose weights the
            directory contains, if config.json names a different class or none.
        **runtime: values of fields that checkpoints do not store (dtype, ...).

    Raises:
        InputError: a missing or damaged config.json, one of an unsupported
            model, or an architecture that does not belong to its family.
    """
    path = directory / CONFIG
    raw = _read_config_json(directory)
    if architecture is not None:
        raw = raw | {"architectures": [architecture]}
    family = family_of(raw, str(path))
    _report_newer_version(path, raw)
    if family.is_encoder_decoder:
        raw = _with_special_tokens(directory, raw)
    if family.name == "led" and "global_tokens" not in raw:
        raw = raw | {"global_tokens": _document_separators(directory, raw)}
    config = family.config_of_json(raw, str(path), **runtime)
    if architecture is not None:
        [expected] = family.config_json(config)["architectures"]
        if plain_architecture(expected) != plain_architecture(architecture):
            raise InputError(
                f'{path}: "{architecture}" is not an architecture of {family.name}; try '
                f"{plain_architecture(expected)}"
            )
    return family, config


def _report_newer_version(path: Path, raw: Mapping[str, Any]) -> None:
    """Warns of a config.json that may have options without an effect here."""
    version = str(raw.get("transformers_version") or "")
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) > _TRANSFORMERS:
        _LOG.warning(
            "%s: written by transformers %s; this library reads the options of version %d, and "
            "newer ones have no effect: compare an output with transformers",
            path,
            shortened(version),
            _TRANSFORMERS,
        )


def _with_special_tokens(
    directory: Path, raw: dict[str, Any]
) -> dict[str, Any]:
    """Returns the content of config.json with the ids that only generation_config.json contains.

    transformers 5 moves ids that a user has set there.
    """
    path = directory / GENERATION
    if (
        all(raw.get(name) is not None for name in _SPECIAL_TOKENS)
        or not path.exists()
    ):
        return raw
    stored = read_json(path)
    ids = {
        name: stored[name]
        for name in _SPECIAL_TOKENS
        if stored.get(name) is not None
    }
    return ids | {
        key: value
        for key, value in raw.items()
        if value is not None or key not in ids
    }


def _document_separators(directory: Path, raw: Mapping[str, Any]) -> list[int]:
    """Returns the id of PRIMERA's separator of documents, which has global attention.

    Empty for a tokenizer without it, or for weights without its row.
    """
    if _has(directory, TOKENIZER_CONFIG):
        config = read_json(directory / TOKENIZER_CONFIG)
    else:
        config = {}
    ids = dict(added_ids(directory, config))
    if _has(directory, TOKENIZER):
        tokens = (
            read_json(directory / TOKENIZER, MAX_BYTES).get("added_tokens")
            or []
        )
        ids |= {token.get("content"): token.get("id") for token in tokens}
    index, num_rows = ids.get(DOCUMENT_TOKEN), raw.get("vocab_size", 0)
    if isinstance(index, int) and 0 <= index < num_rows:
        return [index]
    return []


def _has(directory: Path, name: str) -> bool:
    return (directory / name).exists()


def read_generation_config(directory: Path) -> dict[str, Any]:
    """Returns the content of generation_config.json, or the decoding options of config.json.

    Old versions of transformers wrote their defaults into config.json (in
    particular a max_length of 20); options with these values are left out. In
    an encoder-decoder of two models, the section of the decoder may have
    options that the file lacks.
    """
    path = directory / GENERATION
    if path.exists():
        return read_json(path)
    raw = _read_config_json(directory)
    decoder = raw.get("decoder")
    is_pair = raw.get("model_type") == "encoder-decoder"
    if is_pair and isinstance(decoder, Mapping):
        section = decoder
    else:
        section = {}
    options = {}
    for name, default in _LEGACY_GENERATION.items():
        value = raw.get(name)
        if value is None:
            value = section.get(name)
        if value not in (None, default):
            options[name] = value
    if raw.get(_FORCES_FIRST) and raw.get("bos_token_id") is not None:
        options.setdefault("forced_bos_token_id", raw["bos_token_id"])
    return options


def read_summarization(directory: Path) -> dict[str, Any]:
    """Returns the options for summarization in config.json, empty if there are none.

    They are "prefix" (T5), "segments" and options of ``generate``.

    Raises:
        InputError: a value has the wrong type.
    """
    options = _read_config_json(directory)
    for name in (TASKS, SUMMARIZATION):
        options = options.get(name) or {}
        if not isinstance(options, dict):
            raise InputError(
                f"{directory / CONFIG}: {name} must be a JSON object, got {shortened(options)}"
            )
    prefix = options.get("prefix", "")
    if not isinstance(prefix, str):
        # Published files have null for no prefix.
        if prefix is not None:
            raise InputError(
                f"{directory / CONFIG}: prefix must be a string, got {shortened(prefix)}"
            )
        options = {
            name: value for name, value in options.items() if name != "prefix"
        }
    return options


def summary_generation_config(
    generation_config: Mapping[str, Any], summarization: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the generation options for summaries: options for summarization override general
    ones.

    Args:
        generation_config: result of ``read_generation_config``.
        summarization: result of ``read_summarization``; options for reading
            documents are left out.
    """
    options = {
        k: v
        for k, v in summarization.items()
        if k not in ("prefix", "segments")
    }
    return with_options(generation_config, options)


def read_params(
    directory: Path,
    family: Family,
    config: ModelConfig,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    place: Callable[[np.ndarray], Any] = jax.device_put,
) -> tuple[ModelConfig, Params]:
    """Returns the config and parameters, from safetensors or pytorch_model.bin, single or in
    shards.

    Arrays are read and placed one parameter at a time. In the returned
    config, the fields that depend on the tensors are set, such as tied output
    weights, see ``Family.infer_from_weights``.

    Args:
        directory: directory in Hugging Face layout.
        family, config: results of ``read_config``.
        dtype: dtype of the parameters, independent of the dtype in the files.
        place: function applied to each array; by default it moves the array to
            the device.

    Raises:
        InputError: no weights, a damaged file, a pickle that contains more than
            tensors, or tensors that do not match the model.
    """
    tensors, path = read_weights(directory)
    config = family.infer_from_weights(config, tensors)
    weight_map = family.weight_map(config)
    shapes = family.parameter_shapes(config)
    params = to_params(
        tensors,
        weight_map,
        shapes,
        str(path),
        dtype=jnp.dtype(dtype),
        place=place,
    )
    return config, params


def write_model(
    directory: str | Path,
    family: Family,
    config: ModelConfig,
    params: Params | None,
    generation_config: Mapping[str, Any],
    tokenizer: Any = None,
    summarization: Mapping[str, Any] | None = None,
    subdirectories: Mapping[str, Callable[[Path], None]] = MappingProxyType({}),
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
) -> None:
    """Writes a directory that ``longsum_jax.load`` and the published PyTorch code can read.

    All files are first written to a temporary directory and moved into place at
    the end, with checksums for ``longsum_jax.checksums`` and ``longsum
    verify``; transformers ignores them.

    Args:
        directory: path that must not exist, or an empty directory.
        params: parameter tree; None to leave out the weights (a training
            workdir has them in its checkpoints).
        tokenizer: tokenizer whose files are added, if not None.
        summarization: result of ``read_summarization``.
        subdirectories: functions that each write a subdirectory, by its name,
            for models that this model needs.
        dtype: dtype of the weights in the file (weights of state-space kernels
            remain float32); None for the dtype of the parameters.

    Raises:
        InputError: the directory is not empty or cannot be written, or a weight
            is out of the range of ``dtype``.
    """
    target = Path(directory)
    check_target(target)
    config_json = family.config_json(config)
    if summarization:
        config_json |= {TASKS: {SUMMARIZATION: dict(summarization)}}
    if dtype is not None:
        config_json |= {"torch_dtype": dtype}
    try:
        with atomic.new_directory(target) as work:
            _write_json(work / CONFIG, config_json)
            if generation_config:
                _write_json(work / GENERATION, dict(generation_config))
            if tokenizer is not None:
                tokenizer.save(work)
                _write_tokenizer_limit(
                    work / TOKENIZER_CONFIG, config.max_source_length
                )
            if params is not None:
                write_weights(
                    work,
                    to_lazy_state_dict(
                        params, family.weight_map(config), dtype
                    ),
                    checksums.MARK,
                )
            for name, write in subdirectories.items():
                write(work / name)
            checksums.write(work)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); give another path"
        ) from error


def check_target(target: Path) -> None:
    """Raises an InputError unless a model can be written to ``target`` without replacing files."""
    try:
        is_taken = target.exists() and (
            not target.is_dir() or any(target.iterdir())
        )
    except OSError as error:  # a name that is too long, or missing permissions
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); give another path"
        ) from error
    if is_taken:
        raise InputError(
            f"{target}: exists and is not an empty directory; give another path"
        )


def _write_tokenizer_limit(path: Path, limit: int | None) -> None:
    """Writes the maximum input length of this model, at which transformers truncates texts."""
    if limit is not None and path.exists():
        _write_json(path, read_json(path) | {"model_max_length": limit})


def _read_config_json(directory: Path) -> dict[str, Any]:
    """Returns the content of config.json."""
    path = directory / CONFIG
    if not path.exists():
        raise InputError(
            f"{path}: no such file; a model directory holds {CONFIG} and weights"
        )
    return read_json(path)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(
        json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
