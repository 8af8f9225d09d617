"""The help texts of all commands."""

import importlib
import shlex

import pytest

from longsum_jax.commands import COMMANDS
from longsum_jax.experiment.config_files import split_overrides

PREFIXES = {"longsum train": "python -m longsum_jax.train"}


def command_parser(command):
    return importlib.import_module(f"longsum_jax.commands.{command}")._parser()


def example_lines(help_text):
    """Returns the commands in the examples of a help text, a line each."""
    lines = help_text.partition("examples:\n")[2].replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def example_arguments(command, line):
    """Returns the arguments of a command in an example; None if it runs another command."""
    words = shlex.split(line, comments=True)
    if "|" in words:
        words = words[words.index("|") + 1 :]
    if ">" in words:
        words = words[: words.index(">")]
    prefix = shlex.split(PREFIXES.get(f"longsum {command}", f"longsum {command}"))
    return words[len(prefix) :] if words[: len(prefix)] == prefix else None


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_parse(command):
    parser = command_parser(command)
    examples = [example_arguments(command, line) for line in example_lines(parser.format_help())]
    examples = [arguments for arguments in examples if arguments is not None]
    assert examples
    for arguments in examples:
        rest, _ = split_overrides(arguments)
        parser.parse_args(rest)
