"""Formats the help of commands: a short one with the everyday flags, and a full one in groups."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

NUM_EXAMPLES = 3  # maximum number of examples in the short help
# Heading in the full help -> names of flags that no argparse group contains.
HEADINGS: Mapping[str, tuple[str, ...]] = {
    "model": (
        *("config", "config.KEY", "model", "revision", "which", "base"),
        *("architecture", "tokenizer"),
        *("vocab_size", "unconditional_model", "noise"),
        *("dtype", "matmul_precision", "param_dtype", "decoder_storage"),
    ),
    "documents": ("data", "task", "split", "half", "examples"),
    "reading": (
        "strategy",
        "segment_length",
        "max_source_length",
        "on_overflow",
        "join",
    ),
    "summary": (
        "length",
        "query",
        "prompt",
        "sources",
        "source_method",
        "support_model",
    ),
    "scores": ("metrics", "metric_option", "stemmer"),
    "conversion": ("position_extension", "cross_attention", "hepos_stride"),
    "server": ("host", "port", "api_keys", "cors_origin", "warm_up_tokens"),
    "devices": ("replicas", "mesh.fsdp", "mesh.tensor"),
    "limits of requests": (
        *("max_queue", "max_body_bytes", "max_request_seconds"),
        *("max_tokens", "max_new_tokens"),
    ),
    "target": ("device", "programs", "tries", "fastest", "top"),
    "output": (
        *(
            "out",
            "overwrite",
            "num_shards",
            "format",
            "json",
            "stream",
            "report",
            "align_model",
        ),
        "quiet",
    ),
    "execution": ("batch_size", "workers", "beam", "seed", "dry_run"),
}
# Placeholders for values of flags without a metavar, by type or by name.
_TYPE_METAVARS: Mapping[Any, str] = {int: "N", float: "X"}
_METAVARS: Mapping[str, str] = {
    "cache_dir": "DIR",
    "data_dir": "DIR",
    "early_stopping": "true|false|never",
    "extractor": "DIR",
    "half": "first|second",
    "mask_token": "TEXT",
    "out": "DIR",
    "prefix": "TEXT",
    "sentence_encoder": "DIR",
    "source": "SOURCE",
    "tokenizer": "PATH",
    "workdir": "DIR",
}


def true_or_false(text: str) -> bool:
    """Parses the value of a flag that is true or false."""
    values = {"true": True, "false": False}
    if text not in values:
        raise argparse.ArgumentTypeError(f'"{text}" is neither true nor false')
    return values[text]


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows the default of every flag, and the kind of its value."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if not _needs_default(action):
            return text
        if action.default in (None, [], ()):
            default = "none"
        else:
            default = "%(default)s"
        return f"{text}; default: {default}"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        if action.type is true_or_false:
            return "true|false"
        if action.type in _TYPE_METAVARS:
            return _TYPE_METAVARS[action.type]
        if action.dest.endswith("_key"):
            kind = "FIELD"
        else:
            kind = "NAME"
        return _METAVARS.get(action.dest, kind)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Shows the value once, after all names of the flag."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(
            action, self._get_default_metavar_for_optional(action)
        )
        return f"{', '.join(action.option_strings)} {value}"


def _needs_default(action: argparse.Action) -> bool:
    """Returns True if the help of a flag with a value does not mention the default."""
    if not action.option_strings or action.nargs == 0 or action.required:
        return False
    title = action.container.title or ""  # type: ignore[attr-defined]
    return "default" not in f"{action.help} {title}"


def flag_name(action: argparse.Action) -> str:
    """Returns the name of a flag, without dashes."""
    return action.option_strings[-1].removeprefix("--")


def full_help(parser: argparse.ArgumentParser) -> str:
    """Returns the help of all flags, in groups with headings."""
    formatter = _started(parser)
    for group in parser._action_groups:
        if group is parser._optionals:
            for heading, actions in _by_heading(group._group_actions):
                _add_section(formatter, heading, actions)
        else:
            _add_section(formatter, group.title, group._group_actions)
    formatter.add_text(parser.epilog)
    return formatter.format_help()


def everyday_help(
    parser: argparse.ArgumentParser, everyday: Sequence[str]
) -> str:
    """Returns the short help of a command: its everyday flags, and some examples.

    Args:
        parser: parser of the command.
        everyday: names of the flags to show, in this order.
    """
    actions = {
        flag_name(action): action
        for action in parser._actions
        if action.option_strings
    }
    formatter = _started(parser)
    _add_section(
        formatter, parser._positionals.title, parser._positionals._group_actions
    )
    _add_section(
        formatter, "everyday flags", [actions[name] for name in everyday]
    )
    heading, *blocks = (parser.epilog or "").split("\n\n")
    examples = [
        heading,
        *(block for block in blocks if block.startswith("  #")),
    ]
    formatter.add_text("\n\n".join(examples[:NUM_EXAMPLES]))
    formatter.add_text(
        f"{parser.prog} --help-all lists all {len(actions)} flags"
    )
    return formatter.format_help()


def _started(parser: argparse.ArgumentParser) -> argparse.HelpFormatter:
    """Returns a formatter with a usage of one line, and the description."""
    formatter = parser._get_formatter()
    words = [parser.prog]
    for action in parser._actions:
        if action.option_strings and action.required:
            words.append(formatter._format_action_invocation(action))
    words.append("[FLAGS]")
    for action in parser._positionals._group_actions:
        metavar = formatter._get_default_metavar_for_positional(action)
        words.append(formatter._format_args(action, metavar))
    formatter.add_usage(" ".join(words), (), ())
    formatter.add_text(parser.description)
    return formatter


def _by_heading(
    actions: Iterable[argparse.Action],
) -> Iterator[tuple[str, list[argparse.Action]]]:
    """Yields flags by heading; the rest, such as --help, is last."""
    rest = {flag_name(action): action for action in actions}
    for heading, names in HEADINGS.items():
        yield heading, [rest.pop(name) for name in names if name in rest]
    yield "options", list(rest.values())


def _add_section(
    formatter: argparse.HelpFormatter,
    title: str | None,
    actions: Iterable[argparse.Action],
) -> None:
    formatter.start_section(title)
    formatter.add_arguments(actions)
    formatter.end_section()
