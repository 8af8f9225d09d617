"""longsum push: uploads a trained model to the Hugging Face Hub."""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longsum_jax.commands import console
from longsum_jax.errors import InputError, counted

if TYPE_CHECKING:
    from longsum_jax.checkpoints.hub_upload import Upload

EXAMPLES = """\
  # the best checkpoint of a training run with tokenizer and model card, to a private repository
  longsum push runs/reports my-group/led-reports

  # a model directory of longsum convert, to a repository that everybody can read
  longsum push reports-half my-group/led-reports-half --public

Weights are uploaded as safetensors, in the layout of transformers. The model card is README.md of
the directory; training writes one with data, scores and settings, which you can edit first.
Checkpoints, metrics, sample summaries and other files stay here. Log in with `hf auth login`.
"""


def main(argv: Sequence[str]) -> None:
    """Uploads a model directory, an adapter, or the best checkpoint of a training run.

    Raises:
        InputError: a directory without a model, an invalid name, nobody is
            logged in, or the Hub refuses.
    """
    args = _parser().parse_args(argv)
    from longsum_jax.checkpoints.hub_upload import HubClient, check_name

    check_name(args.name)
    directory = Path(args.directory)
    if not directory.is_dir():
        raise InputError(
            f"{directory}: no such directory; give a training workdir or a model directory"
        )
    client = HubClient()  # first, because reading a checkpoint may take minutes
    with _model_files(directory) as upload:
        _announce(upload, args.name, args.public, client.user)
        address = client.upload(
            args.name,
            upload,
            is_public=args.public,
            message=f"Upload {directory.absolute().name} with longsum push",
        )
    console.print_stdout(f"{args.name}: {address}")


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "push",
        "Uploads weights, tokenizer and model card to the Hugging Face Hub.",
        EXAMPLES,
    )
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="workdir of a training run, whose best checkpoint is uploaded, or a model directory",
    )
    parser.add_argument(
        "name",
        metavar="ORG/NAME",
        help="repository, which is created if it does not exist",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        help="let everybody read the repository; without it, a new one is private and an existing "
        "public one is refused",
    )
    return parser


@contextlib.contextmanager
def _model_files(directory: Path) -> Iterator["Upload"]:
    """Yields the files to upload; a training run is written as a model directory first."""
    from longsum_jax.analysis.model_card import copy_card
    from longsum_jax.checkpoints.hub_upload import find_upload
    from longsum_jax.summarization.loading import load
    from longsum_jax.training.workdir import has_checkpoint

    if not has_checkpoint(directory):
        yield find_upload(directory)
        return
    with tempfile.TemporaryDirectory(prefix="longsum-push-") as temporary:
        target = Path(temporary) / "model"
        with console.spinner(f"reading {directory}"):
            load(directory).save(target)
        copy_card(directory, target)
        yield find_upload(target)


def _announce(upload: "Upload", name: str, is_public: bool, user: str) -> None:
    """Prints the files, the destination and who can read it, before anything is sent."""
    from longsum_jax.checkpoints.hub_upload import describe, size_text

    readers = "public" if is_public else "private"
    files = counted(len(upload.files), "file")
    console.print_stderr(
        f"uploading {files}, {size_text(upload.num_bytes)}, as {user} to the {readers} repository "
        f"{name}:"
    )
    for line in describe(upload):
        console.print_stderr(line)
