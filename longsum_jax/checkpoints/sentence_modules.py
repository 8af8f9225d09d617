"""Directories of sentence-transformers: an encoder, and modules that make a vector of its states.

A file ``modules.json`` lists the modules: the encoder, a pooling (Reimers &
Gurevych 2019, section 3), then dense layers and normalizations in any order.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from longsum_jax.checkpoints.weights import read_weights, write_weights
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.files import parse_json, read_bytes, read_json
from longsum_jax.layers.dense import ACTIVATIONS

MODULES = "modules.json"
_PROMPTS = "config_sentence_transformers.json"
_LENGTHS = "sentence_bert_config.json"
# Names of this file in older directories.
_OLD_LENGTHS = tuple(
    f"sentence_{name}_config.json"
    for name in (
        "roberta",
        "distilbert",
        "camembert",
        "albert",
        "xlm-roberta",
        "xlnet",
    )
)
_TOKENIZER = "tokenizer_config.json"
_MAX_BYTES = 2**20
# Tokenizers without a limit have one of 10^30 tokens.
_NO_LIMIT = 2**31
_EPSILON = 1e-12  # smallest norm that vectors are divided by

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len_tokens"]
# Pooling to its entry of config.json, in the order of concatenated vectors.
_POOLINGS: dict[Pooling, str] = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
}
# Options of modules that change vectors, with the only supported values.
_SUPPORTED = {
    "use_residual": (False,),
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", None),
}
# Class of torch to the name of the activation.
_ACTIVATIONS = {
    "Identity": None,
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
}


class DenseLayer(NamedTuple):
    """A linear layer and an activation.

    Attributes:
        kernel: float32 [inputs, outputs].
        bias: float32 [outputs], or None.
        activation: class of torch, a key of ``_ACTIVATIONS``.
    """

    kernel: np.ndarray
    bias: np.ndarray | None
    activation: str


class SentenceModules(NamedTuple):
    """The steps from the states of a sentence to its vector.

    Attributes:
        poolings: poolings whose vectors are concatenated, in this order.
        steps: dense layers, and None for a normalization to length 1.
        max_length: maximum tokens read of a sentence, special tokens included;
            None for no limit.
        lowercase: True to lower-case sentences before they are tokenized.
        prompt: text before every sentence.
    """

    poolings: tuple[Pooling, ...] = ("mean",)
    steps: tuple[DenseLayer | None, ...] = ()
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""

    def size(self, d_model: int) -> int:
        """Returns the size of a vector, for states of size ``d_model``."""
        sizes = [
            step.kernel.shape[1] for step in self.steps if step is not None
        ]
        if sizes:
            return sizes[-1]
        return d_model * len(self.poolings)

    @property
    def fingerprint(self) -> str:
        """A short hash of the modules."""
        digest = hashlib.blake2b(digest_size=8)
        for step in self.steps:
            if step is None:
                arrays = []
            else:
                arrays = [step.kernel, step.bias]
            for array in arrays:
                digest.update(
                    b"" if array is None else np.ascontiguousarray(array).data
                )
        activations = [step and step.activation for step in self.steps]
        digest.update(repr((self._replace(steps=()), activations)).encode())
        return digest.hexdigest()

    def prepare(self, sentence: str) -> str:
        """Returns the text of a sentence that the encoder reads."""
        text = self.prompt + sentence
        return text.lower() if self.lowercase else text

    def vectors(
        self,
        states: Float[np.ndarray, "batch length d_model"],
        mask: Bool[np.ndarray, "batch length"],
    ) -> Float[np.ndarray, "batch size"]:
        """Returns the vectors of sentences.

        Args:
            states: states of the encoder.
            mask: True on real tokens, which are at the start of every row.
        """
        x = np.concatenate(
            [_pool(name, states, mask) for name in self.poolings], -1
        )
        for step in self.steps:
            if step is None:
                norms = np.linalg.norm(x, axis=-1, keepdims=True)
                x = x / np.maximum(norms, _EPSILON)
                continue
            x = x @ step.kernel
            x = x if step.bias is None else x + step.bias
            name = _ACTIVATIONS[step.activation]
            if name is not None:
                x = np.asarray(ACTIVATIONS[name](x))
        return x


def _pool(name: Pooling, states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns one vector per row, [batch, d_model]."""
    if name == "cls":
        return states[:, 0]
    real = mask[..., None]
    if name == "max":
        return np.where(real, states, -1e9).max(1)
    total = np.where(real, states, 0).sum(1)
    count = np.maximum(real.sum(1), 1).astype(np.float32)
    return total / (np.sqrt(count) if name == "mean_sqrt_len_tokens" else count)


def read_sentence_modules(
    directory: Path,
) -> tuple[Path, SentenceModules | None]:
    """Returns the directory of the encoder, and its modules.

    Args:
        directory: model directory; without modules.json it is the encoder's,
            and the result has no modules.

    Raises:
        InputError: a damaged file, or a module or pooling that is not
            supported.
    """
    path = directory / MODULES
    if not path.exists():
        return directory, None
    try:
        modules = parse_json(read_bytes(path, _MAX_BYTES))
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); copy the file again"
        ) from None
    is_list = isinstance(modules, list) and all(
        isinstance(x, Mapping) for x in modules
    )
    if is_list:
        kinds = [_kind(module, path) for module in modules]
    else:
        kinds = []
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise InputError(
            f"{path}: the first modules must be Transformer and Pooling"
        )
    paths = [_module_path(directory, module, path) for module in modules]
    steps: list[DenseLayer | None] = []
    for kind, module_path in zip(kinds[2:], paths[2:], strict=True):
        if kind == "Dense":
            steps.append(_read_dense(module_path))
        elif kind == "Normalize":
            _check_options(module_path / "config.json")
            steps.append(None)
        else:
            raise InputError(
                f'{path}: the module "{kind}" is not supported; supported are Dense and Normalize'
            )
    limit, lowercase = _read_lengths(paths[0])
    prompt = _read_prompt(directory / _PROMPTS)
    return paths[0], SentenceModules(
        _read_pooling(paths[1] / "config.json", bool(prompt)),
        tuple(steps),
        limit,
        lowercase,
        prompt,
    )


def write_sentence_modules(
    directory: Path, modules: SentenceModules, d_model: int
) -> None:
    """Writes modules.json and the directories of all modules except the encoder.

    Args:
        directory: directory of the encoder.
        modules: modules to write.
        d_model: size of the encoder's states.
    """
    kinds = ["Transformer", "Pooling"]
    kinds += [
        "Normalize" if step is None else "Dense" for step in modules.steps
    ]
    entries: list[dict[str, Any]] = []
    for index, kind in enumerate(kinds):
        folder = f"{index}_{kind}" if index else ""
        module_type = f"sentence_transformers.models.{kind}"
        entries.append(
            {
                "idx": index,
                "name": str(index),
                "path": folder,
                "type": module_type,
            }
        )
        (directory / folder).mkdir(exist_ok=True)
    _write(directory / MODULES, entries)
    pooling: dict[str, Any] = {"word_embedding_dimension": d_model}
    if _is_ordered(modules.poolings):
        pooling |= {
            key: name in modules.poolings for name, key in _POOLINGS.items()
        }
    else:  # only newer versions read a list, and keep its order
        pooling["pooling_mode"] = list(modules.poolings)
    _write(directory / entries[1]["path"] / "config.json", pooling)
    lengths = {
        "max_seq_length": modules.max_length,
        "do_lower_case": modules.lowercase,
    }
    _write(directory / _LENGTHS, lengths)
    if modules.prompt:
        prompts = {
            "prompts": {"default": modules.prompt},
            "default_prompt_name": "default",
        }
        _write(directory / _PROMPTS, prompts)
    for entry, step in zip(entries[2:], modules.steps, strict=True):
        if step is not None:
            _write_dense(directory / entry["path"], step)


def _kind(module: Mapping[str, Any], path: Path) -> str:
    """Returns the name of a module's class."""
    kind = module.get("type")
    if not isinstance(kind, str) or not kind.startswith(
        "sentence_transformers."
    ):
        raise InputError(
            f"{path}: {kind!r} is not a module of sentence-transformers"
        )
    return kind.rpartition(".")[2]


def _module_path(
    directory: Path, module: Mapping[str, Any], path: Path
) -> Path:
    """Returns the directory of a module, which must not be outside of the model's."""
    name = module.get("path", "")
    is_inside = isinstance(name, str) and not Path(name).is_absolute()
    if not is_inside or ".." in Path(name).parts:
        raise InputError(
            f"{path}: the path {name!r} is not a directory next to it"
        )
    return directory / name


def _optional(path: Path) -> dict[str, Any]:
    if path.exists():
        return read_json(path, _MAX_BYTES)
    return {}


def _read_lengths(directory: Path) -> tuple[int | None, bool]:
    """Returns the maximum number of tokens, and whether sentences are lower-cased.

    Newer directories have the maximum only in the config of the tokenizer.

    Args:
        directory: directory of the encoder.
    """
    names = (_LENGTHS, *_OLD_LENGTHS)
    path = next(
        (directory / name for name in names if (directory / name).exists()),
        directory / _LENGTHS,
    )
    lengths = _optional(path)
    limit = lengths.get("max_seq_length")
    if limit is None:
        limit = _optional(directory / _TOKENIZER).get("model_max_length")
        is_limit = type(limit) is int and 0 < limit < _NO_LIMIT
        limit = limit if is_limit else None
    elif type(limit) is not int or limit < 1:
        raise InputError(f"{path}: max_seq_length={limit!r} must be at least 1")
    return limit, lengths.get("do_lower_case") is True


def _check_options(path: Path) -> None:
    """Raises an InputError for options of a module that are not supported.

    Args:
        path: config of the module, which may be absent.
    """
    config = _optional(path)
    for name, supported in _SUPPORTED.items():
        if name in config and config[name] not in supported:
            raise InputError(
                f"{path}: {name}={config[name]!r} is not supported; "
                "give a model without it"
            )


def _is_ordered(poolings: Sequence[Pooling]) -> bool:
    """Returns True for poolings in the order of older files, each once."""
    return list(poolings) == [name for name in _POOLINGS if name in poolings]


def _read_pooling(path: Path, has_prompt: bool) -> tuple[Pooling, ...]:
    """Returns the poolings of a config.json.

    Args:
        path: path of the file.
        has_prompt: True if a prompt precedes every sentence.
    """
    config = read_json(path, _MAX_BYTES)
    if has_prompt and config.get("include_prompt") is False:
        raise InputError(
            f"{path}: include_prompt=false is not supported with a prompt; "
            f"remove default_prompt_name from {_PROMPTS}"
        )
    names = config.get("pooling_mode")  # newer files
    if names is None:
        names = [name for name, key in _POOLINGS.items() if config.get(key)]
        names += [
            key.removeprefix("pooling_mode_")
            for key, value in config.items()
            if key.startswith("pooling_mode_")
            and value
            and key not in _POOLINGS.values()
        ]
    names = names if isinstance(names, list) else [names]
    for name in names:
        if name not in _POOLINGS:
            raise InputError(
                f'{path}: pooling "{name}" is not supported; {did_you_mean(str(name), _POOLINGS)}'
            )
    if not names:
        raise InputError(
            f"{path}: no pooling is selected; set pooling_mode_mean_tokens to true"
        )
    return tuple(names)


def _read_prompt(path: Path) -> str:
    """Returns the prompt of sentences that have none of their own."""
    config = _optional(path)
    prompts, name = config.get("prompts"), config.get("default_prompt_name")
    if name is None or not isinstance(prompts, Mapping):
        return ""
    prompt = prompts.get(name)
    if not isinstance(prompt, str):
        raise InputError(
            f'{path}: no prompt "{name}", which default_prompt_name selects'
        )
    return prompt


def _read_dense(directory: Path) -> DenseLayer:
    """Returns the layer in a directory.

    Raises:
        InputError: an unknown activation, or weights that are missing or of
            another shape.
    """
    path = directory / "config.json"
    _check_options(path)
    config = read_json(path, _MAX_BYTES)
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[
        2
    ]
    if activation not in _ACTIVATIONS:
        raise InputError(
            f'{path}: activation_function "{activation}" is not supported; '
            f"{did_you_mean(activation, _ACTIVATIONS)}"
        )
    tensors, where = read_weights(directory)
    arrays = {
        name: np.asarray(tensor).astype(np.float32)
        for name, tensor in tensors.items()
    }
    kernel, bias = arrays.get("linear.weight"), arrays.get("linear.bias")
    shape = config.get("out_features"), config.get("in_features")
    if kernel is None or kernel.shape != shape:
        raise InputError(
            f"{where}: linear.weight must have shape {shape}; copy the file again"
        )
    if config.get("bias", True) and (bias is None or bias.shape != shape[:1]):
        raise InputError(
            f"{where}: linear.bias must have shape {shape[:1]}; copy the file again"
        )
    return DenseLayer(kernel.T, bias, activation)


def _write_dense(directory: Path, layer: DenseLayer) -> None:
    inputs, outputs = layer.kernel.shape
    kinds = {"Identity": "linear.Identity"}
    kind = kinds.get(layer.activation, f"activation.{layer.activation}")
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": layer.bias is not None,
    }
    config["activation_function"] = f"torch.nn.modules.{kind}"
    _write(directory / "config.json", config)
    tensors = {"linear.weight": np.ascontiguousarray(layer.kernel.T)}
    if layer.bias is not None:
        tensors["linear.bias"] = layer.bias
    write_weights(directory, tensors)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
