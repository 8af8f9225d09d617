"""Exit codes, errors, help and progress of commands."""

import argparse
import contextlib
import difflib
import errno
import hashlib
import itertools
import logging
import os
import platform
import re
import sys
import threading
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    Set,
)
from pathlib import Path
from typing import Any, NoReturn

from longsum_jax.commands.environment import check_environment, not_started
from longsum_jax.commands.help_format import (
    HelpFormatter,
    everyday_help,
    full_help,
)
from longsum_jax.errors import (
    InputError,
    decoded_text,
    in_one_line,
    terminal_text,
)
from longsum_jax.plugins import load_plugins
from longsum_jax.schema import LARGEST, Range, check_number, shortened


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs ``main(argv)`` and exits.

    The exit code is the return value of ``main`` (None is 0), 2 with one
    sentence for bad input, 130 after Ctrl-C, otherwise 1 with a traceback.
    Compiled programs are cached for later commands, see
    ``keep_compiled_programs``.
    """
    keep_compiled_programs(os.environ)
    _open_closed_streams()
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        # Other programs read pipes and files: JSON and pages are UTF-8 in every
        # locale.
        if stream.isatty():
            encoding = stream.encoding
        else:
            encoding = "utf-8"
        # undecodable names
        stream.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        check_environment(os.environ)
        load_plugins()
        code = main([_with_home(argument) for argument in sys.argv[1:]]) or 0
        sys.stdout.flush()  # while its errors can still be caught
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader of our output exited, as with `| head`
        _drop_output()
        code = 0
    except MemoryError as error:
        print(f"error: {_too_little_memory(error)}", file=sys.stderr)
        code = 2
    except (AssertionError, RuntimeError) as error:
        message = not_started(error, os.environ)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        code = 2
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0)
        if error.filename is None and error.errno in _FULL:  # an open stream
            _drop_output()
            error.filename = "standard output, or a file"
        if error.filename is None or remedy is None:
            raise
        path = in_one_line(os.fsdecode(error.filename))
        print(
            f"error: {path[:200]}: {error.strerror}; {remedy}", file=sys.stderr
        )
        code = 2
    sys.exit(code)


def _open_closed_streams() -> None:
    """Replaces closed standard streams with /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _drop_output() -> None:
    """Discards pending output; otherwise Python flushes it again at exit, and fails again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _too_little_memory(error: MemoryError) -> str:
    # NumPy reports the size, Python does not
    size = in_one_line(str(error))[:200]
    for_what = f" ({size})" if size else ""
    return (
        f"this machine has too little memory{for_what}; end other programs, or take a smaller "
        "model or shorter documents"
    )


def _with_home(argument: str) -> str:
    """Expands the home directory in ``--flag=~/file`` and ``-f=~/file``; shells expand
    it only at the start of an argument.
    """
    flag, equals, value = argument.partition("=")
    if not flag.startswith("-") or not value.startswith(("~/", "~\\")):
        return argument
    return flag + equals + os.path.expanduser(value)


def run_process(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs a command like ``run``, but exits even if background threads are still alive.

    Threads of a failed checkpoint write may block for minutes; the process does
    not wait for them.
    """
    # Otherwise absl, which Orbax imports, adds a prefix to notes of the library.
    logging.basicConfig(format="%(message)s")
    try:
        run(main)
    finally:
        others = set(threading.enumerate()) - {threading.main_thread()}
        if not all(thread.daemon for thread in others):
            error = sys.exception()
            code = getattr(error, "code", 1)
            if error is not None and not isinstance(error, SystemExit):
                sys.excepthook(type(error), error, error.__traceback__)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


# Errors of a full or failing disk.
_FULL = (errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.ESTALE)
# System errors caused by the given path, and their remedies.
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
    _FULL,
    "free up space, check the disk, or give another path",
)


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Makes JAX, before it is imported, cache compiled programs in the user's cache directory.

    Args:
        environment: environment variables for JAX. JAX_COMPILATION_CACHE_DIR
            selects another directory; JAX_ENABLE_COMPILATION_CACHE=false
            disables the cache.
    """
    off = environment.get("JAX_ENABLE_COMPILATION_CACHE", "").lower() in (
        "false",
        "0",
    )
    if off or "JAX_COMPILATION_CACHE_DIR" in environment:
        return
    # Without a writable home directory, nothing is cached.
    with contextlib.suppress(OSError, RuntimeError):
        cache = Path(
            environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        )
        directory = cache / "longsum_jax" / "compiled" / _processor()
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)


def _processor() -> str:
    """Returns an identifier of this processor's model.

    Programs compiled for one model may not run on other machines that share the
    directory.
    """
    try:
        lines = (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        )
    except OSError:
        lines = []
    prefixes = ("model name", "flags", "Features")
    model = "".join(
        sorted({line for line in lines if line.startswith(prefixes)})
    )
    digest = hashlib.blake2b(model.encode(), digest_size=4).hexdigest()
    return f"{platform.machine()}-{digest}"


# Advice if a device has too little memory.
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
    """Converts the error of a device that is out of memory to an InputError of one sentence.

    Args:
        advice: changes that reduce memory use.

    Raises:
        InputError: the device ran out of memory inside the ``with``.
    """
    try:
        yield
    except RuntimeError as error:  # jax.errors.JaxRuntimeError is a subclass
        message = str(error)
        if "RESOURCE_EXHAUSTED" not in message:
            raise
        match = re.search(r"(?:allocate|allocating) ([\d.,]+ ?\w*)", message)
        if match:
            for_what = f" for {match.group(1)} more"
        else:
            for_what = ""
        raise InputError(
            f"the device has too little memory{for_what}; {advice}; --dry_run reports the memory "
            "of a program, longsum plan finds a change that fits"
        ) from error


# Ranges of flags whose values are not checked by a dataclass of options. Other
# numbers must be finite, and integers must fit in 32 bits.
_RANGES: Mapping[str, Range] = {
    "batch_size": Range(1, 2**20),
    "documents": Range(1, LARGEST),
    "dpi": Range(1, 2400),
    "examples": Range(1, LARGEST),
    "height": Range(0, 200, above=True),
    "input_length": Range(1, LARGEST),
    "judges": Range(1, 1000),
    "level": Range(0, 1, above=True, below=True),
    "max_bytes": Range(1, 2**50),
    "ngram": Range(1, 1000),
    "max_source_length": Range(2, 2**24),
    "num_processes": Range(1, LARGEST),
    "num_shards": Range(1, 2**14),
    "process_id": Range(0, LARGEST),
    "profile": Range(0, 10_000),
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


# What argparse calls numbers, and what messages call them.
_NUMBERS = {"int": "a whole number", "float": "a number"}
# Placeholders (metavars) of flag values
_PATHS = ("DIR", "FILE", "PATH")
_TEXTS = ("NAME", "TEXT")


class _EverydayHelp(argparse.Action):
    """Prints the short help of a parser with everyday flags."""

    def __init__(self, option_strings: Sequence[str], **options: Any) -> None:
        super().__init__(option_strings, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, _Parser)
        print(everyday_help(parser, parser.everyday), end="")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, and which checks the values of all flags.

    Args:
        everyday: names of the flags that --help shows, if there are more than
            it should show; --help-all shows all of them then.
        **options: options of ``argparse.ArgumentParser``.
    """

    def __init__(self, *, everyday: Sequence[str] = (), **options: Any) -> None:
        options |= {"formatter_class": HelpFormatter, "allow_abbrev": False}
        super().__init__(**options, add_help=not everyday)
        self.everyday = everyday
        if not everyday:
            # The same as --help, for users of commands with many flags.
            self.add_argument(
                "--help-all", action="help", help=argparse.SUPPRESS
            )
        if everyday:
            self.add_argument(
                "-h",
                "--help",
                action=_EverydayHelp,
                help="show the everyday flags and some examples",
                dest=argparse.SUPPRESS,
                default=argparse.SUPPRESS,
            )
            self.add_argument(
                "--help-all",
                action="help",
                help="show all flags and all examples",
            )

    def format_help(self) -> str:
        """Returns the help of all flags."""
        if self.everyday:
            return full_help(self)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        for kind, noun in _NUMBERS.items():
            message = re.sub(
                f"invalid {kind} value: (.*)", rf"\1 is not {noun}", message
            )
        raise InputError(f"{message}; run {self.prog} --help for usage")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See ``argparse``.

        Raises:
            InputError: a flag is unknown, or a value is invalid.
        """
        # otherwise flags may belong to a subcommand
        if self._subparsers is None:
            self._check_flags(sys.argv[1:] if args is None else args)
        parsed, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            if action.dest in vars(parsed):
                value = getattr(parsed, action.dest)
                if isinstance(value, str) and _is_text(action):
                    setattr(parsed, action.dest, decoded_text(value))
                _check_value(action, getattr(parsed, action.dest))
        return parsed, rest

    def _check_flags(self, args: Sequence[str]) -> None:
        """Raises InputError for an unknown flag, before argparse reports another one as missing."""
        names = {
            name for action in self._actions for name in action.option_strings
        }
        for argument in itertools.takewhile("--".__ne__, args):
            flag = argument.partition("=")[0]
            if flag.startswith("--") and " " not in flag and flag not in names:
                self.error(f"unknown flag {flag}{_guess(flag, names)}")
            # argparse would read -out as -o with the value "ut"
            if f"-{flag}" in names:
                self.error(f"unknown flag {flag}; did you mean -{flag}?")


_CONFIG_KEY = "--config.KEY"


def _guess(flag: str, names: Set[str]) -> str:
    """Returns a suggestion of a flag similar to an unknown one; "" if there is none."""
    name = "--" + flag.removeprefix("--").replace("-", "_")
    if "." in name and _CONFIG_KEY in names:
        return f"; did you mean --config.{name.removeprefix('--')}?"
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {close[0]}?"
    if _CONFIG_KEY in names:
        return "; values of the config are --config.SECTION.KEY=VALUE"
    return ""


def _is_text(action: argparse.Action) -> bool:
    """Returns True if the value of a flag is a text but not a file name."""
    return action.metavar in _TEXTS or action.dest.endswith("_key")


def _check_value(action: argparse.Action, value: Any) -> None:
    if action.option_strings:
        name = f"--{action.dest}"
    else:
        name = action.dest
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, str) and "\0" in item:
            raise InputError(
                f"{name}={shortened(item)} contains a NUL character; remove it"
            )
        if item == "" and (action.required or action.metavar in _PATHS):
            raise InputError(
                f"{name} is empty; give {action.metavar or 'a value'}"
            )
        if isinstance(item, int | float) and not isinstance(item, bool):
            check_number(name, item, _RANGES.get(action.dest))


def parser(
    command: str, description: str, examples: str, everyday: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Returns the parser of ``longsum COMMAND``.

    Args:
        command: name of the command.
        description: first sentence of its help.
        examples: examples at the end of its help, in blocks with an empty line
            between.
        everyday: names of the flags that --help shows, for commands with many
            flags; --help-all shows all of them then.
    """
    return _Parser(
        prog=f"longsum {command}",
        description=description,
        epilog=f"examples:\n{examples}",
        everyday=everyday,
    )


def unwritable(
    path: str | Path, error: OSError, flag: str = "out"
) -> InputError:
    """Returns the error for a file or directory of a flag that cannot be written."""
    return InputError(
        f"{path}: cannot be written ({error.strerror}); give another --{flag}"
    )


def print_stdout(
    text: str = "", *, end: str = "\n", flush: bool = False
) -> None:
    """Prints a text on standard output, without characters that control a terminal.

    Args:
        text: lines, which may contain text of documents, names and model
            outputs.
        end: text printed after it.
        flush: True to flush the stream.
    """
    print(terminal_text(text), end=end, flush=flush)


def print_stderr(message: str) -> None:
    """Prints a line on standard error, without characters that control a terminal."""
    print(terminal_text(message), file=sys.stderr, flush=True)


@contextlib.contextmanager
def spinner(message: str, delay: int = 0) -> Iterator[None]:
    """Shows a message and the elapsed seconds of a block on standard error.

    If standard error is not a terminal, the message is printed once, or not at
    all with a delay.

    Args:
        message: what the block does.
        delay: seconds after which the message appears.
    """
    if not sys.stderr.isatty():
        if not delay:
            print_stderr(f"{message} ...")
        yield
        return
    message = terminal_text(message)
    done = threading.Event()

    def tick() -> None:
        if delay and done.wait(delay - 1):
            return
        seconds = max(delay - 1, 0)
        while not done.wait(1.0):
            seconds += 1
            print(
                f"\r{message} ... {seconds} s",
                end="",
                file=sys.stderr,
                flush=True,
            )

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print("\r\033[K", end="", file=sys.stderr, flush=True)
