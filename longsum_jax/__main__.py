"""``longsum COMMAND ...`` and ``python -m longsum_jax COMMAND ...``."""

import importlib
import os
import shlex
import sys
from collections.abc import Sequence

from longsum_jax.commands import COMMANDS, console
from longsum_jax.errors import InputError, did_you_mean


def main() -> None:
    """Runs the command named by the first argument; the console script ``longsum``."""
    console.run_process(_run_command)


def _run_command(argv: Sequence[str]) -> int | None:
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    name, *rest = argv
    if name == "help":
        return _run_command([*rest, "--help"])
    if name == "--version":
        from longsum_jax import __version__

        print(f"longsum {__version__}")
        return 0
    if name not in COMMANDS and os.path.exists(name):
        command = shlex.join(["longsum", "summarize", *argv])
        raise InputError(
            f'unknown command "{name}", which is a file; run {command}'
        )
    if name not in COMMANDS:
        raise InputError(
            f'unknown command "{name}"; {did_you_mean(name, COMMANDS)}'
        )
    return importlib.import_module(f"longsum_jax.commands.{name}").main(rest)


def _usage() -> str:
    lines = [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    return (
        "usage: longsum COMMAND ...\n\n"
        + "\n".join(lines)
        + "\n\nlongsum help COMMAND shows flags and examples; longsum --version prints the version"
    )


if __name__ == "__main__":
    sys.argv[0] = "longsum"
    main()
