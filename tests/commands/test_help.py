"""The help texts of all commands."""

import argparse
import importlib
import re
import shlex

import pytest

from longsum_jax.__main__ import _run_command
from longsum_jax.commands import COMMANDS, console
from longsum_jax.commands.help_format import NUM_EXAMPLES
from longsum_jax.errors import InputError
from longsum_jax.experiment.config_files import split_overrides

PREFIXES = {"longsum train": "python -m longsum_jax.train"}


def command_parser(command):
    return importlib.import_module(f"longsum_jax.commands.{command}")._parser()


def parsers():
    """Yields the parsers of all commands and of their subcommands."""
    for command in COMMANDS:
        parser = command_parser(command)
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()


def option_actions(parser):
    shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    return [action for action in shown if action.option_strings]


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


def test_parsers_have_the_names_of_their_commands():
    for command in COMMANDS:
        assert command_parser(command).prog == f"longsum {command}"


MANY_FLAGS = 25


def test_every_flag_shows_its_default():
    for parser in parsers():
        formatter = parser._get_formatter()
        for action in option_actions(parser):
            if action.nargs != 0 and not action.required:
                text = f"{formatter._expand_help(action)} {action.container.title}"
                assert "default" in text, (parser.prog, action.option_strings)


def test_commands_with_many_flags_have_a_short_help():
    short = {parser.prog for parser in parsers() if parser.everyday}
    assert short == {
        parser.prog for parser in parsers() if len(option_actions(parser)) > MANY_FLAGS
    }
    assert {f"longsum {name}" for name in ("summarize", "evaluate", "prepare", "plan")} <= short


def test_the_short_help_and_the_full_help(capsys):
    for parser in parsers():
        if parser.everyday:
            check_short_and_full_help(parser, capsys)


def test_every_command_has_a_full_help(capsys):
    for parser in parsers():
        if not parser.everyday:
            with pytest.raises(SystemExit) as end:
                parser.parse_args(["--help-all"])
            assert end.value.code == 0
            shown = capsys.readouterr().out
            assert shown == parser.format_help()
            assert all(len(line) <= 100 for line in shown.splitlines())


def check_short_and_full_help(parser, capsys):
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as end:
            parser.parse_args([flag])
        assert end.value.code == 0
        shown[flag] = capsys.readouterr().out
    short, full = shown.values()
    assert full == parser.format_help()
    assert len(short.splitlines()) < min(90, len(full.splitlines()) / 1.5)
    names = [action.option_strings[-1] for action in option_actions(parser)]
    for name in names:
        assert re.search(rf"^  (-\w, )?{re.escape(name)}\b", full, re.M)
    for name in parser.everyday:
        assert re.search(rf"^  (-\w, )?--{re.escape(name)} ", short, re.M)
    assert short.count("\n  # ") <= NUM_EXAMPLES
    assert short.endswith(f"\n{parser.prog} --help-all lists all {len(names)} flags\n")
    for text in (short, full):
        assert text.startswith(f"usage: {parser.prog} ")
        assert "\n\n" in text[:100]  # the usage is one line
        assert all(len(line) <= 100 for line in text.splitlines())
    # Every flag has a heading.
    assert "\noptions:\n  -h, --help" in full
    rest = full.partition("\noptions:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (-.*?)  ", rest, re.M) == ["-h, --help", "--help-all"]


def test_placeholders_show_the_kind_of_a_value():
    parser = console.parser("x", "", "")
    for name, value_type in (("number", int), ("share", float), ("id_key", None), ("name", None)):
        parser.add_argument(f"--{name}", type=value_type)
    shown = parser.format_help()
    for text in ("--number N", "--share X", "--id_key FIELD", "--name NAME"):
        assert text in shown


def test_short_names_of_flags():
    args = command_parser("summarize").parse_args(["-l", "150 words", "-o=out", "a.txt"])
    assert (args.length, args.out, args.files) == ("150 words", "out", ["a.txt"])
    for parser in parsers():
        names = {name for action in option_actions(parser) for name in action.option_strings}
        assert ("-o" in names) == ("--out" in names)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["help", "score"], "usage: longsum score "),
        (["help", "corpus", "pairs"], "usage: longsum corpus pairs "),
    ],
)
def test_help_command(arguments, expected, capsys):
    with pytest.raises(SystemExit) as end:
        _run_command(arguments)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(expected)


def test_help_without_a_command(capsys):
    assert _run_command(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: longsum COMMAND ...")


def test_unknown_commands(tmp_path):
    path = tmp_path / "a report.txt"
    path.write_text("Rain fell.")
    for arguments, message in (
        (["help", "sumarize"], 'unknown command "sumarize"; did you mean "summarize"'),
        ([str(path), "--length=short"], f"; run longsum summarize '{path}' --length=short"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            _run_command(arguments)
