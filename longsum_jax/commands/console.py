"""What all commands share: exit codes, help that keeps its layout, and overrides of nested
settings."""

import argparse
import contextlib
import hashlib
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs ``main(argv)`` and exits: 0 if it worked, 2 with one sentence for bad input, else 1 with
    a traceback.

    Compiled programs are kept for the next command, see ``keep_compiled_programs``.
    """
    keep_compiled_programs(os.environ)
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
    sys.exit(code)


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Has JAX, not imported yet, keep compiled programs in the user's cache directory, unless told
    otherwise.

    Args:
        environment: what JAX will read. JAX_COMPILATION_CACHE_DIR in it names another directory,
            JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    off = environment.get("JAX_ENABLE_COMPILATION_CACHE", "").lower() in ("false", "0")
    if off or "JAX_COMPILATION_CACHE_DIR" in environment:
        return
    with contextlib.suppress(
        OSError, RuntimeError
    ):  # no home, or none that can be written: nothing is kept
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        directory = cache / "longsum_jax" / "compiled" / _processor()
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)


def _processor() -> str:
    """A name of this kind of processor: programs for it may not run on others that share the
    directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kind = "".join(
        sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    )
    return f"{platform.machine()}-{hashlib.blake2b(kind.encode(), digest_size=4).hexdigest()}"


def parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Parser of ``longsum COMMAND`` whose help ends with worked examples."""
    return argparse.ArgumentParser(
        prog=f"longsum {command}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def print_stderr(message: str) -> None:
    """A line on standard error."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def spinner(what: str) -> Iterator[None]:
    """Shows ``what`` and the seconds passed on a terminal's standard error, so that no command sits
    silent."""
    if not sys.stderr.isatty():
        print_stderr(f"{what} ...")
        yield
        return
    done = threading.Event()

    def tick() -> None:
        seconds = 0
        while not done.wait(1.0):
            seconds += 1
            print(f"\r{what} ... {seconds} s", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """--model, --tokenizer, --dtype."""
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a model directory, or a training workdir"
    )
    parser.add_argument(
        "--tokenizer", metavar="PATH", help=".model file or directory, if not the model's own"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="of the computation"
    )


def add_reading_flags(parser: argparse.ArgumentParser) -> None:
    """--max_source_length, --on_overflow."""
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


_GENERATION_FLAGS: dict[str, tuple[type, str]] = {
    "max_new_tokens": (int, "longest summary in tokens"),
    "min_new_tokens": (int, "shortest summary in tokens"),
    "num_beams": (int, "beams of the search; 1 is greedy"),
    "length_penalty": (float, "above 0 favours longer beams"),
    "no_repeat_ngram_size": (int, "n-grams of this size occur once"),
    "repetition_penalty": (float, "above 1 discourages tokens that are there already"),
    "temperature": (float, "of sampling"),
    "top_k": (int, "sample from the k likeliest tokens"),
    "top_p": (float, "sample from the likeliest tokens of this mass"),
}


def add_generation_flags(parser: argparse.ArgumentParser) -> None:
    """Options of generation under their generation_config names; defaults are the checkpoint's."""
    group = parser.add_argument_group(
        "generation (defaults come from the model's generation_config.json)"
    )
    for name, (kind, text) in _GENERATION_FLAGS.items():
        group.add_argument(f"--{name}", type=kind, help=text)
    group.add_argument(
        "--do_sample", action="store_true", default=None, help="sample instead of searching"
    )
    group.add_argument("--seed", type=int, default=0, help="of sampling; default: 0")


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Raises InputError unless these flags, where given, are at least 1."""
    for name in names:
        if (value := getattr(args, name)) is not None and value < 1:
            raise InputError(f"--{name}={value} must be at least 1")


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were given on the command line."""
    given = {name: getattr(args, name) for name in (*_GENERATION_FLAGS, "do_sample")}
    return {name: value for name, value in given.items() if value is not None}
