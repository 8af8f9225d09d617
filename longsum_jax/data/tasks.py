"""Tasks: a data set with an objective and lengths, checked, and found by name."""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from longsum_jax.data.derived import ClaimOptions, ClozeOptions
from longsum_jax.data.mixture import SCHEME as MIXTURE
from longsum_jax.data.mixture import mixed_sources, parse_mixture
from longsum_jax.data.named_tasks import NAMED_TASKS
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.schema import (
    Positive,
    Range,
    Rate,
    Size,
    check_ranges,
    from_dict,
)
from longsum_jax.text.gap_sentences import GapSentenceOptions
from longsum_jax.text.segment_inputs import SegmentInputOptions

TRAIN_VALIDATION_TEST = {
    "train": "train",
    "validation": "validation",
    "test": "test",
}
MIN_PIECE_WORDS = 20
_Tokens = Annotated[int, Range(2, 2**24)]
_BUILT_IN = ("embedded", "minutes")  # sources without files
_FILES = ("parquet", "json")  # schemes of sources in users' files
# schemes of data sets in their originally released form
RELEASES = ("govreport", "qmsum")
_SCHEMES = ("tfds", "hf", "seqio", *RELEASES, *_FILES)
# Fields of Task for which an override "" selects the named task's value, as in
# config files.
_BLANK_MEANS_DEFAULT = (
    "source",
    "document_key",
    "summary_key",
    "query_key",
    "label_key",
    "choices_key",
    "rejected_key",
    "data_dir",
    "cache_dir",
)
# Sources whose fields have the names of JSON lines, not of the task's data set.
_STANDARD_FIELDS = ("json:", f"{MIXTURE}:", "seqio:")
# Fields that locate the documents of a named task, and its texts in a record.
_PLACE_OF_TASK = (
    "name",
    "source",
    "splits",
    "document_key",
    "summary_key",
    "query_key",
    "leading_query",
    "document_separator",
    "id_key",
    "label_key",
)
_JSON_DOCUMENT_KEYS = {
    "summarize": "document",
    "summarize_segments": "document",
    "extract": "document",
    "gap_sentences": "text",
    "answer": "context",
    "choose": "context",
    "cloze": "document",
    "prefer": "document",
}
_JSON_QUERY_KEYS = {
    "answer": "question",
    "choose": "question",
    "classify_pairs": "claim",
}

BaseObjective = Literal[
    "gap_sentences",
    "summarize",
    "summarize_segments",
    "classify",
    "tag",
    "mlm",
    "lm",
    "extract",
    "classify_pairs",
    "claims",
    "answer",
    "choose",
    "cloze",
    "prefer",
]
# Objectives of other packages -> the objective of this library with the same
# documents, and with the same examples unless ``MAKERS`` has an entry.
BASE_OBJECTIVES: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set with a training objective.

    Objectives of encoder-decoders:

        summarize            summaries
        summarize_segments   the same, segment by segment
        gap_sentences        sentences removed from the document, which does not need a summary
        prefer               preference of the summary over a rejected one

    Objectives of models with a head for them:

        mlm, lm              masked tokens, or the next token; all of the document is used, cut into
                             pieces of max_source_length tokens
        classify             labels of the document
        classify_pairs       labels of the document and the query, which is a claim
        claims               the same, for claims generated from the document
        tag                  a label for each word
        extract              sentences to include in a summary
        answer               the part of the document that answers the query
        cloze                the same, for questions with a gap, generated from document and summary
        choose               the one of several texts that answers the query

    Attributes:
        name: name in ``TASKS``.
        source: "embedded" (CPython's language documentation), "minutes"
            (generated minutes of meetings, see ``data.minutes``),
            "tfds:BUILDER[/CONFIG]" (through seqio if ``cache_dir`` is set),
            "govreport:DIR" or "qmsum:DIR" (the released data set, see
            ``data.govreport`` and ``data.qmsum``),
            "hf:ORG/NAME[/CONFIG][@REVISION]" (Parquet files of the Hugging Face
            Hub), "seqio:[MODULE:]NAME" (a task or mixture that is registered
            with seqio, see ``data.seqio_source``), "parquet:GLOB" or
            "json:GLOB" (JSON lines, a JSON array, CSV or TSV, plain or
            compressed, or Parquet); "{split}" in a GLOB
            is replaced by the split's name. "mix:RATE*SOURCE+RATE*SOURCE" mixes
            sources, or named tasks with their fields, see ``data.mixture``.
        splits: name of a split -> its name in the source.
        document_key: field with the document, which may be a list of paragraphs
            or lines; "a+b" joins two equally long lists line by line ("a: b"),
            "a|b" uses the first field that exists.
        summary_key: field with the summary; not read by gap-sentence tasks.
        query_key: field with a query that precedes the document; None for none.
        leading_query: True if the document's field begins with the query,
            followed by a blank line, as in SCROLLS.
        document_separator: text between several documents that have one
            summary and are read as one ("summarize"), as "|||||" in
            Multi-News; if the field is a list, its items are first joined with
            this text. Each document
            is followed by PRIMERA's token if the tokenizer has it, otherwise by
            a blank line. Empty for single documents.
        id_key: field with the id; None to number the documents.
        label_key: field with the label ("classify"), the labels of the words
            ("tag"), the answer ("answer") or the correct choice ("choose"), as
            text or index.
        choices_key: field with the texts to choose from ("choose").
        rejected_key: field with a summary that is worse than the reference
            ("prefer").
        objective: training objective, see above, or one in
            ``BASE_OBJECTIVES``.
        max_source_length: maximum tokens of the source, including the end of
            sequence; of one sentence for "extract", of the document with one
            choice for "choose"; see ``segments`` for "summarize_segments".
        max_target_length: maximum tokens of the target (of a segment),
            including the end of sequence.
        max_parts: maximum number of sentences ("extract") or segments
            ("summarize_segments") that are read of a document, or of choices of
            a document ("choose").
        segments: options for cutting and reading documents
            ("summarize_segments").
        prefix: text prepended to every source, and to every piece for masked
            language models.
        labels: names of the classes in the order of their indices; empty to
            collect them from the data.
        multi_label: True if a document may have several labels or none;
            inferred if labels are collected.
        held_out: share of the documents of a GLOB without "{split}" that make
            up the split "validation"; the choice depends only on their ids.
            There is then no split "test", because these documents rank
            checkpoints.
        half: "first" or "second" for one half of the split "train"; empty for
            all of it. The halves depend only on the documents' ids and are
            disjoint.
        gap_sentences: options of the gap-sentence objective.
        claims, cloze: options of the objectives with these names; None for the
            defaults.
        piece_words: maximum number of words, approximately, of the pieces into
            which gap-sentence tasks cut longer documents at sentence ends; each
            piece is a separate document with id ``<id>#<n>``, n from 0, and a
            shorter document is a single piece ``<id>#0``. None for no cutting.
        data_dir: TFDS directory; None for its default.
        cache_dir: directory written by ``seqio_cache_tasks``; None to read the
            data set itself.
    """

    name: str
    source: str
    splits: Mapping[str, str] = dataclasses.field(
        default_factory=TRAIN_VALIDATION_TEST.copy
    )
    document_key: str = "document"
    summary_key: str = "summary"
    query_key: str | None = None
    leading_query: bool = False
    document_separator: str = ""
    id_key: str | None = None
    label_key: str = "label"
    choices_key: str = "choices"
    rejected_key: str = "rejected"
    objective: BaseObjective | str = "summarize"
    max_source_length: _Tokens = 4096
    max_target_length: _Tokens = 512
    max_parts: Size = 512
    prefix: str = ""
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    held_out: Rate = 0.0
    half: Literal["", "first", "second"] = ""
    segments: SegmentInputOptions = dataclasses.field(
        default_factory=SegmentInputOptions
    )
    gap_sentences: GapSentenceOptions = dataclasses.field(
        default_factory=GapSentenceOptions
    )
    claims: ClaimOptions | None = None
    cloze: ClozeOptions | None = None
    piece_words: Positive | None = None
    data_dir: str | None = None
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        try:
            for source in self.sources:
                _check_source(source, in_mixture=source != self.source)
            check_ranges(self)
        except InputError as error:
            raise InputError(f'task "{self.name}": {error}') from None
        if self.base_objective not in get_args(BaseObjective):
            names = (*get_args(BaseObjective), *BASE_OBJECTIVES)
            raise InputError(
                f'task "{self.name}": objective "{self.objective}" is not allowed; '
                f"{did_you_mean(self.objective, names)}"
            )
        self._check_piece_words()
        if self.document_separator and self.base_objective != "summarize":
            raise InputError(
                f'task "{self.name}": document_separator="{self.document_separator}" is for '
                f'objective="summarize", not "{self.objective}"; leave it out'
            )
        self._check_cache()

    def _check_cache(self) -> None:
        """Raises InputError if the task reads what a seqio cache does not hold."""
        if self.cache_dir is None:
            return
        if self.needs_label:
            problem = "a seqio cache holds no labels"
        elif self.base_objective == "prefer":
            problem = "a seqio cache holds no rejected summaries"
        elif len(self.sources) > 1:
            problem = "a seqio cache holds one task, not a mixture"
        elif self.half:
            problem = f"half={self.half} is a choice of documents, but a seqio cache holds examples"
        else:
            return
        raise InputError(
            f'task "{self.name}": {problem}; leave out cache_dir={self.cache_dir}'
        )

    def _check_piece_words(self) -> None:
        if self.piece_words is None:
            return
        if self.base_objective != "gap_sentences":
            raise InputError(
                f'task "{self.name}": piece_words={self.piece_words} is only for '
                'objective="gap_sentences", since a summary or label belongs to the whole '
                "document; leave it out"
            )
        if self.piece_words < MIN_PIECE_WORDS:
            raise InputError(
                f'task "{self.name}": piece_words={self.piece_words} must be at least '
                f"{MIN_PIECE_WORDS}; a piece needs several sentences"
            )

    @property
    def base_objective(self) -> str:
        """The objective of this library with the same documents."""
        return BASE_OBJECTIVES.get(self.objective, self.objective)

    @property
    def needs_summary(self) -> bool:
        """True if every document must have a summary."""
        return self.base_objective in (
            "summarize",
            "summarize_segments",
            "extract",
            "cloze",
            "prefer",
        )

    @property
    def writes_summaries(self) -> bool:
        """True if models of the task write summaries or gap sentences."""
        return self.base_objective in (
            "summarize",
            "summarize_segments",
            "gap_sentences",
            "prefer",
        )

    @property
    def needs_label(self) -> bool:
        """True if documents must have labels or answers."""
        return self.base_objective in (
            "classify",
            "classify_pairs",
            "tag",
            "answer",
            "choose",
        )

    @property
    def holds_out(self) -> bool:
        """True if the splits are shares of the same files."""
        return self.held_out > 0 and self._has_one_pattern

    @property
    def is_undivided(self) -> bool:
        """True if every split consists of all documents of the same files."""
        return self.held_out == 0 and self._has_one_pattern

    @property
    def _has_one_pattern(self) -> bool:
        return any(
            source.startswith(tuple(f"{scheme}:" for scheme in _FILES))
            and "{split}" not in source
            for source in self.sources
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of a mixture, or the only source.

        Raises:
            InputError: a mixture without rates.
        """
        return mixed_sources(self.source)

    def source_split(self, split: str) -> str:
        """Returns the name of ``split`` in the source.

        Raises:
            InputError: an unknown split, with a list of the known ones; or the
                split "test" of files whose held-out documents are the
                validation split.
        """
        if split not in self.splits:
            raise InputError(
                f'task "{self.name}" has no split "{split}"; {did_you_mean(split, self.splits)}'
            )
        if split == "test" and self.holds_out and "validation" in self.splits:
            raise InputError(
                f'task "{self.name}": {self.source} has no split "test", because the share '
                f"held_out={self.held_out} is the validation split, which ranks checkpoints; give "
                "test documents in another file"
            )
        return self.splits[split]


def is_source(data: str) -> bool:
    """Returns True for a source with a scheme ("hf:ORG/NAME"), False for a path or glob."""
    scheme, _, location = data.partition(":")
    return bool(location) and scheme in (*_SCHEMES, MIXTURE)


def source_of(data: str) -> str:
    """Returns the source of a user's data: a source itself, or a path or glob of files."""
    if is_source(data):
        return data
    scheme = "parquet" if data.endswith(".parquet") else "json"
    return f"{scheme}:{data}"


def _check_source(source: str, *, in_mixture: bool) -> None:
    """Raises InputError unless a source has a known form; parts of a mixture may be tasks."""
    scheme, _, rest = source.partition(":")
    if source in _BUILT_IN or (scheme in _SCHEMES and rest):
        return
    if in_mixture and source in TASKS:
        return
    task = ", or the name of a task" if in_mixture else ""
    mixture = "" if in_mixture else ", mix:RATE*SOURCE+RATE*SOURCE"
    raise InputError(
        f'source "{source}" must be one of embedded, minutes, tfds:NAME, hf:ORG/NAME, '
        f"seqio:NAME, govreport:DIR, qmsum:DIR, parquet:GLOB, json:GLOB{mixture}{task}"
    )


def mixture_parts(task: Task) -> tuple[tuple[Fraction, Task], ...]:
    """Returns the rates and the tasks of the parts of a mixture.

    A part that is a named task has the fields and splits of that task; all
    other options are copied from ``task``.
    """
    parts = []
    for rate, source in parse_mixture(task.source):
        fields: dict[str, Any] = {"source": source}
        if source in TASKS:
            named = TASKS[source]
            fields = {name: getattr(named, name) for name in _PLACE_OF_TASK}
        parts.append((rate, dataclasses.replace(task, **fields)))
    return tuple(parts)


def get_task(name: str, **overrides: Any) -> Task:
    """Returns the task ``name`` of ``TASKS`` with some fields replaced.

    A source "json:...", "mix:..." or "seqio:..." uses the field names of this
    library's JSON lines
    (``document``, ``summary``, ``query``, ``id``, ``label``; ``text`` for gap
    sentences, ``text`` or ``document`` for encoders; ``claim`` for the query of
    pairs; ``context``, ``question`` and ``answer`` for answers, ``label`` and
    ``choices`` for choices, ``rejected`` for preferences) unless the keys are
    overridden as well. An empty string for source, a key, data_dir or cache_dir
    selects the value in ``TASKS``. Another objective disables the
    ``piece_words`` of a gap-sentence task.

    Raises:
        InputError: unknown task or field, or an invalid value; the message
            lists the known ones.
    """
    if name not in TASKS:
        raise InputError(f'unknown task "{name}"; {did_you_mean(name, TASKS)}')
    task = TASKS[name]
    overrides = {
        key: value
        for key, value in overrides.items()
        if value != "" or key not in _BLANK_MEANS_DEFAULT
    }
    values = {
        field.name: getattr(task, field.name)
        for field in dataclasses.fields(Task)
    }
    objective = str(overrides.get("objective", task.objective))
    base = BASE_OBJECTIVES.get(objective, objective)
    if str(overrides.get("source", "")).startswith(_STANDARD_FIELDS):
        values |= _json_fields(base)
    if base != "gap_sentences":
        values["piece_words"] = None
    return from_dict(Task, values | overrides, f'task "{name}"')


def _json_fields(objective: str) -> dict[str, Any]:
    return {
        "splits": dict(TRAIN_VALIDATION_TEST),
        "document_key": _JSON_DOCUMENT_KEYS.get(objective, "text|document"),
        "summary_key": "summary",
        "query_key": _JSON_QUERY_KEYS.get(objective, "query"),
        "leading_query": False,
        "id_key": "id",
        "label_key": "answer" if objective == "answer" else "label",
        "choices_key": "choices",
        "rejected_key": "rejected",
    }


TASKS: Mapping[str, Task] = {
    name: Task(name, **fields) for name, fields in NAMED_TASKS.items()
}
