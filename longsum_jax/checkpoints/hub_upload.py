"""Uploads model directories to the Hugging Face Hub, with huggingface_hub."""

import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from longsum_jax import checksums
from longsum_jax.checkpoints import hub
from longsum_jax.errors import InputError, first_line

CARD = "README.md"
_FILES_LISTED = 20


class Upload(NamedTuple):
    """Files to upload.

    Attributes:
        directory: directory of the files.
        files: paths relative to the directory, the model card first.
        num_bytes: total size.
    """

    directory: Path
    files: tuple[str, ...]
    num_bytes: int


def find_upload(directory: Path) -> Upload:
    """Returns the files of a model directory that belong on the Hub.

    These are the files that loading from the Hub fetches, their sums, and the
    model card. Other files are not uploaded.

    Raises:
        InputError: the directory has no safetensors, or damaged sums.
    """
    files = hub.model_files(directory)
    if not any(name.endswith(".safetensors") for name in files):
        raise InputError(
            f"{directory}: holds neither a training run nor safetensors; give a training workdir "
            "with a checkpoint, or convert the model first: longsum convert"
        )
    if (directory / CARD).is_file():
        files = [CARD, *files]
    files += _sums_of(directory, files)
    num_bytes = sum((directory / name).stat().st_size for name in files)
    return Upload(directory, tuple(files), num_bytes)


def _sums_of(directory: Path, files: Sequence[str]) -> list[str]:
    """Returns the sums of the files, without which a copy of the repository would be refused.

    Sums that also list other files are left out.
    """
    paths = []
    for folder in sorted({posixpath.dirname(name) for name in files}):
        listed = checksums.names(directory / folder)
        if listed and {posixpath.join(folder, x) for x in listed} <= set(files):
            paths.append(posixpath.join(folder, checksums.SUMS))
    return paths


def check_name(name: str) -> None:
    """Raises InputError unless a name is ORG/NAME."""
    if not hub.is_repository_name(name):
        raise InputError(
            f"{name}: the name of a repository is ORG/NAME, such as my-group/led-reports; give "
            "your user name as ORG for your own account"
        )


class HubClient:
    """A client of the Hub with the stored login.

    Attributes:
        user: name of the user.

    Raises:
        InputError: huggingface_hub is not installed, no user is logged in, or
            the Hub cannot be reached.
    """

    def __init__(self) -> None:
        try:
            import huggingface_hub
        except ImportError:
            raise InputError(
                "to upload to the Hugging Face Hub, pip install 'longsum_jax[hf]'"
            ) from None
        self._api: Any = huggingface_hub.HfApi()
        try:
            self.user: str = self._api.whoami()["name"]
        except Exception as error:  # each transport has errors of its own
            _raise("the Hugging Face Hub", error)

    def upload(
        self, name: str, upload: Upload, *, is_public: bool, message: str
    ) -> str:
        """Uploads files to a repository, which is created if it does not exist.

        Args:
            name: name of the repository, ORG/NAME.
            upload: files from ``find_upload``.
            is_public: True for a repository that anyone may read.
            message: commit message.

        Returns:
            The URL of the commit, or of the repository if there is none.

        Raises:
            InputError: the user may not write there, the repository exists and
                is not as public as requested, or the Hub cannot be reached.
        """
        try:
            address = self._api.create_repo(
                name, private=not is_public, exist_ok=True
            )
            is_private = self._api.repo_info(name).private
        except Exception as error:
            _raise(name, error)
        if not is_public and not is_private:
            raise InputError(
                f"{name}: exists and is public; give --public to upload there, or another name"
            )
        if is_public and is_private:
            raise InputError(
                f"{name}: exists and is private; make it public in its settings on the "
                "Hub, or leave out --public"
            )
        try:
            commit = self._api.upload_folder(
                repo_id=name,
                folder_path=str(upload.directory),
                allow_patterns=list(upload.files),
                # Sums of an earlier upload would not match.
                delete_patterns=f"*{checksums.SUMS}",
                commit_message=message,
            )
        except Exception as error:
            _raise(name, error)
        return str(getattr(commit, "commit_url", None) or address)


# Status code of the Hub -> remedy.
_REMEDIES = {
    401: "log in with `hf auth login`, with a token that may write",
    403: "this account may not write there; give your user name as ORG, or a token that may write",
    404: "check the name of the organization",
}


def _raise(name: str, error: Exception) -> NoReturn:
    """Raises InputError for an error of huggingface_hub."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalTokenNotFoundError):
        raise InputError(
            f"{name}: nobody is logged in; log in with `hf auth login`, with a token that may write"
        ) from error
    response = getattr(error, "response", None)
    remedy = _REMEDIES.get(getattr(response, "status_code", 0))
    raise InputError(
        f"{name}: cannot be uploaded to the Hugging Face Hub ({first_line(error)}); "
        f"{remedy or 'check the connection and try again'}"
    ) from error


def describe(upload: Upload) -> Sequence[str]:
    """Returns one line per file with its size, and one line for files beyond the first 20."""
    lines = [
        f"  {name}  {size_text((upload.directory / name).stat().st_size)}"
        for name in upload.files[:_FILES_LISTED]
    ]
    if len(upload.files) > _FILES_LISTED:
        lines.append(f"  and {len(upload.files) - _FILES_LISTED} more")
    return lines


def size_text(num_bytes: int) -> str:
    """Returns a size such as "1.2 GB"."""
    if num_bytes >= 10**9:
        return f"{num_bytes / 1e9:.1f} GB"
    if num_bytes >= 10**6:
        return f"{num_bytes / 1e6:.1f} MB"
    return f"{num_bytes / 1e3:.1f} kB"
