"""Directories in Hugging Face layout: config.json, generation_config.json, weights, tokenizer files.

Nothing in a directory is ever executed: weights are safetensors, or a pickle read by torch's weights-only loader;
entries of config.json that name code are ignored.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.models.naming import to_params, to_state_dict
from longsum_jax.registry import Family, family_of
from longsum_jax.typing import Params

CONFIG, GENERATION = "config.json", "generation_config.json"
SAFETENSORS, TORCH_BIN = "model.safetensors", "pytorch_model.bin"


def read_config(directory: Path, **runtime: Any) -> tuple[Family, Any]:
    """Family and config of ``directory``; ``runtime`` sets fields that checkpoints do not store (dtype, ...)."""
    path = directory / CONFIG
    raw = read_json(path)
    family = family_of(raw, str(path))
    return family, family.config_of_json(raw, str(path), **runtime)


def read_generation_config(directory: Path) -> dict[str, Any]:
    """Content of generation_config.json, empty when there is none."""
    path = directory / GENERATION
    return read_json(path) if path.exists() else {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; InputError for a missing, unreadable or malformed one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; a model directory holds {CONFIG} and weights") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_params(directory: Path, family: Family, config: Any) -> Params:
    """Parameter tree (float32 numpy) from model.safetensors or pytorch_model.bin.

    Raises:
        InputError: no weights, a damaged file, a pickle that holds more than tensors, or tensors that do not fit.
    """
    path = next((directory / name for name in (SAFETENSORS, TORCH_BIN) if (directory / name).exists()), None)
    if path is None:
        raise InputError(f"{directory}: holds neither {SAFETENSORS} nor {TORCH_BIN}")
    state = _read_safetensors(path) if path.name == SAFETENSORS else _read_torch(path)
    shapes = family.parameter_shapes(config)
    return to_params(state, family.name_table(config), family.tied_keys(config), shapes, str(path))


def write_model(
    directory: str | Path,
    family: Family,
    config: Any,
    params: Params | None,
    generation_config: Mapping[str, Any],
    tokenizer: Any = None,
) -> None:
    """Writes a directory that ``longsum_jax.load`` and the published PyTorch code read.

    Everything is written beside the target first and moved into place at the end.

    Args:
        directory: must not exist, or be empty.
        params: parameter tree; None leaves the weights out (a training workdir keeps them in its checkpoints).
        tokenizer: whose files are added, if not None.

    Raises:
        InputError: the directory is not empty, or cannot be written.
    """
    target = Path(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target}: exists and is not an empty directory; give another path")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from error
    try:
        _write_json(work / CONFIG, _config_json(family, config))
        _write_json(work / GENERATION, dict(generation_config))
        if tokenizer is not None:
            tokenizer.save(work)
        if params is not None:
            _write_safetensors(work / SAFETENSORS, to_state_dict(params, family.name_table(config)))
        work.chmod(0o755)
        work.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror}); nothing was left there") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _config_json(family: Family, config: Any) -> dict[str, Any]:
    values = {key: value for key, value in vars(config).items() if key not in family.runtime_fields}
    fixed = {"model_type": family.name, "architectures": [family.architecture], "is_encoder_decoder": True}
    return fixed | values | family.extra_config


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write_safetensors(path: Path, state: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    save_file(state, path, metadata={"format": "pt"})  # without it transformers refuses the file


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, TypeError) as error:
        raise InputError(f"{path}: damaged or truncated safetensors file ({error}); fetch it again") from error


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError:
        raise InputError(
            f"{path}: reading this pickle needs torch; install it, or convert the checkpoint to {SAFETENSORS} elsewhere"
        ) from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile pickle makes torch raise
        first_line = str(error).splitlines()[0]
        raise InputError(f"{path}: not a file of plain tensors, nothing in it was run ({first_line})") from error
    if not isinstance(state, dict) or not all(isinstance(x, torch.Tensor) for x in state.values()):
        raise InputError(f"{path}: expected a dictionary of tensors")
    return {key: value.float().numpy() for key, value in state.items()}
