"""Command-line flags shared by several commands."""

import argparse
import contextlib
import glob
import itertools
import json
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from longsum_jax.commands import console
from longsum_jax.errors import InputError
from longsum_jax.schema import field_docs

if TYPE_CHECKING:
    from longsum_jax.data.tasks import Task
    from longsum_jax.evaluation.aligners import VectorAligner
    from longsum_jax.evaluation.metric import Metric
    from longsum_jax.evaluation.report import ReportContent
    from longsum_jax.readers import ReadOptions
    from longsum_jax.summarization.model import Model
    from longsum_jax.summarization.summary_options import SummaryOptions


def add_dry_run_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --dry_run."""
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="compile, print the memory that the programs use on this machine's devices,"
        " and stop; longsum plan does so for other devices",
    )


def add_model_flags(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    repeats: bool = False,
) -> None:
    """Adds --model and all options of ``summarization.loading.load``; see ``load_options``.

    Args:
        parser: parser of a command.
        required: True if --model must be set.
        repeats: True if --model may be set several times; its value is then a
            list or None.
    """
    parser.add_argument(
        "--model",
        action="append" if repeats else "store",
        required=required,
        metavar="DIR",
        help="model directory, training workdir, or name ORG/NAME on the Hugging Face Hub "
        "(downloaded once; extra hf)"
        + ("; may be repeated" if repeats else "")
        + ("" if required else "; default: the built-in ranker"),
    )
    parser.add_argument(
        "--revision",
        metavar="NAME",
        help="branch, tag or commit of a Hub repository; default: main",
    )
    add_checkpoint_flags(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="PATH",
        help=".model file or directory; default: the model's tokenizer",
    )
    add_computation_flags(parser)
    add_param_dtype(parser)
    parser.add_argument(
        "--decoder_storage",
        choices=("float32", "bfloat16", "int8"),
        help="storage type of decoder weights and document keys on CPUs; smaller types "
        "read fewer bytes per token; the computation stays in float32; default: "
        "float32",
    )


def add_checkpoint_flags(parser: Any) -> None:
    """Adds --which, --base and --architecture to a parser or an argument group."""
    parser.add_argument(
        "--which",
        choices=("best", "latest"),
        default="best",
        help="checkpoint of a training workdir; default: best",
    )
    parser.add_argument(
        "--base",
        metavar="DIR",
        help="base model of a LoRA adapter; default: as in its adapter_config.json",
    )
    parser.add_argument(
        "--architecture",
        metavar="CLASS",
        help="transformers class that saved the weights; default: the class in config.json",
    )


def add_computation_flags(parser: Any) -> None:
    """Adds ``COMPUTATION_FLAGS`` to a parser or an argument group."""
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="computation dtype",
    )
    parser.add_argument(
        "--matmul_precision",
        choices=("highest", "high", "default"),
        help="precision of float32 matrix products on TPUs and GPUs: all digits "
        "(highest), or fewer and faster (high, default); default: highest",
    )


def add_param_dtype(parser: Any) -> None:
    """Adds --param_dtype to a parser or an argument group."""
    parser.add_argument(
        "--param_dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="parameter dtype; bfloat16 halves parameter memory",
    )


COMPUTATION_FLAGS = ("dtype", "matmul_precision")
# Flags of ``add_model_flags`` except --model, named as in
# ``summarization.loading.load``.
LOAD_FLAGS = (
    *("revision", "which", "base", "architecture", "tokenizer"),
    *COMPUTATION_FLAGS,
    *("param_dtype", "decoder_storage"),
)


def load_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of ``summarization.loading.load`` from the command line."""
    return given(args, LOAD_FLAGS)


# Options of ``readers.ReadOptions``: type, metavar, help.
_FILE_FLAGS: dict[str, tuple[type, str, str]] = {
    "document_key": (
        str,
        "NAME",
        "field or column of JSON, CSV or Parquet files that contains the document; "
        "default: document, text, article, content or body",
    ),
    "query_key": (
        str,
        "NAME",
        "field or column that contains a query, used without --query; default: query",
    ),
    "max_bytes": (
        int,
        "N",
        "maximum size of a file, before and after unpacking; reading uses at most "
        "twice as much memory plus 2 GiB, and less for small files; default: 1 GiB",
    ),
    "max_depth": (int, "N", "maximum nesting depth of archives; default: 4"),
    "max_pages": (
        int,
        "N",
        "maximum pages of a PDF or chapters of an EPUB; longer files are refused; default: 20,000",
    ),
    "max_seconds": (
        float,
        "N",
        "maximum seconds for reading one document; default: 300",
    ),
}


def add_file_flags(
    parser: argparse.ArgumentParser,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Adds the options of ``readers.ReadOptions``; see ``read_options``.

    Args:
        parser: parser of the command.
        defaults: descriptions of the defaults that the command replaces, by the
            names of the flags.
    """
    group = parser.add_argument_group("files")
    group.add_argument(
        "--keep_all",
        action="store_true",
        default=None,
        help="keep boilerplate, running headers, page numbers, hyphens at line ends, "
        "reference lists and quoted mail",
    )
    group.add_argument(
        "--no_sandbox",
        dest="sandbox",
        action="store_false",
        default=None,
        help="read files in this process instead of a child process with limits; only "
        "for trusted files: memory is unlimited, a library that exceeds "
        "--max_seconds is not stopped, and its crash ends the command",
    )
    for name, (value_type, metavar, text) in _FILE_FLAGS.items():
        if name in defaults:
            text = f"{text.partition('default: ')[0]}default: {defaults[name]}"
        group.add_argument(
            f"--{name}", type=value_type, metavar=metavar, help=text
        )


def read_options(args: argparse.Namespace) -> "ReadOptions":
    """Returns the options set by the flags of ``add_file_flags``.

    Raises:
        InputError: a value is out of range.
    """
    from longsum_jax.readers import ReadOptions

    with named_flags(args):
        return ReadOptions(**given(args, ("keep_all", "sandbox", *_FILE_FLAGS)))


@contextlib.contextmanager
def named_flags(args: argparse.Namespace) -> Iterator[None]:
    """Adds dashes to errors of a block that begin with NAME=VALUE, if NAME is a flag.

    Args:
        args: parsed command line.
    """
    try:
        yield
    except InputError as error:
        if str(error).partition("=")[0] in vars(args):
            raise InputError(f"--{error}") from None
        raise


def check_one(args: argparse.Namespace, **flags: str) -> None:
    """Raises InputError unless exactly one of two flags is given.

    Args:
        args: parsed command line.
        **flags: names of the flags, each with the placeholder of its value.
    """
    count = sum(getattr(args, name) is not None for name in flags)
    if count != 1:
        first, second = (f"--{name}={value}" for name, value in flags.items())
        number = "both are" if count else "neither is"
        raise InputError(
            f"give exactly one of {first} and {second}; {number} given"
        )


def add_document_key(parser: argparse.ArgumentParser) -> None:
    """Adds --document_key of JSON lines."""
    parser.add_argument(
        "--document_key",
        default="document",
        help="field of the document; default: document",
    )


def add_data_keys(parser: argparse.ArgumentParser) -> None:
    """Adds --document_key, --summary_key."""
    add_document_key(parser)
    parser.add_argument(
        "--summary_key",
        default="summary",
        help="field of the reference summary; default: summary",
    )


def add_sampling_flags(
    parser: argparse.ArgumentParser, rounds: str = "rounds"
) -> None:
    """Adds --rounds, --level and --seed of intervals.

    Args:
        parser: parser of the command.
        rounds: description of --rounds.
    """
    parser.add_argument(
        "--rounds",
        type=int,
        default=10_000,
        help=f"{rounds}; default: 10000",
    )
    parser.add_argument(
        "--level",
        type=float,
        default=0.95,
        help="level of confidence intervals; default: 0.95",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="random seed for the rounds; default: 0",
    )


def add_prediction_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --prediction_key, --document_key, --summary_key and --on_missing."""
    parser.add_argument(
        "--prediction_key",
        metavar="KEY[,KEY]",
        default="prediction",
        help="field of the prediction (summary in the output of longsum summarize); of "
        "several names, the first that a row contains; default: prediction",
    )
    add_data_keys(parser)
    parser.add_argument(
        "--on_missing",
        choices=("error", "skip"),
        default="error",
        help="for ids that are missing in a file: stop (error), or ignore them (skip); "
        "default: error",
    )


# Task fields that determine the source of documents and how they are read.
SOURCE_FLAGS = {
    "source": "embedded, minutes, tfds:NAME[/CONFIG], hf:ORG/NAME, seqio:[MODULE:]NAME, "
    "govreport:DIR or qmsum:DIR (releases), parquet:GLOB or json:GLOB "
    '("{split}" in it becomes the split name), or a mixture mix:RATE*SOURCE+RATE*SOURCE',
    "document_key": "field that contains the document",
    "summary_key": "field that contains the summary",
    "query_key": "field that contains a query, put before the document",
    "document_separator": "text between several documents that are read as one",
    "data_dir": "TFDS directory",
    "cache_dir": "directory written by seqio_cache_tasks",
}
# Further fields, of tasks without summaries.
LABEL_FLAGS = {
    "label_key": "field that contains the label or the answer",
    "choices_key": "field that contains the texts to choose from",
}


def add_task_flags(
    parser: argparse.ArgumentParser,
    title: str,
    others: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Adds --task and, in a group with a title, ``SOURCE_FLAGS`` and others; see ``task_of``."""
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="named data set; longsum prepare --help-all lists all names",
    )
    group = parser.add_argument_group(title)
    for name, text in (SOURCE_FLAGS | dict(others)).items():
        group.add_argument(f"--{name}", help=f"{text}; default: the task's")


def task_of(args: argparse.Namespace, others: Iterable[str] = ()) -> "Task":
    """Returns the task named by --task, modified by the flags of ``add_task_flags``.

    Args:
        args: parsed command line.
        others: names of flags in addition to ``SOURCE_FLAGS``.

    Raises:
        InputError: the task is unknown, or the source is invalid.
    """
    from longsum_jax.data.tasks import get_task

    return get_task(args.task, **given(args, (*SOURCE_FLAGS, *others)))


def check_half(args: argparse.Namespace) -> None:
    """Raises InputError if --half is combined with a --split other than train."""
    if args.half and args.split != "train":
        raise InputError(
            f"--half={args.half} is for --split=train, not for {args.split}; leave it out"
        )


def add_metric_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --metrics, --metric_option, --stemmer; see ``metrics_of``."""
    from longsum_jax.evaluation.registry import METRICS

    parser.add_argument(
        "--metrics",
        metavar="NAME[,NAME]",
        help=f"metrics: {', '.join(METRICS)}; default: rouge",
    )
    parser.add_argument(
        "--metric_option",
        action="append",
        default=[],
        metavar="NAME.KEY=VALUE",
        help="option of a metric; may be given several times",
    )
    parser.add_argument(
        "--stemmer",
        action="store_true",
        help="Porter stemmer in ROUGE: rouge.stemmer=true",
    )


def metrics_of(
    args: argparse.Namespace,
    default: Sequence[str] = ("rouge",),
    default_options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, "Metric"]:
    """Returns the metrics selected by the flags of ``add_metric_flags``.

    Args:
        args: parsed command line.
        default: names of metrics if --metrics is not given.
        default_options: default options of metrics, which the flags override.

    Raises:
        InputError: a metric or option is unknown.
    """
    from longsum_jax.evaluation.registry import make_metrics

    options = {name: dict(values) for name, values in default_options.items()}
    for text in args.metric_option:
        path, equals, value = text.partition("=")
        name, dot, key = path.partition(".")
        if not (equals and dot):
            raise InputError(
                f"--metric_option={text}: write NAME.KEY=VALUE, as rouge.stemmer=true"
            )
        options.setdefault(name, {})[key] = _parsed(value)
        if args.stemmer and path == "rouge.stemmer" and value != "true":
            raise InputError(
                f"--metric_option={text} contradicts --stemmer; leave one out"
            )
    if args.stemmer:
        options.setdefault("rouge", {})["stemmer"] = True
    if args.metrics is not None:
        default = [name for name in args.metrics.split(",") if name]
    return make_metrics(default, options)


def _parsed(value: str) -> Any:
    """Returns the parsed value if it is JSON (number, true, false, list); otherwise the text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def add_report_flag(
    parser: argparse.ArgumentParser,
    content: str = "scores, plots, and every document next to its summaries",
) -> None:
    """Adds --report; see ``write_report``.

    Args:
        parser: parser of the command.
        content: content of the page, for the help text.
    """
    parser.add_argument(
        "--report", metavar="FILE", help=f"HTML page to write: {content}"
    )


def add_align_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --align_model; see ``aligner_of``."""
    parser.add_argument(
        "--align_model",
        metavar="DIR",
        help="encoder whose sentence vectors align summaries with documents on the page;"
        " default: shared words",
    )


def aligner_of(args: argparse.Namespace) -> "VectorAligner | None":
    """Returns the aligner of --align_model; None without the flag.

    Raises:
        InputError: the model cannot be read, or --report is missing.
    """
    if args.align_model is None:
        return None
    if args.report is None:
        raise InputError(
            f"--align_model={args.align_model} is for the page of --report; give --report=FILE"
        )
    from longsum_jax.evaluation.aligners import VectorAligner

    return VectorAligner(args.align_model)


def check_file(flag: str, path: str | None) -> None:
    """Raises InputError early if an output file cannot be written later."""
    if path is None:
        return
    parent = Path(path).parent
    if Path(path).is_dir():
        raise InputError(f"--{flag}={path} is a directory; give a file")
    if not parent.is_dir():
        raise InputError(
            f"--{flag}={path}: directory {parent} does not exist; create it first"
        )
    if not os.access(parent, os.W_OK):
        raise InputError(
            f"--{flag}={path}: {parent} cannot be written; give another --{flag}"
        )


def refuse_input(
    flag: str, path: str | None, inputs: Iterable[str | None]
) -> None:
    """Raises InputError if an output file would replace an input.

    Args:
        flag: name of the flag of the output.
        path: value of the flag; None for no file.
        inputs: files and patterns of files; None for no file.
    """
    if path is None or not Path(path).exists():
        return
    names = [name.removeprefix("json:") for name in inputs if name]
    matches = [glob.iglob(name, recursive=True) for name in names]
    for name in itertools.chain(names, *matches):
        if os.path.isfile(name) and os.path.samefile(name, path):
            raise InputError(
                f"--{flag}={path} is read by this command; give another --{flag}"
            )


def make_directory(path: str) -> Path:
    """Creates the directory of --out, and returns it."""
    out = Path(path)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{out}: cannot be used ({error.strerror}); give another --out"
        ) from error
    if not os.access(out, os.W_OK):
        raise InputError(f"{out}: cannot be written; give another --out")
    return out


def print_notes(
    metrics: Mapping[str, "Metric"], references: Sequence[str]
) -> None:
    """Prints the notes of metrics below their values."""
    from longsum_jax.evaluation.registry import notes_of

    for note in notes_of(metrics, references):
        console.print_stdout(note)


def write_report(
    path: str,
    content: "ReportContent",
    show: Callable[[str], None] = console.print_stdout,
) -> None:
    """Writes the page of --report, and prints its path.

    Args:
        path: path of the page.
        content: content of the page.
        show: function that prints the path.

    Raises:
        InputError: the file cannot be written, or its aligner needs more
            documents.
    """
    from longsum_jax.evaluation import report

    try:
        with console.spinner(f"writing {path}"):
            report.write_report(Path(path), content)
    except OSError as error:
        raise console.unwritable(path, error, "report") from error
    show(f"{path}: the report; open it in a browser")


def add_summary_flags(
    parser: Any, names: Iterable[str] | None = None, **defaults: str
) -> None:
    """Adds the fields of ``SummaryOptions`` and generation options; see ``summary_options``.

    Args:
        parser: parser of a command.
        names: names of the fields; None for all.
        **defaults: descriptions of the defaults that the command replaces.
    """
    from longsum_jax.summarization.summary_options import (
        READING_OPTIONS,
        SummaryOptions,
        strategy_names,
    )

    for name in names or READING_OPTIONS:
        choices = None
        if name == "strategy":  # its type does not have names of others
            choices = strategy_names()
        # --seed follows the options of sampling
        if name != "seed":
            _add_field(
                parser, SummaryOptions, name, defaults.get(name), choices
            )
    add_generation_flags(parser)


# What the flags say about a field in addition to its description.
_NOTES = {
    "batch_size": "above 1, documents are split over all devices, and an interruption "
    "loses the ones in progress",
}
_SHORT_NAMES = {"length": ("-l",)}


def _add_field(
    parser: Any,
    cls: type,
    name: str,
    default: str | None = None,
    choices: Sequence[str] | None = None,
) -> None:
    """Adds a flag with the name, type, default and description of a dataclass's field.

    Args:
        parser: parser, or group of flags.
        cls: dataclass.
        name: name of the field.
        default: description of the default, if the command replaces it; "" for
            none.
        choices: allowed values; None for the words of the field's type.
    """
    text, _, described = (
        field_docs(cls).get(name, "").rstrip(".").partition(". None for ")
    )
    if name in _NOTES:
        text += f"; {_NOTES[name]}"
    argument = _argument(typing.get_type_hints(cls)[name])
    if choices is not None:
        argument["choices"] = choices
    text = text.removeprefix("True to ")
    if default is None:
        argument["default"] = getattr(cls, name)
        default = described or argument["default"]
    if default != "":
        text += f"; default: {default}"
    parser.add_argument(
        *_SHORT_NAMES.get(name, ()),
        f"--{name}",
        help=text.replace("%", "%%"),
        **argument,
    )


def _argument(hint: Any) -> dict[str, Any]:
    """Returns the arguments of ``add_argument`` for values of a type."""
    types = typing.get_args(hint) or (hint,)
    words = [word for item in types for word in typing.get_args(item)]
    if bool in types and not words:
        return {"action": "store_true", "default": None}
    if bool in types:
        return {"type": _parsed_flag}
    if int in types and words:
        return {"type": _number_or_auto, "metavar": "N"}
    if typing.get_origin(hint) is typing.Literal:
        return {"choices": types}
    if words:
        return {"choices": words}
    if str in types:
        return {"metavar": "TEXT"}
    return {"type": float if float in types else int}


def _parsed_flag(value: str) -> bool | str:
    """Converts true and false to booleans; other values remain text."""
    return {"true": True, "false": False}.get(value, value)


def _number_or_auto(text: str) -> int | str:
    if text == "auto" or text.removeprefix("-").isdecimal():
        return text if text == "auto" else int(text)
    raise argparse.ArgumentTypeError(f'"{text}" is neither a number nor auto')


# Fields of ``GenerationOptions`` with a flag.
_GENERATION_FLAGS = (
    "max_new_tokens",
    "min_new_tokens",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "segments_no_repeat_ngram_size",
    "prompt_lookup_num_tokens",
    "repetition_penalty",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
)
# All flags of ``add_generation_flags``.
GENERATION_FLAGS = (*_GENERATION_FLAGS, "generation_option", "seed")


def add_generation_flags(parser: argparse.ArgumentParser) -> None:
    """Adds generation options under their generation_config names."""
    from longsum_jax.decoding.options import GenerationOptions
    from longsum_jax.summarization.summary_options import SummaryOptions

    group = parser.add_argument_group(
        "generation (defaults come from the model's generation_config.json)"
    )
    for name in _GENERATION_FLAGS:
        _add_field(group, GenerationOptions, name, default="")
    group.add_argument(
        "--generation_option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of generation_config.json, its value as JSON; may be given several "
        "times",
    )
    _add_field(group, SummaryOptions, "seed")


def add_beam_flag(parser: argparse.ArgumentParser, use: str) -> None:
    """Adds --beam; see ``beam_flags``.

    Args:
        parser: parser of the command.
        use: verb phrase for the work of Beam.
    """
    parser.add_argument(
        "--beam",
        metavar="FLAGS",
        help=f"{use}, with these flags of its runner, in one pair of quotes (extra beam); "
        "does not affect the result; --out must be on a disk that all machines share",
    )


def beam_flags(args: argparse.Namespace) -> list[str] | None:
    """Returns the flags in --beam; None without it.

    Raises:
        InputError: Beam is not installed or has no such flag.
    """
    if args.beam is None:
        return None
    from longsum_jax.beam_pipeline import parse_flags

    return parse_flags(args.beam)


def on_devices(
    args: argparse.Namespace, model: "Model"
) -> contextlib.AbstractContextManager["Model"]:
    """Returns a context with the model; on all devices if it reads several documents at once."""
    if args.batch_size == 1:
        return contextlib.nullcontext(model)
    return model.on_all_devices()


def summary_options(
    args: argparse.Namespace, **defaults: Any
) -> "SummaryOptions":
    """Returns the options set by the flags of ``add_summary_flags``.

    Args:
        args: parsed command line.
        **defaults: defaults of the command.

    Raises:
        InputError: an option is out of range, or as ``generation_options``.
    """
    from longsum_jax.summarization.summary_options import (
        READING_OPTIONS,
        make_options,
    )

    names = [name for name in READING_OPTIONS if hasattr(args, name)]
    options = defaults | given(args, names) | generation_options(args)
    with named_flags(args):
        return make_options(**options)


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the generation options of the command line.

    Raises:
        InputError: a --generation_option is not NAME=VALUE, or has a separate
            flag.
    """
    options = given(args, _GENERATION_FLAGS)
    for text in args.generation_option:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(
                f"--generation_option={text}: write NAME=VALUE, as suppress_tokens=[3, 4]"
            )
        if name in _GENERATION_FLAGS:
            raise InputError(
                f"--generation_option={text}: has its own flag, --{name}"
            )
        options[name] = _parsed(value)
    return options


def refuse_idle(
    args: argparse.Namespace,
    parser: argparse.ArgumentParser,
    names: Iterable[str],
    mode: str,
) -> None:
    """Raises InputError if a flag without effect has a value other than its default.

    Args:
        args: parsed command line.
        parser: parser of the command.
        names: names of flags.
        mode: mode in which they have no effect: "with --x", "without --x".
    """
    for name in changed(args, parser, names):
        raise InputError(f"--{name} has no effect {mode}; leave it out")


def changed(
    args: argparse.Namespace,
    parser: argparse.ArgumentParser,
    names: Iterable[str],
) -> list[str]:
    """Returns the names of the flags whose value differs from the default."""
    return [
        name
        for name in names
        if getattr(args, name) != parser.get_default(name)
    ]


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Returns the values of the flags that were given on the command line."""
    values = {name: getattr(args, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
