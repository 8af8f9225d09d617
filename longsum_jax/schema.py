"""Validates values: dictionaries against dataclasses, numbers against ranges, parameter trees
against each other.

Dataclasses of options declare the range of a number once, in its type: ``rate:
Share``.
"""

import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast

from longsum_jax.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
# An entry of a docstring: names, and a text whose further lines are indented.
_ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.*(?:\n +.*)*)", re.MULTILINE)
_LONGEST_VALUE = 80  # characters of a value in a message
# maximum of integer options, because array indices have 32 bits
LARGEST = 2**31 - 1


class Range(NamedTuple):
    """The range of a numeric field, declared in its ``Annotated`` type.

    Attributes:
        low, high: ends of the range.
        above, below: True if ``low`` and ``high`` are excluded.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Returns True if a number is in the range; nan and infinities never are."""
        if isinstance(value, float) and not math.isfinite(value):
            return False
        if self.above:
            is_low = value > self.low
        else:
            is_low = value >= self.low
        return is_low and (
            value < self.high if self.below else value <= self.high
        )

    def __str__(self) -> str:
        ends = []
        if math.isfinite(self.low):
            ends.append(f"{'above' if self.above else 'at least'} {self.low}")
        if math.isfinite(self.high) and self.high != LARGEST:
            ends.append(f"{'below' if self.below else 'at most'} {self.high}")
        return " and ".join(ends)


Count = Annotated[int, Range(0, LARGEST)]
Positive = Annotated[int, Range(1, LARGEST)]
# Size: features, heads, labels, tokens of a block. Layers: layers of a stack.
# Length: tokens of a text, rows of a table of positions. All published models
# are far below these limits, and the sizes of such arrays fit into 63 bits.
Size = Annotated[int, Range(1, 2**16)]
SizeOrNone = Annotated[int, Range(0, 2**16)]
Layers = Annotated[int, Range(1, 1000)]
Length = Annotated[int, Range(1, 2**24)]
LengthOrNone = Annotated[int, Range(0, 2**24)]
Share = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, 1, below=True)]
Weight = Annotated[float, Range(0)]
PositiveFloat = Annotated[float, Range(0, above=True)]
_ANY_INT, _ANY_FLOAT = Range(-LARGEST, LARGEST), Range()


def check_ranges(options: Any, section: str = "") -> None:
    """Checks the numbers in a dataclass against the ranges declared by its fields.

    Numbers without a declared range must be finite, and integers must fit into
    32 bits. A subclass that only changes the default of a field inherits its
    range.

    Args:
        options: instance of a dataclass.
        section: prefix of field names in messages.

    Raises:
        InputError: a number outside of its range.
    """
    cls: Any = type(options)
    for name, allowed in _ranges(cls).items():
        value = getattr(options, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not isinstance(number, bool):
                check_number(
                    f"{section}.{name}" if section else name, number, allowed
                )


def check_number(
    name: str, number: float, allowed: Range | None = None
) -> None:
    """Checks one number; if ``allowed`` is None, it must be finite or a 32-bit integer.

    Raises:
        InputError: a number outside of the range.
    """
    if allowed is None:
        if isinstance(number, float):
            allowed = _ANY_FLOAT
        else:
            allowed = _ANY_INT
    if not allowed.holds(number):
        raise InputError(f"{name}={_problem(number, allowed)}")


def _problem(number: float, allowed: Range) -> str:
    expected = str(allowed)
    if number > allowed.high == LARGEST:
        expected = f"at most {LARGEST}"
    elif (
        isinstance(number, float)
        and not math.isfinite(number)
        and math.isinf(allowed.high)
    ):
        expected = f"a finite number {expected}".rstrip()
    return f"{shortened(number)} must be {expected}"


def shortened(value: Any) -> str:
    """Returns a value for a message, shortened to its beginning if it is long."""
    if isinstance(value, int) and abs(value) > 10**_LONGEST_VALUE:
        # Python cannot print the longest
        return f"a whole number of more than {_LONGEST_VALUE} digits"
    shown = repr(value)
    if len(shown) <= _LONGEST_VALUE:
        return shown
    return f"{shown[:_LONGEST_VALUE]}..."


@functools.cache
def _ranges(cls: type) -> dict[str, Range]:
    """Returns the range of every numeric field of a dataclass."""
    ranges: dict[str, Range] = {}
    for base in reversed(cls.__mro__):
        annotations = vars(base).get("__annotations__", {})
        if annotations:
            hints = typing.get_type_hints(base, include_extras=True)
        else:
            hints = {}
        for name in annotations:
            declared = _declared(hints[name])
            if declared is not None or name not in ranges:
                ranges[name] = declared or _default(hints[name])
    return {f.name: ranges[f.name] for f in dataclasses.fields(cls)}


def _declared(hint: Any) -> Range | None:
    """Returns the range declared in a type: of a number, an optional number, or a tuple."""
    if typing.get_origin(hint) is Annotated:
        return next(
            (x for x in hint.__metadata__ if isinstance(x, Range)), None
        )
    inner = map(_declared, typing.get_args(hint))
    return next((x for x in inner if x is not None), None)


def _default(hint: Any) -> Range:
    """Returns the default range of a numeric type without a declared one."""
    if hint is float or float in typing.get_args(hint):
        return _ANY_FLOAT
    return _ANY_INT


@functools.cache
def field_docs(cls: type) -> Mapping[str, str]:
    """Returns the descriptions of a dataclass's fields in its docstring, a line each.

    ``{}`` if Python runs without docstrings (-OO).
    """
    doc = inspect.getdoc(cls) or ""
    entries = doc.partition("\nAttributes:\n")[2].partition("\n\n")[0]
    docs: dict[str, str] = {}
    for names, text in _ENTRY.findall(inspect.cleandoc(entries)):
        line = " ".join(text.split()).replace("``", "")
        docs |= dict.fromkeys(names.split(", "), line)
    return docs


class TreeDifference(NamedTuple):
    """The names of arrays in which two trees differ.

    Attributes:
        missing: names that are only in the expected tree.
        extra: names that are only in the other tree.
        misshapen: names in both trees with different shapes.
    """

    missing: list[str]
    extra: list[str]
    misshapen: list[str]


def compare_trees(
    expected: Mapping[str, Sequence[int]], actual: Mapping[str, Sequence[int]]
) -> TreeDifference:
    """Compares two trees of arrays by names and shapes.

    Args:
        expected, actual: array name -> shape. Missing and misshapen names
            are listed in the order of ``expected``, extra ones in the order
            of ``actual``.
    """
    missing = [name for name in expected if name not in actual]
    extra = [name for name in actual if name not in expected]
    common = [name for name in expected if name in actual]
    misshapen = [
        name for name in common if tuple(expected[name]) != tuple(actual[name])
    ]
    return TreeDifference(missing, extra, misshapen)


def first_names(names: Sequence[str], limit: int = 6) -> str:
    """Returns the first ``limit`` names, and the number of the remaining ones."""
    listed = ", ".join(names[:limit])
    more = len(names) - limit
    if more > 0:
        return f"{listed} and {more} more"
    return listed


def from_dict(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Builds the dataclass ``cls`` from ``values``; nested dataclasses from nested mappings.

    Args:
        cls: dataclass type.
        values: field name -> value.
        where: name of the values in error messages (a config section, a file);
            "" for none.

    Raises:
        InputError: an unknown key, or a value with a wrong type or Literal
            choice.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}
    if not isinstance(values, Mapping):
        names = ", ".join(fields)
        raise InputError(
            f"{where}: expected the keys {names}, got {shortened(values)}"
        )
    built = {}
    for key, value in values.items():
        if key not in fields:
            raise InputError(
                f'{where}: unknown key "{key}"; {did_you_mean(key, fields)}'
            )
        built[key] = _fit(
            fields[key], value, f"{where}.{key}" if where else key
        )
    try:
        return cls(**built)
    except TypeError:
        required = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING
            and f.default_factory is dataclasses.MISSING
        ]
        missing = [name for name in required if name not in built]
        if not missing:
            raise
        prefix = f"{where}: " if where else ""
        raise InputError(f"{prefix}missing {', '.join(missing)}") from None


def _fit(hint: Any, value: Any, where: str) -> Any:
    """Returns ``value`` converted to ``hint`` (int to float, list to tuple); raises
    InputError if it does not fit.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _fit_union(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            suggestion = did_you_mean(value, map(str, args))
            raise InputError(f'{where}: "{value}" is not allowed; {suggestion}')
        return value
    if dataclasses.is_dataclass(hint):
        cls = cast(type, hint)
        if isinstance(value, cls):
            return value
        return from_dict(cls, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        inner = args[0] if args else Any
        return tuple(_fit(inner, item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(
                f"{where} is {shortened(value)}; give a smaller number"
            ) from None
    expected = origin or hint
    if not isinstance(value, expected) or (
        isinstance(value, bool) and expected is not bool
    ):
        name = getattr(hint, "__name__", hint)
        raise InputError(f"{where}: expected {name}, got {shortened(value)}")
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
    words = [
        w
        for choice in choices
        for w in typing.get_args(choice)
        if isinstance(w, str)
    ]
    if words and isinstance(value, str):
        if bool in choices:
            allowed = ["true", "false", *words]
        else:
            allowed = words
        problem = f"{where}: {shortened(value)} is not allowed"
        raise InputError(f"{problem}; {did_you_mean(value, allowed)}")
    raise InputError(problems[0])
