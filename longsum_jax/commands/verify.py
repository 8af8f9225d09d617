"""longsum verify: compares files with their checksums, and reports files without any."""

import argparse
import importlib.util
import itertools
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from longsum_jax import checksums
from longsum_jax.commands import console
from longsum_jax.errors import InputError, counted, first_line, in_one_line
from longsum_jax.files import (
    DAMAGED_ZIP,
    MAX_RATIO,
    RATIO_FROM,
    bounded_lines,
    expands,
    open_regular,
    parse_json,
    read_bytes,
)
from longsum_jax.text.rows import MAX_BYTES

EXAMPLES = """\
  # a training run: checkpoints, model, metrics
  longsum verify runs/reports

  # a model directory, prepared shards, the output of longsum evaluate; several at once
  longsum verify bart-lsg data/c4/train results

Directories written by this library contain SHA256SUMS (also for sha256sum -c); every file in it is
read and compared. Other files are checked as far as their format permits: files in the cache of the
Hugging Face Hub are named by their hash, zip archives (pytorch_model.bin) and shards contain
checksums of their parts, and safetensors files contain the boundaries of every tensor. The exit
code is 1 if anything is damaged, or a directory written by this library has lost its checksums.
"""

_MAX_JSON_BYTES = 2**25  # larger ones may take a gigabyte to parse
# End of the path at which Orbax stores the metadata of a checkpoint, as JSON.
_CHECKPOINT = ("meta", "metadata")


class _Kind(NamedTuple):
    """A kind of files without checksums.

    Attributes:
        proof: guarantee given by a successful read.
        read: function that reads a whole file; raises InputError, OSError,
            ValueError or RuntimeError if it is damaged.
    """

    proof: str
    read: Callable[[Path], None]


def main(argv: Sequence[str]) -> int:
    """Verifies files and directories; returns 0 if there are no problems, otherwise 1.

    Raises:
        InputError: a file or directory does not exist, or --unverified names a
            file, or a directory with checksums.
    """
    args = _parser().parse_args(argv)
    paths = [Path(path) for path in args.paths]
    for path in paths:
        if not path.exists():
            raise InputError(
                f"{path}: no such file or directory; check the path"
            )
    if args.unverified:
        for path in paths:
            _accept(path)
    num_problems = sum(_verify(path) for path in paths)
    return 1 if num_problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "verify",
        "Compares files with their checksums, and lists files without one.",
        EXAMPLES,
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="file or directory"
    )
    parser.add_argument(
        "--unverified",
        action="store_true",
        help="first write the missing checksums of directories, from their current files",
    )
    return parser


def _accept(directory: Path) -> None:
    """Writes the checksums of a directory that has none."""
    if not directory.is_dir() or (directory / checksums.SUMS).exists():
        raise InputError(
            f"{directory}: not a directory without {checksums.SUMS}; leave out --unverified"
        )
    checksums.write(directory)


def _verify(root: Path) -> int:
    """Prints the state of a file or a directory tree; returns the number of problems."""
    sums = sorted(root.rglob(checksums.SUMS))
    covered = set(sums)
    num_problems = 0
    if root.is_file():
        num_problems += _compare(root.parent, covered, root.name)
    for path in sums:
        num_problems += _compare(path.parent, covered)
    others = sorted(set(_files(root)) - covered)
    if not covered and not others:
        console.print_stdout(in_one_line(f"{root}: holds no files"))
    for proof, group in itertools.groupby(sorted(others, key=_proof), _proof):
        num_problems += _read(root, proof, list(group))
    return num_problems


def _compare(
    directory: Path, covered: set[Path], only: str | None = None
) -> int:
    """Compares a directory, or a file in it, with its checksums.

    Returns:
        The number of problems; the checked files are added to ``covered``.
    """
    good, damaged = [], []
    try:
        for name, problem in checksums.compare(
            directory, lambda name: only in (None, name)
        ):
            covered.add(directory / name)
            if problem is None:
                good.append(name)
            else:
                damaged.append(f"{directory / name}: {problem}")
    except InputError as error:
        damaged.append(str(error))
    _print(str(directory), len(good), "as written, by SHA-256", damaged)
    return len(damaged)


def _read(root: Path, proof: str, paths: list[Path]) -> int:
    """Reads files of one kind; returns the number of problems."""
    damaged = []
    unverified = set()  # directories without their sums, each named once
    num_good = 0
    for path in paths:
        try:
            _kind(path).read(path)
            num_good += 1
        except checksums.MissingSumsError as error:
            unverified.add(str(error))
        except (InputError, OSError, ValueError, RuntimeError) as error:
            reason = first_line(error)
            damaged.append(
                reason if str(path) in reason else f"{path}: {reason}"
            )
    _print(str(root), num_good, proof, damaged)
    for problem in sorted(unverified):
        console.print_stdout(in_one_line(f"UNVERIFIED {problem}"))
    return len(damaged) + len(unverified)


def _print(where: str, num_good: int, proof: str, damaged: list[str]) -> None:
    if num_good:
        console.print_stdout(
            in_one_line(f"{where}: {counted(num_good, 'file')} {proof}")
        )
    for problem in damaged:
        console.print_stdout(in_one_line(f"DAMAGED {problem}"))


def _files(root: Path) -> Iterator[Path]:
    """Yields a file, or the files below a directory except hidden ones."""
    if root.is_file():
        yield root
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [
            name for name in subfolders if not name.startswith(".")
        ]
        yield from (
            Path(folder, name) for name in names if not name.startswith(".")
        )


def _kind(path: Path) -> _Kind:
    """Returns the kind of a file without checksums."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        return _Kind(
            "not read: pipes, devices and links to directories", _read_nothing
        )
    if checksums.blob_of(path) is not None:
        kind = "SHA-256" if len(target.name) == 64 else "SHA-1"
        return _Kind(f"as published on the Hub, by {kind}", _read_blob)
    if path.suffix == ".safetensors":
        return _Kind(
            "with every tensor in its place, but no checksum",
            _read_tensors,
        )
    if path.suffix in (".bin", ".pt", ".npz", ".zip") and zipfile.is_zipfile(
        path
    ):
        return _Kind("with the checksums of their parts (zip)", _read_zip)
    if path.suffix == ".array_record":
        if importlib.util.find_spec("grain") is None:
            return _Kind(
                "not read: shards need pip install 'longsum_jax[shards]'",
                _read_nothing,
            )
        return _Kind("with the hashes of their records", _read_records)
    is_json = path.suffix == ".json" or _is_checkpoint(path)
    if is_json and target.exists() and target.stat().st_size > _MAX_JSON_BYTES:
        return _Kind(
            f"not read: JSON of more than {_MAX_JSON_BYTES} bytes",
            _read_nothing,
        )
    if is_json or path.suffix == ".jsonl":
        return _Kind("of valid JSON, but without a checksum", _read_json)
    return _Kind("without a checksum: not checked", _read_nothing)


def _proof(path: Path) -> str:
    return _kind(path).proof


def _read_blob(path: Path) -> None:
    blob = checksums.blob_of(path)
    assert blob is not None
    checksums.check_blob(blob)


def _read_tensors(path: Path) -> None:
    from longsum_jax.checkpoints.tensor_files import read_safetensors

    read_safetensors(path)


def _read_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > max(RATIO_FROM, MAX_RATIO * path.stat().st_size):
                raise InputError(expands(str(path)))
            damaged = archive.testzip()
    except DAMAGED_ZIP as error:
        raise InputError(
            f"a damaged archive ({error}); fetch it again"
        ) from None
    if damaged is not None:
        raise InputError(
            f"the checksum of its part {damaged} does not match; fetch it again"
        )


def _read_records(path: Path) -> None:
    import grain

    from longsum_jax.data.prepared import METADATA

    records = grain.sources.ArrayRecordDataSource(str(path))
    for index in range(len(records)):
        records[index]
    if (path.parent / METADATA).exists():
        checksums.require(path.parent)


def _is_checkpoint(path: Path) -> bool:
    return path.parts[-2:] == _CHECKPOINT


def _read_json(path: Path) -> None:
    if path.suffix != ".jsonl":
        content = parse_json(read_bytes(path, _MAX_JSON_BYTES))
        if _is_checkpoint(path) and checksums.is_marked(content):
            checksums.require(path.parents[1])
        return
    with open_regular(path) as file:
        for number, line in bounded_lines(file, str(path), max_bytes=MAX_BYTES):
            try:
                parse_json(line)
            except ValueError as error:
                raise InputError(
                    f"line {number} is not JSON ({error})"
                ) from error


def _read_nothing(path: Path) -> None:
    del path
