"""Exit codes, help, progress and flags that commands share."""

import argparse
import contextlib
import difflib
import errno
import hashlib
import itertools
import json
import os
import platform
import re
import sys
import threading
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    Set,
)
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from longsum_jax.errors import InputError, in_one_line
from longsum_jax.schema import LARGEST, Range, check_number, shortened

if TYPE_CHECKING:
    from longsum_jax.data.tasks import Task
    from longsum_jax.evaluation.aligners import VectorAligner
    from longsum_jax.evaluation.metric import Metric
    from longsum_jax.evaluation.report import ReportContent
    from longsum_jax.inference.model import Model
    from longsum_jax.readers import ReadOptions


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs ``main(argv)`` and exits.

    The code is what ``main`` returns, 0 if that is None; 2 with one sentence for bad input, 130
    after Ctrl-C, else 1 with a traceback. Compiled programs are kept for the next command, see
    ``keep_compiled_programs``.
    """
    keep_compiled_programs(os.environ)
    for stream in (sys.stdout, sys.stderr):  # names of files may be no text
        stream.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:]) or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader of our output went away, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError as error:
        print(f"error: {_too_little_memory(error)}", file=sys.stderr)
        code = 2
    except OSError as error:
        remedy = _REMEDIES.get(error.errno)
        if error.filename is None or remedy is None:
            raise
        path = in_one_line(os.fsdecode(error.filename))
        print(f"error: {path[:200]}: {error.strerror}; {remedy}", file=sys.stderr)
        code = 2
    sys.exit(code)


def _too_little_memory(error: MemoryError) -> str:
    asked = in_one_line(str(error))[:200]  # NumPy says how much, Python nothing
    for_what = f" ({asked})" if asked else ""
    return (
        f"this machine has too little memory{for_what}; end other programs, or take a smaller "
        "model or shorter documents"
    )


def run_process(main: Callable[[Sequence[str]], int | None]) -> None:
    """Does what ``run`` does in a process of its own, which ends then.

    Threads of a checkpoint that could not be written may wait for minutes; nobody waits for them.
    """
    try:
        run(main)
    finally:
        others = set(threading.enumerate()) - {threading.main_thread()}
        if not all(thread.daemon for thread in others):
            code = getattr(sys.exception(), "code", 1)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


# Errors of the system that are a matter of a path that was given, and what to do then.
_REMEDIES = dict.fromkeys(
    (
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    ),
    "give another path",
) | dict.fromkeys(
    (errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.ESTALE),
    "make room there or mend the disk, or give another path",
)


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Makes JAX, not imported yet, keep compiled programs in the user's cache directory.

    Args:
        environment: the variables that JAX will read. JAX_COMPILATION_CACHE_DIR in it names
            another directory, JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    off = environment.get("JAX_ENABLE_COMPILATION_CACHE", "").lower() in ("false", "0")
    if off or "JAX_COMPILATION_CACHE_DIR" in environment:
        return
    # Without a home directory, or one that can be written, nothing is kept.
    with contextlib.suppress(OSError, RuntimeError):
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        directory = cache / "longsum_jax" / "compiled" / _processor()
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)


def _processor() -> str:
    """Returns a name of this processor's model.

    Programs for one model may not run on others that share the directory.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    prefixes = ("model name", "flags", "Features")
    model = "".join(sorted({line for line in lines if line.startswith(prefixes)}))
    digest = hashlib.blake2b(model.encode(), digest_size=4).hexdigest()
    return f"{platform.machine()}-{digest}"


# What to do where a device has too little memory.
TRAINING_ADVICE = (
    "raise training.accumulation, set model.remat, shard parameters with mesh.preset=fsdp or texts "
    "with fsdp+sequence, or lower data.batch_size"
)
SUMMARY_ADVICE = (
    "lower --batch_size, --num_beams or --max_source_length, take --dtype=bfloat16, or a model "
    "with hepos cross-attention (longsum convert --cross_attention=hepos)"
)


@contextlib.contextmanager
def memory_errors(advice: str) -> Iterator[None]:
    """Turns the error of a device that has run out of memory into one sentence.

    Args:
        advice: what to change.

    Raises:
        InputError: memory has run out inside the ``with``.
    """
    try:
        yield
    except RuntimeError as error:  # jax.errors.JaxRuntimeError is one
        message = str(error)
        if "RESOURCE_EXHAUSTED" not in message:
            raise
        asked = re.search(r"(?:allocate|allocating) ([\d.,]+ ?\w*)", message)
        for_what = f" for {asked.group(1)} more" if asked else ""
        raise InputError(
            f"the device has too little memory{for_what}; {advice}; --dry_run says what a program "
            "takes, longsum plan which change fits"
        ) from error


def add_dry_run_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --dry_run."""
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="compile, print what the programs take of this machine's devices, and stop; "
        "longsum plan does it for other devices",
    )


# Ranges of flags whose values no dataclass of options checks. Other numbers are finite, and whole
# ones fit 32 bits.
_RANGES: Mapping[str, Range] = {
    "batch_size": Range(1, 2**20),
    "documents": Range(1, LARGEST),
    "dpi": Range(1, 2400),
    "examples": Range(1, LARGEST),
    "height": Range(0, 200, above=True),
    "judges": Range(1, 1000),
    "level": Range(0, 1, above=True, below=True),
    "max_bytes": Range(1, 2**50),
    "ngram": Range(1, 1000),
    "max_source_length": Range(2, 2**24),
    "num_processes": Range(1, LARGEST),
    "num_shards": Range(1, 2**14),
    "process_id": Range(0, LARGEST),
    "rounds": Range(1, 10**7),
    "seed": Range(0, LARGEST),
    "stopped_exit_code": Range(0, 255),
    "temperature": Range(0, 1000),
    "threshold": Range(0, 1),
    "top": Range(0, 1000),
    "top_k": Range(0, LARGEST),
    "tries": Range(0, 1000),
    "vocab_size": Range(1, LARGEST),
    "width": Range(0, 200, above=True),
    "workers": Range(1, 1024),
}


_PATHS = ("DIR", "FILE", "PATH")  # names for the values of flags


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, and which checks the values of all flags."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; {self.prog} --help lists what there is")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See ``argparse``.

        Raises:
            InputError: an unknown flag, values that do not fit.
        """
        if self._subparsers is None:  # else flags may be of a command inside
            self._check_flags(sys.argv[1:] if args is None else args)
        found, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            if action.dest in vars(found):
                _check_value(action, getattr(found, action.dest))
        return found, rest

    def _check_flags(self, args: Sequence[str]) -> None:
        """Raises InputError for a flag that does not exist, before argparse misses another one."""
        known = {name for action in self._actions for name in action.option_strings}
        for argument in itertools.takewhile("--".__ne__, args):
            flag = argument.partition("=")[0]
            if flag.startswith("--") and " " not in flag and flag not in known:
                self.error(f"unknown flag {flag}{_guess(flag, known)}")


_CONFIG_KEY = "--config.KEY"


def _guess(flag: str, known: Set[str]) -> str:
    """Returns which of the known flags may be meant, if any is like an unknown one."""
    name = "--" + flag.removeprefix("--").replace("-", "_")
    if "." in name and _CONFIG_KEY in known:
        return f"; did you mean --config.{name.removeprefix('--')}?"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


def _check_value(action: argparse.Action, value: Any) -> None:
    name = f"--{action.dest}" if action.option_strings else action.dest
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, str) and "\0" in item:
            raise InputError(f"{name}={shortened(item)} holds a zero character; remove it")
        if item == "" and (action.required or action.metavar in _PATHS):
            raise InputError(f"{name} is empty; give {action.metavar or 'a value'}")
        if isinstance(item, int | float) and not isinstance(item, bool):
            check_number(name, item, _RANGES.get(action.dest))


def parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Returns the parser of ``longsum COMMAND``; its help ends with worked examples."""
    return _Parser(
        prog=f"longsum {command}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def print_stderr(message: str) -> None:
    """Prints a line on standard error."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def spinner(message: str) -> Iterator[None]:
    """Shows a message and the seconds that a block takes on standard error.

    Where that is no terminal, the message is printed once.
    """
    if not sys.stderr.isatty():
        print_stderr(f"{message} ...")
        yield
        return
    done = threading.Event()

    def tick() -> None:
        seconds = 0
        while not done.wait(1.0):
            seconds += 1
            print(f"\r{message} ... {seconds} s", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def add_model_flags(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds --model and all that ``inference.loading.load`` takes; see ``load_options``."""
    parser.add_argument(
        "--model",
        required=required,
        metavar="DIR",
        help="a model directory, a training workdir, or the name ORG/NAME of a repository of the "
        "Hugging Face Hub, which is fetched once (extra hf)",
    )
    parser.add_argument(
        "--revision", metavar="NAME", help="branch, tag or commit of a repository of the Hub"
    )
    parser.add_argument(
        "--which",
        choices=("best", "latest"),
        default="best",
        help="checkpoint of a training workdir; default: best",
    )
    parser.add_argument(
        "--architecture",
        metavar="CLASS",
        help="class in transformers whose weights the model has, where config.json names another",
    )
    parser.add_argument(
        "--tokenizer", metavar="PATH", help=".model file or directory, if not the model's own"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="of the computation"
    )
    add_matmul_precision_flag(parser)
    parser.add_argument(
        "--param_dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the parameters; bfloat16 halves their memory",
    )
    parser.add_argument(
        "--decoder_storage",
        choices=("float32", "bfloat16", "int8"),
        help="of the decoder's weights and the document's keys on a CPU, computed with in float32: "
        "fewer bytes for every token",
    )


def add_matmul_precision_flag(parser: Any) -> None:
    """Adds --matmul_precision to a parser, or a group of one."""
    parser.add_argument(
        "--matmul_precision",
        choices=("highest", "high", "default"),
        help="of float32 products on TPUs and GPUs: all digits, or the device's faster default; "
        "default: highest",
    )


# Flags of ``add_model_flags`` but --model, by the names of ``inference.loading.load``.
LOAD_FLAGS = (
    *("revision", "which", "architecture", "tokenizer"),
    *("dtype", "matmul_precision", "param_dtype", "decoder_storage"),
)


def load_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of ``inference.loading.load`` that the command line sets."""
    return flags_set(args, LOAD_FLAGS)


# Options of ``readers.ReadOptions``, with their types and what they are for.
_FILE_FLAGS: dict[str, tuple[type, str, str]] = {
    "document_key": (str, "NAME", "field or column that holds the document of JSON, CSV, Parquet"),
    "query_key": (str, "NAME", "field or column with a query, where --query gives none"),
    "max_bytes": (int, "N", "largest size of a file, and of all that it expands to"),
    "max_depth": (int, "N", "archives inside one another"),
    "max_pages": (int, "N", "pages of a PDF, chapters of an EPUB"),
    "max_seconds": (float, "N", "time that reading one document may take"),
}


def add_file_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``readers.ReadOptions``; see ``read_options``."""
    group = parser.add_argument_group("files")
    group.add_argument(
        "--keep_all",
        action="store_true",
        default=None,
        help="keep boilerplate, running headers, page numbers, hyphens at line ends, lists of "
        "references, quoted mail",
    )
    for name, (value_type, metavar, text) in _FILE_FLAGS.items():
        group.add_argument(f"--{name}", type=value_type, metavar=metavar, help=text)


def read_options(args: argparse.Namespace) -> "ReadOptions":
    """Returns the options that the flags of ``add_file_flags`` ask for.

    Raises:
        InputError: a value out of range.
    """
    from longsum_jax.readers import ReadOptions

    return ReadOptions(**flags_set(args, ("keep_all", *_FILE_FLAGS)))


def add_data_keys(parser: argparse.ArgumentParser) -> None:
    """Adds --document_key, --summary_key."""
    parser.add_argument(
        "--document_key", default="document", help="field of the document; default: document"
    )
    parser.add_argument(
        "--summary_key",
        default="summary",
        help="field of the reference summary; default: summary",
    )


def add_prediction_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --prediction_key, --document_key, --summary_key and --on_missing."""
    parser.add_argument(
        "--prediction_key",
        default="prediction",
        help="field of the prediction; default: prediction",
    )
    add_data_keys(parser)
    parser.add_argument(
        "--on_missing",
        choices=("error", "skip"),
        default="error",
        help="ids that are not in all files: stop, or leave them out; default: error",
    )


# Fields of a task that say where its documents are and how they are read.
SOURCE_FLAGS = {
    "source": "embedded, tfds:NAME[/CONFIG], parquet:GLOB or json:GLOB "
    '("{split}" in it becomes the split name)',
    "document_key": "field that holds the document",
    "summary_key": "field that holds the summary",
    "query_key": "field that holds a query, put before the document",
    "data_dir": "TFDS directory",
    "cache_dir": "directory that seqio_cache_tasks wrote",
}


def add_task_flags(parser: argparse.ArgumentParser, title: str) -> None:
    """Adds --task and ``SOURCE_FLAGS``, these in a group with a title; see ``task_of``."""
    parser.add_argument(
        "--task", metavar="NAME", help="a named data set; longsum prepare --help lists them"
    )
    group = parser.add_argument_group(title)
    for name, text in SOURCE_FLAGS.items():
        group.add_argument(f"--{name}", help=text)


def task_of(args: argparse.Namespace) -> "Task":
    """Returns the task that --task names, changed by the flags of ``add_task_flags``.

    Raises:
        InputError: an unknown task or a source that does not fit.
    """
    from longsum_jax.data.tasks import get_task

    return get_task(args.task, **flags_set(args, SOURCE_FLAGS))


def add_metric_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --metrics, --metric_option, --stemmer; see ``metrics_of``."""
    from longsum_jax.evaluation.registry import METRICS

    parser.add_argument(
        "--metrics",
        metavar="NAME[,NAME]",
        help=f"of {', '.join(METRICS)}; default: rouge",
    )
    parser.add_argument(
        "--metric_option",
        action="append",
        default=[],
        metavar="NAME.KEY=VALUE",
        help="an option of a metric; may be given several times",
    )
    parser.add_argument(
        "--stemmer", action="store_true", help="Porter stemmer in ROUGE: rouge.stemmer=true"
    )


def metrics_of(
    args: argparse.Namespace,
    default: Sequence[str] = ("rouge",),
    default_options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, "Metric"]:
    """Returns the metrics that the flags of ``add_metric_flags`` ask for.

    Args:
        args: with those flags.
        default: names of metrics where the flags give none.
        default_options: of metrics, which the flags change.

    Raises:
        InputError: unknown metrics or options.
    """
    from longsum_jax.evaluation.registry import make_metrics

    options = {name: dict(values) for name, values in default_options.items()}
    for text in args.metric_option:
        path, equals, value = text.partition("=")
        name, dot, key = path.partition(".")
        if not (equals and dot):
            raise InputError(f"--metric_option={text}: write NAME.KEY=VALUE, as rouge.stemmer=true")
        options.setdefault(name, {})[key] = _parsed(value)
    if args.stemmer:
        options.setdefault("rouge", {})["stemmer"] = True
    if args.metrics is not None:
        default = [name for name in args.metrics.split(",") if name]
    return make_metrics(default, options)


def _parsed(value: str) -> Any:
    """Returns JSON (numbers, true and false, lists) as such, all other values as text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def add_report_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --report; see ``write_report``."""
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="page to write (HTML): scores, plots, and every document beside its summaries",
    )


def add_align_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --align_model; see ``aligner_of``."""
    parser.add_argument(
        "--align_model",
        metavar="DIR",
        help="encoder whose sentence vectors tell in the page what a sentence rests on; default: "
        "words that are shared",
    )


def aligner_of(args: argparse.Namespace) -> "VectorAligner | None":
    """Returns what --align_model asks for; None without it.

    Raises:
        InputError: a model that cannot be read, or no --report.
    """
    if args.align_model is None:
        return None
    if args.report is None:
        raise InputError(
            f"--align_model={args.align_model} is for the page of --report; give --report=FILE"
        )
    from longsum_jax.evaluation.aligners import VectorAligner

    return VectorAligner(args.align_model)


def write_report(path: str, content: "ReportContent") -> None:
    """Writes the page that --report asks for, and says so.

    Raises:
        InputError: the file cannot be written, or its aligner asks for more documents.
    """
    from longsum_jax.evaluation import report

    try:
        with spinner(f"writing {path}"):
            report.write_report(Path(path), content)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); give another --report"
        ) from error
    print(f"{path}: the report, to open in a browser")


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the shortest ends of paths that tell them apart."""
    parts = [Path(path).parts for path in paths]
    names = list(paths)
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(set(paths)):
            break
    return names


def add_reading_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --max_source_length, --on_overflow."""
    parser.add_argument(
        "--max_source_length",
        type=int,
        metavar="N",
        help="tokens to read of a document; default: all of it",
    )
    parser.add_argument(
        "--on_overflow",
        choices=("truncate", "error"),
        default="truncate",
        help="longer documents: read their beginning (and say so), or stop; default: truncate",
    )


_STRATEGIES = (
    "direct (whole, or its beginning), extract (as many of its sentences as fit, by the built-in "
    "ranker), segments (a summary of each, joined), hierarchical (segments, then their summaries), "
    "refine (each segment with the summary of those before), memory (as models with segments of "
    "their own were trained to), or auto (memory, else direct for what fits and hierarchical for "
    "the rest)"
)


def add_strategy_flags(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds --strategy, --segment_length; see ``strategy_options``.

    Args:
        parser: of a command.
        default: what happens without --strategy, for the help.
    """
    from longsum_jax.inference.summary import Strategy

    parser.add_argument(
        "--strategy",
        choices=get_args(Strategy),
        help=f"how a document is read: {_STRATEGIES}; default: {default}",
    )
    parser.add_argument(
        "--segment_length",
        type=int,
        metavar="N",
        help="tokens of an input where documents are cut; default: what the model has positions "
        "for, or 1024",
    )


def strategy_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of ``Model.summaries`` that the flags of ``add_strategy_flags`` set."""
    return flags_set(args, ("strategy", "segment_length"))


def _parsed_flag(value: str) -> bool | str:
    """Returns true and false as such, all other values as text."""
    return {"true": True, "false": False}.get(value, value)


_GENERATION_FLAGS: dict[str, tuple[Callable[[str], Any], str]] = {
    "max_new_tokens": (int, "longest summary in tokens"),
    "min_new_tokens": (int, "shortest summary in tokens"),
    "num_beams": (int, "beams of the search; 1 is greedy"),
    "length_penalty": (float, "above 0 favors longer beams"),
    "early_stopping": (_parsed_flag, "when beams end: true, false or never"),
    "no_repeat_ngram_size": (int, "n-grams of this size occur once"),
    "prompt_lookup_num_tokens": (int, "tokens that greedy search guesses from the document"),
    "repetition_penalty": (float, "above 1 discourages tokens that were generated before"),
    "temperature": (float, "of sampling"),
    "top_k": (int, "sample from the k most likely tokens"),
    "top_p": (float, "sample from the most likely tokens whose probabilities add up to this"),
}


# All flags of ``add_generation_flags``.
GENERATION_FLAGS = (*_GENERATION_FLAGS, "do_sample", "generation_option", "seed")


def add_generation_flags(parser: argparse.ArgumentParser) -> None:
    """Adds options of generation under their generation_config names."""
    group = parser.add_argument_group(
        "generation (defaults come from the model's generation_config.json)"
    )
    for name, (value_type, text) in _GENERATION_FLAGS.items():
        group.add_argument(f"--{name}", type=value_type, help=text)
    group.add_argument(
        "--do_sample", action="store_true", default=None, help="sample instead of searching"
    )
    group.add_argument(
        "--generation_option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of generation_config.json, its value as JSON; may be given several "
        "times",
    )
    group.add_argument("--seed", type=int, default=0, help="of sampling; default: 0")


def add_batch_size_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --batch_size, a number or "auto"."""
    parser.add_argument(
        "--batch_size",
        type=_batch_size,
        default=1,
        metavar="N",
        help="documents decoded together, auto for as many as are fastest; above 1 they are split "
        "over all devices; stopped half-way, those at work are lost; default: 1",
    )


def on_devices(
    args: argparse.Namespace, model: "Model"
) -> contextlib.AbstractContextManager["Model"]:
    """Returns a context with the model, on all devices if it reads several documents at once."""
    return contextlib.nullcontext(model) if args.batch_size == 1 else model.on_all_devices()


def _batch_size(text: str) -> int | str:
    if text == "auto" or text.removeprefix("-").isdecimal():
        return text if text == "auto" else int(text)
    raise argparse.ArgumentTypeError(f'"{text}" is neither a number nor auto')


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of generation that the command line sets.

    Raises:
        InputError: a --generation_option that is no NAME=VALUE, or names one that has a flag.
    """
    options = flags_set(args, (*_GENERATION_FLAGS, "do_sample"))
    for text in args.generation_option:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(
                f"--generation_option={text}: write NAME=VALUE, as suppress_tokens=[3, 4]"
            )
        if name in (*_GENERATION_FLAGS, "do_sample"):
            raise InputError(f"--generation_option={text}: has a flag of its own, --{name}")
        options[name] = _parsed(value)
    return options


def refuse_idle(
    args: argparse.Namespace, parser: argparse.ArgumentParser, names: Iterable[str], mode: str
) -> None:
    """Raises InputError for a flag that has another value than its default, and no effect.

    Args:
        args: of the command line.
        parser: that gave them.
        names: of flags.
        mode: in which they have no effect: "with --x", "without --x".
    """
    for name in flags_changed(args, parser, names):
        raise InputError(f"--{name} has no effect {mode}; leave it out")


def flags_changed(
    args: argparse.Namespace, parser: argparse.ArgumentParser, names: Iterable[str]
) -> list[str]:
    """Returns those of the flags that have another value than their default."""
    return [name for name in names if getattr(args, name) != parser.get_default(name)]


def flags_set(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Returns the values of those of the flags that the command line sets."""
    values = {name: getattr(args, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
