"""Runs a function over the parts of a data set on Apache Beam, with any runner.

Parts have names, and are files in a directory that all machines share. They are
written under temporary names and renamed, so that every file is complete, and a
part that is complete is never made again: even if the pipeline or a worker is
killed, every document occurs exactly once.

Beam is imported inside the functions.
"""

import argparse
import logging
import os
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol

from longsum_jax import atomic
from longsum_jax.errors import InputError, did_you_mean, first_line

# Minimum size of a part: hundreds of short documents, or one book. Larger parts
# would occupy fewer workers, smaller ones would cost more for their files.
PART_CHARACTERS = 2**20


class PartMaker(Protocol):
    """A picklable function that makes the part with a given name."""

    def setup(self) -> None:
        """Loads the models and tokenizers of a worker, once per process."""

    def __call__(self, name: str) -> None:
        """Makes a part, unless it is complete."""


def parse_flags(flags: str) -> list[str]:
    """Returns the flags of a runner as a list.

    Args:
        flags: flags of Beam's pipeline options, as in a shell.

    Raises:
        InputError: Beam is not installed, or has no such flag.
    """
    options = _import_beam().options.pipeline_options
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise InputError(
            f"--beam={flags}: {error}; give flags as in a shell"
        ) from None
    parser = _FlagParser(
        add_help=False, allow_abbrev=False, conflict_handler="resolve"
    )
    for section in options.PipelineOptions.__subclasses__():
        section._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(words)
    if unknown:
        names = [name for name in parser._option_string_actions if name[2:]]
        raise InputError(
            f"--beam={flags}: Beam has no flag {unknown[0]}; "
            f"{_similar(unknown[0].partition('=')[0], names)}"
        )
    return words


def run(names: Sequence[str], make: PartMaker, flags: Sequence[str]) -> None:
    """Makes parts with a pipeline, and waits until it ends.

    Args:
        names: names of the parts.
        make: function that makes a part.
        flags: flags of Beam's pipeline options.

    Raises:
        atomic.UnfinishedError: the pipeline fails; the same call with the
            incomplete parts goes on.
    """
    if not names:
        return
    beam = _import_beam()

    class Part(beam.DoFn):  # type: ignore[misc, name-defined]
        def setup(self) -> None:
            make.setup()

        def process(self, name: str) -> None:
            make(name)

    all_options = beam.options.pipeline_options
    options = all_options.PipelineOptions(list(flags))
    # A pipeline that allows these triggers (this one has none) is run by
    # DirectRunner itself; others, by a program that it first downloads.
    options.view_as(all_options.TypeOptions).allow_unsafe_triggers = True
    worker = options.view_as(all_options.WorkerOptions)
    if worker.default_sdk_harness_log_level is None:
        worker.default_sdk_harness_log_level = "WARNING"
    try:
        with beam.Pipeline(options=options) as pipeline:
            parts = pipeline | "names of parts" >> beam.Create(names)
            spread = parts | "to workers" >> beam.Reshuffle()
            _ = spread | "results" >> beam.ParDo(Part())
    except Exception as error:  # runners raise any exception
        logging.getLogger(__name__).debug("%s", error)
        raise atomic.UnfinishedError(
            f"the Beam pipeline failed ({_reason(error)}); the same command goes on with the parts "
            "that are complete"
        ) from error


def _reason(error: Exception) -> str:
    """Returns the message of a worker's exception, the last line of its traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else first_line(error)


class _FlagParser(argparse.ArgumentParser):
    """A parser that raises InputError, without printing all flags."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"--beam: {message}; correct the flag")


def _import_beam() -> Any:
    try:
        # Beam warns of packages that only some of its transforms need.
        logging.disable(logging.WARNING)
        import apache_beam
        import apache_beam.options.pipeline_options
    except ImportError:
        raise InputError(
            "--beam needs Apache Beam: pip install 'longsum_jax[beam]', or leave it out"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return apache_beam


def _similar(name: str, names: Iterable[str]) -> str:
    """Returns a suggestion, without the list of Beam's hundreds of flags."""
    guess, _, _ = did_you_mean(name, names).partition("? ")
    return f"{guess}?" if guess.startswith("did") else "see Beam's guide"


def write(path: Path, content: Iterable[bytes]) -> None:
    """Writes a part atomically; several processes may write it at the same time."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_all(file, content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write_all(file: BinaryIO, content: Iterable[bytes]) -> None:
    file.writelines(content)
    file.flush()
    os.fsync(file.fileno())
