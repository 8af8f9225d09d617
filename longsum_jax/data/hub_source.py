"""Reads documents from data sets of the Hugging Face Hub: their Parquet files, without any script.

A source is "hf:ORG/NAME[/CONFIG][@REVISION]". Files belong to a split by their
entry in the data set's card or, without one, by their names.
"""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from longsum_jax.data import parquet_source
from longsum_jax.data.mixture import mixed_sources
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean, first_line
from longsum_jax.schema import first_names
from longsum_jax.text.documents import DataRow

SCHEME = "hf"
# Branch with the Hub's conversion of data sets that are in other formats.
CONVERTED = "refs/convert/parquet"
_SUFFIX = ".parquet"
_SOURCE = re.compile(
    r"hf:(?P<repository>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(@(?P<revision>.+))?",
    re.ASCII,
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIRECTORIES = ("", "data", "default")  # of a data set with one config


class HubSource(NamedTuple):
    """A data set of the Hub; with ``revision`` None, its newest version."""

    repository: str
    config: str | None
    revision: str | None

    @property
    def name(self) -> str:
        """The source as a string."""
        config = f"/{self.config}" if self.config else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}:{self.repository}{config}{revision}"


def parse_source(source: str) -> HubSource:
    """Returns the parts of a source "hf:ORG/NAME[/CONFIG][@REVISION]".

    Raises:
        InputError: the source has another form.
    """
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise InputError(
            f'source "{source}" must be hf:ORG/NAME, hf:ORG/NAME/CONFIG or one of '
            "these with @REVISION"
        )
    return HubSource(match["repository"], match["config"], match["revision"])


def pin_source(source: str, earlier: str = "") -> str:
    """Returns a source whose revision is a commit, the newest one by default.

    Args:
        source: source of a task; one of another scheme is returned unchanged.
            The parts of a mixture are pinned.
        earlier: pinned source of the same run when it began; it is returned if
            ``source`` is the same data set and does not have another revision.

    Raises:
        InputError: there is no such data set or revision, or the Hub cannot be
            reached.
    """
    parts = mixed_sources(source)
    if parts != (source,):
        earlier_parts = mixed_sources(earlier)
        end = 0  # of the last pinned part
        for part, earlier_part in zip_longest(
            parts, earlier_parts[: len(parts)], fillvalue=""
        ):
            pinned = pin_source(part, earlier_part)
            start = source.index(f"*{part}", end) + 1
            source = source[:start] + pinned + source[start + len(part) :]
            end = start + len(pinned)
        return source
    if not source.startswith(f"{SCHEME}:"):
        return source
    parsed = parse_source(source)
    if parsed.revision and _COMMIT.fullmatch(parsed.revision):
        return source
    if parsed.revision is None and earlier.startswith(f"{source}@"):
        return earlier
    return parsed._replace(revision=_info(parsed).sha).name


def documents(task: Task, split: str, start: int = 0) -> Iterator[DataRow]:
    """Yields the documents of a split, file by file in sorted order.

    Columns with the usual names ("article", "highlights") are read as in
    other files, see ``text.rows.choose_keys``.

    Args:
        task: task whose source is of this scheme.
        split: key of ``task.splits``.
        start: number of documents to leave out, without reading them.

    Raises:
        InputError: no such data set, revision, config, split or column, or the
            Hub cannot be reached.
    """
    source = parse_source(task.source)
    info = _info(source)
    names = _names_of_split(source, info, task.source_split(split))
    paths = [_download(source, info.sha, name) for name in names]
    yield from parquet_source.documents_of(
        parquet_source.with_usual_keys(task, paths[0]), paths, start
    )


def _info(source: HubSource) -> Any:
    """Returns the commit, the files and the card of a data set.

    The newest version is the main branch, or the Hub's conversion if that has
    no Parquet files.
    """
    info = _ask(source, source.revision)
    if source.revision is None and not _parquet_names(info):
        info = _ask(source, CONVERTED)
    return info


def _ask(source: HubSource, revision: str | None) -> Any:
    huggingface_hub = _import_hub(source)
    with _Errors(source, revision):
        return huggingface_hub.HfApi().dataset_info(
            source.repository, revision=revision
        )


def _download(source: HubSource, commit: str, name: str) -> Path:
    huggingface_hub = _import_hub(source)
    with _Errors(source, commit):
        path = huggingface_hub.hf_hub_download(
            source.repository, name, repo_type="dataset", revision=commit
        )
    return Path(path)


def _import_hub(source: HubSource) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(
            f"{source.name}: needs pip install 'longsum_jax[hf]'"
        ) from None
    return huggingface_hub


class _Errors:
    """A context that converts the errors of huggingface_hub to InputErrors."""

    def __init__(self, source: HubSource, revision: str | None) -> None:
        self._source, self._revision = source, revision

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: Any, error: BaseException | None, traceback: Any
    ) -> None:
        if not isinstance(error, Exception):
            return
        from huggingface_hub import errors

        name = self._source.name
        if isinstance(error, errors.GatedRepoError):
            problem = "this data set is gated; accept its conditions, then run `hf auth login`"
        elif isinstance(error, errors.RepositoryNotFoundError):
            problem = (
                "no such data set on the Hugging Face Hub; check the spelling, or run "
                "`hf auth login` if it is private"
            )
        elif (
            isinstance(error, errors.RevisionNotFoundError)
            and self._revision == CONVERTED
        ):
            problem = "the data set has no Parquet files; download it and give json:FILE"
        elif isinstance(error, errors.RevisionNotFoundError):
            problem = (
                f"no revision {self._revision}; give a branch, tag or commit"
            )
        elif isinstance(
            error, errors.OfflineModeIsEnabled
        ) or _is_of_connection(error):
            problem = (
                "the Hugging Face Hub cannot be reached; connect (without HF_HUB_OFFLINE), or give "
                "a copy of the files (parquet:GLOB)"
            )
        else:
            problem = f"cannot be read from the Hugging Face Hub ({first_line(error)})"
        raise InputError(f"{name}: {problem}") from error


def _is_of_connection(error: Exception) -> bool:
    """Returns True for errors of connections, of which each transport has its own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    # Python and requests; httpx
    return not names.isdisjoint(("ConnectionError", "TransportError"))


def _parquet_names(info: Any) -> list[str]:
    names = (file.rfilename for file in info.siblings or ())
    return sorted(name for name in names if name.endswith(_SUFFIX))


def _names_of_split(source: HubSource, info: Any, split: str) -> list[str]:
    """Returns the sorted names of the files of a config and split.

    Raises:
        InputError: no file, or files of several configs.
    """
    names = _parquet_names(info)
    patterns = _card_patterns(info, source.config)
    if patterns:
        if split not in patterns:
            guess = did_you_mean(split, sorted(patterns))
            raise InputError(f'{source.name}: no split "{split}"; {guess}')
        selected = [
            name
            for name in names
            if any(
                fnmatch.fnmatchcase(name, pattern)
                for pattern in patterns[split]
            )
        ]
    else:
        of_config = _of_config(source, names, split)
        selected = [name for name in of_config if _has_split(name, split)]
    if not selected:
        raise InputError(
            f'{source.name}: no Parquet files of split "{split}" among {first_names(names)}; give '
            "another split or config"
        )
    return selected


def _card_patterns(info: Any, config: str | None) -> dict[str, list[str]]:
    """Returns the patterns of each split's files in the card; {} without an entry."""
    configs = getattr(info.card_data, "configs", None) or []
    if config is None and len(configs) > 1:
        default = [entry for entry in configs if entry.get("default")]
        default += [
            entry for entry in configs if entry.get("config_name") == "default"
        ]
        configs = default[:1]
    elif config is not None:
        configs = [
            entry for entry in configs if entry.get("config_name") == config
        ]
    patterns: dict[str, list[str]] = {}
    for entry in configs:
        files = entry.get("data_files")
        for row in files if isinstance(files, list) else ():
            if isinstance(row, dict) and "split" in row and "path" in row:
                paths = row["path"]
                patterns[row["split"]] = (
                    [paths] if isinstance(paths, str) else list(paths)
                )
    return patterns


def _of_config(
    source: HubSource, names: Sequence[str], split: str
) -> list[str]:
    """Returns the names of a config, by the first directory.

    Files of a data set with one config are in no directory, or in one with a
    usual name or the name of the split.
    """
    single = (*_DIRECTORIES, split)
    first = {
        name: name.partition("/")[0] if "/" in name else "" for name in names
    }
    if source.config is not None:
        return [name for name in names if first[name] == source.config]
    plain = [name for name in names if first[name] in single]
    configs = sorted(set(first.values()).difference(single))
    if not plain and len(configs) > 1:
        raise InputError(
            f"{source.name}: has the configs {first_names(configs)}; give one, such as "
            f"{source._replace(config=configs[0]).name}"
        )
    return plain or list(names)


def _has_split(name: str, split: str) -> bool:
    """Returns True for "train-00000-of-00002.parquet" and "train/0000.parquet"."""
    path = PurePosixPath(name)
    return re.match(rf"{re.escape(split)}([-_.]|$)", path.stem) is not None or (
        split in path.parts[:-1]
    )
