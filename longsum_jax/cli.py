"""What all commands share: exit codes, help that keeps its layout, and overrides of nested settings."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from longsum_jax.errors import InputError


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs ``main(argv)`` and exits: 0 when it worked, 2 with one sentence for bad input, 1 with a traceback otherwise."""
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


def parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Parser of ``python -m longsum_jax.<command>`` whose help ends with worked examples."""
    return argparse.ArgumentParser(
        prog=f"python -m longsum_jax.{command}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
