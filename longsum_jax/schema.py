"""Checks of nested values: dictionaries against dataclasses, parameter trees against each other."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from longsum_jax.errors import InputError, did_you_mean

T = TypeVar("T")


class TreeDifference(NamedTuple):
    """The names in which two trees of arrays differ.

    Attributes:
        missing: wanted and not found.
        extra: found and not wanted.
        misshapen: in both, with different shapes.
    """

    missing: list[str]
    extra: list[str]
    misshapen: list[str]


def compare_trees(
    wanted: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]
) -> TreeDifference:
    """Compares two trees of arrays by names and shapes.

    Args:
        wanted, found: name of every array to its shape. Missing and misshapen names are listed in
            the order of ``wanted``, extra ones in that of ``found``.
    """
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    common = [name for name in wanted if name in found]
    misshapen = [name for name in common if tuple(wanted[name]) != tuple(found[name])]
    return TreeDifference(missing, extra, misshapen)


def first_names(names: Sequence[str], limit: int = 6) -> str:
    """Returns the first ``limit`` of many names, and how many more there are."""
    listed = ", ".join(names[:limit])
    more = len(names) - limit
    return f"{listed} and {more} more" if more > 0 else listed


def from_dict(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Builds the dataclass ``cls`` from ``values``; nested dataclasses from nested mappings.

    Args:
        cls: a dataclass type.
        values: field name to value.
        where: what the values are called in error messages (a config section, a file).

    Raises:
        InputError: unknown key, or a value whose type or Literal choice does not fit.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: expected the keys {', '.join(fields)}, got {values!r}")
    built = {}
    for key, value in values.items():
        if key not in fields:
            raise InputError(f'{where}: unknown key "{key}"; {did_you_mean(key, fields)}')
        built[key] = _fit(fields[key], value, f"{where}.{key}")
    try:
        return cls(**built)
    except TypeError:
        required = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        missing = [name for name in required if name not in built]
        if not missing:
            raise
        raise InputError(f"{where}: missing {', '.join(missing)}") from None


def _fit(hint: Any, value: Any, where: str) -> Any:
    """Returns ``value`` as ``hint`` wants it (int to float, list to tuple), or raises
    InputError."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _fit_union(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            raise InputError(
                f'{where}: "{value}" is not allowed; {did_you_mean(value, map(str, args))}'
            )
        return value
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else from_dict(hint, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        inner = args[0] if args else Any
        return tuple(_fit(inner, item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = origin or hint
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise InputError(f"{where}: expected {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


def _fit_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    problems = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _fit(choice, value, where)
        except InputError as error:
            problems.append(str(error))
    raise InputError(problems[0])
