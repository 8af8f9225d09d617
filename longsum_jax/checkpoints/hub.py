"""Model directories from the Hugging Face Hub, using the local cache of huggingface_hub."""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from longsum_jax import checksums
from longsum_jax.errors import InputError, first_line
from longsum_jax.files import parse_json, read_bytes, read_json
from longsum_jax.tokenizers.files import TOKENIZER_FILES

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_DESCRIPTION = ["config.json", "generation_config.json"]
# Files of sentence-transformers.
_MODULES = [
    "modules.json",
    "sentence_*_config.json",  # "bert"; older versions name other families
    "config_sentence_transformers.json",
]
_MAX_MODULES_BYTES = 2**20
_TOKENIZER = list(TOKENIZER_FILES)
_ADAPTER = ["adapter_config.json", "adapter_model.safetensors"]
_SAFETENSORS = ["model*.safetensors", "model.safetensors.index.json"]
_TORCH_BIN = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]
_SUBFOLDERS = ("*/*",)  # other formats and checkpoints of a repository
_SUBDIRECTORY = re.compile(r"\w[\w.-]*", re.ASCII)


def local_directory(path: str | Path, revision: str | None = None) -> Path:
    """Returns the directory for ``path``.

    A name that is not a local directory is fetched from the Hub, or from its
    local cache.

    Args:
        path: path of a directory, or the name "org/name" of a Hub repository as
            a string.
        revision: branch, tag or commit of the repository.

    Raises:
        InputError: the directory or repository does not exist, or cannot be
            reached or read.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"the model is of type {type(path).__name__}; give the path of a directory, or ORG/NAME"
        )
    if os.path.isdir(path):  # also False for values that cannot be paths
        if revision is not None:
            raise InputError(
                f"revision={revision!r} is for Hub repositories, but {path} is a directory; "
                "leave it out"
            )
        return Path(path)
    if os.path.isfile(path):  # a file name may look like a repository name
        raise InputError(f"{path}: is a file; give its directory")
    if not (isinstance(path, str) and _NAME.fullmatch(path)):
        raise InputError(
            f"{path}: no such directory; give a model directory or a training workdir, "
            "or ORG/NAME for a repository of the Hugging Face Hub"
        )
    return _download(path, revision)


def is_repository_name(name: str) -> bool:
    """Returns True for a name that a Hub repository can have, ORG/NAME."""
    return _NAME.fullmatch(name) is not None


def model_files(directory: Path) -> list[str]:
    """Returns the files of a model directory that loading it from the Hub would fetch.

    Args:
        directory: directory with config.json, or of an adapter.

    Returns:
        Sorted paths relative to the directory.
    """
    patterns = _DESCRIPTION + _TOKENIZER + _SAFETENSORS + _ADAPTER + _MODULES
    models = ["", *_auxiliary_models(directory), *_inner(directory)]
    return sorted(
        {
            path.relative_to(directory).as_posix()
            for model in models
            for pattern in patterns
            for path in (directory / model).glob(pattern)
            if path.is_file()
        }
    )


def check_blobs(directory: Path) -> None:
    """Verifies the files of a snapshot in the Hub's cache.

    A file there is a link to a blob whose name is its hash. Only files that a
    model is loaded from are read. Files of other directories, and of caches on
    systems without links, are not verified.

    Raises:
        InputError: a file is damaged or cannot be read.
    """
    folders = [directory, *map(directory.joinpath, _inner(directory))]
    blobs = {
        blob
        for folder in folders
        for path in _loaded_files(folder)
        if (blob := checksums.blob_of(path)) is not None
    }
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in threads.map(_check_blob, sorted(blobs)):
            pass


def _inner(directory: Path) -> list[str]:
    """Returns the subdirectories of the modules of a sentence encoder."""
    return [
        name
        for name in _module_directories(directory)
        if _SUBDIRECTORY.fullmatch(name)
    ]


def _loaded_files(directory: Path) -> list[Path]:
    """Returns the files of a directory that a model is loaded from."""
    has_safetensors = any(directory.glob("*.safetensors"))
    weights = _SAFETENSORS if has_safetensors else _TORCH_BIN
    patterns = _DESCRIPTION + _MODULES + _TOKENIZER + _ADAPTER + weights
    return [
        path
        for pattern in patterns
        for path in directory.glob(pattern)
        if path.exists()
    ]


def _check_blob(blob: Path) -> None:
    try:
        checksums.check_blob(blob)
    except OSError as error:
        raise InputError(
            f"{blob}: cannot be read ({error.strerror}); fetch it again"
        ) from error


def _download(name: str, revision: str | None) -> Path:
    """Fetches configs, tokenizer and safetensors, and models in subdirectories that the model
    needs.

    Pickles are only fetched from repositories without safetensors.
    """
    patterns = _DESCRIPTION + _TOKENIZER + _SAFETENSORS + _ADAPTER
    directory = _snapshot(name, revision, patterns + _MODULES)
    for module in _inner(directory):
        files = [
            "config.json",
            *_TOKENIZER,
            *_MODULES,
            *_SAFETENSORS,
            *_TORCH_BIN,
        ]
        file_patterns = [f"{module}/{pattern}" for pattern in files]
        _snapshot(name, revision, file_patterns, ignored=[f"{module}/*/*"])
    if not any(directory.glob("*.safetensors")):
        directory = _snapshot(
            name, revision, _DESCRIPTION + _TOKENIZER + _TORCH_BIN
        )
    for model in _auxiliary_models(directory):
        file_patterns = [f"{model}/{pattern}" for pattern in patterns]
        _snapshot(name, revision, file_patterns, ignored=[f"{model}/*/*"])
    return directory


def _auxiliary_models(directory: Path) -> list[str]:
    """Returns the subdirectories of models that config.json lists for reading in segments."""
    try:
        config = read_json(directory / "config.json")
        segments = config["task_specific_params"]["summarization"]["segments"]
        names = [
            segments.get(name) for name in ("extractor", "sentence_encoder")
        ]
    except (InputError, KeyError, TypeError, AttributeError):
        # no subdirectories, or a file that is rejected when the model is loaded
        return []
    return [
        name
        for name in names
        if isinstance(name, str) and _SUBDIRECTORY.fullmatch(name)
    ]


def _snapshot(
    name: str,
    revision: str | None,
    patterns: list[str],
    ignored: Sequence[str] = _SUBFOLDERS,
) -> Path:
    """Fetches the files of a repository that match ``patterns``; converts errors to InputErrors."""
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise InputError(
            f"{name}: no such directory; to fetch it from the Hugging Face Hub, "
            "pip install 'longsum_jax[hf]'"
        ) from None
    if revision is None:
        at = ""
    else:
        at = f" at revision {revision}"
    try:
        snapshot = snapshot_download(
            name,
            revision=revision,
            allow_patterns=patterns,
            ignore_patterns=list(ignored),
        )
        return Path(snapshot)
    except (
        errors.GatedRepoError
    ) as error:  # a subclass of RepositoryNotFoundError
        remedy = "accept its conditions on its page, then log in with `hf auth login`"
        raise InputError(
            f"{name}: this repository of the Hugging Face Hub is gated; {remedy}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        remedy = "check the spelling, or log in with `hf auth login` if it is private"
        raise InputError(
            f"{name}: neither a directory nor a repository of the Hugging Face Hub; {remedy}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"{name}: the repository has no revision {revision}; give a branch, tag or commit"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        remedy = "connect (without HF_HUB_OFFLINE) once, or give the directory of a copy"
        raise InputError(
            f"{name}{at}: no such directory, not complete in the local cache, and the Hugging "
            f"Face Hub cannot be reached; {remedy}"
        ) from error
    except (
        Exception
    ) as error:  # huggingface_hub uses several transports with different errors
        reason = first_line(error)
        raise InputError(
            f"{name}{at}: cannot be fetched from the Hugging Face Hub ({reason}); try again later"
        ) from error


def _module_directories(directory: Path) -> list[str]:
    """Returns the subdirectories that modules.json names, [] without or with a damaged file."""
    try:
        modules = parse_json(
            read_bytes(directory / _MODULES[0], _MAX_MODULES_BYTES)
        )
        names = [module["path"] for module in modules]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in names if isinstance(name, str) and name]
