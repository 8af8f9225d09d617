"""Checks of values: dictionaries against dataclasses, numbers against ranges, trees of parameters
against each other.

Dataclasses of options declare the range of a number once, in its type: ``rate: Share``.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast

from longsum_jax.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
LARGEST = 2**31 - 1  # whole number of options: what indices of arrays may be


class Range(NamedTuple):
    """The numbers that a field may have; stands in its ``Annotated`` type.

    Attributes:
        low, high: the ends.
        above, below: whether ``low`` and ``high`` themselves are left out.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Returns whether a number lies in the range; nan and infinities never do."""
        if isinstance(value, float) and not math.isfinite(value):
            return False
        is_low = value > self.low if self.above else value >= self.low
        return is_low and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        ends = []
        if math.isfinite(self.low):
            ends.append(f"{'above' if self.above else 'at least'} {self.low}")
        if math.isfinite(self.high) and self.high != LARGEST:
            ends.append(f"{'below' if self.below else 'at most'} {self.high}")
        return " and ".join(ends)


Count = Annotated[int, Range(0, LARGEST)]
Positive = Annotated[int, Range(1, LARGEST)]
# Features, heads, labels, tokens of a block; layers of a stack; tokens of a text and rows of a
# table of positions. Nothing published comes near these limits, and arrays of such sizes fit 63
# bits.
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
    """Checks the numbers in a dataclass against the ranges that its fields declare.

    Numbers without a declared range must be finite, whole ones fit 32 bits. A subclass that gives a
    field another default keeps its range.

    Args:
        options: an instance.
        section: stands before the names of fields in messages.

    Raises:
        InputError: a number outside of its range.
    """
    cls: Any = type(options)
    for name, allowed in _ranges(cls).items():
        value = getattr(options, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not isinstance(number, bool):
                check_number(f"{section}.{name}" if section else name, number, allowed)


def check_number(name: str, number: float, allowed: Range | None = None) -> None:
    """Checks one number; ``allowed`` is None for any that is finite and, if whole, fits 32 bits.

    Raises:
        InputError: a number outside of the range.
    """
    if allowed is None:
        allowed = _ANY_FLOAT if isinstance(number, float) else _ANY_INT
    if not allowed.holds(number):
        raise InputError(f"{name}={_problem(number, allowed)}")


def _problem(number: float, allowed: Range) -> str:
    wanted = str(allowed)
    if number > allowed.high == LARGEST:
        wanted = f"at most {LARGEST}"
    elif isinstance(number, float) and not math.isfinite(number) and math.isinf(allowed.high):
        wanted = f"a finite number {wanted}".rstrip()
    return f"{shortened(number)} must be {wanted}"


def shortened(value: Any, limit: int = 80) -> str:
    """Returns a value as a message shows it: whole, or its beginning."""
    if isinstance(value, int) and abs(value) > 10**limit:
        return f"a whole number of more than {limit} digits"  # Python refuses to write the longest
    shown = repr(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}..."


@functools.cache
def _ranges(cls: type) -> dict[str, Range]:
    """Returns the range of every field of a dataclass that holds numbers."""
    found: dict[str, Range] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get("__annotations__", {})
        hints = typing.get_type_hints(base, include_extras=True) if own else {}
        for name in own:
            declared = _declared(hints[name])
            if declared is not None or name not in found:
                found[name] = declared or _default(hints[name])
    return {f.name: found[f.name] for f in dataclasses.fields(cls)}


def _declared(hint: Any) -> Range | None:
    """Returns the range inside a type: of a number, an optional one, or those of a tuple."""
    if typing.get_origin(hint) is Annotated:
        return next((x for x in hint.__metadata__ if isinstance(x, Range)), None)
    inner = map(_declared, typing.get_args(hint))
    return next((x for x in inner if x is not None), None)


def _default(hint: Any) -> Range:
    """Returns the range of numbers of a type that declares none."""
    return _ANY_FLOAT if hint is float or float in typing.get_args(hint) else _ANY_INT


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
        known = ", ".join(fields)
        raise InputError(f"{where}: expected the keys {known}, got {shortened(values)}")
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
            known = did_you_mean(value, map(str, args))
            raise InputError(f'{where}: "{value}" is not allowed; {known}')
        return value
    if dataclasses.is_dataclass(hint):
        cls = cast(type, hint)
        return value if isinstance(value, cls) else from_dict(cls, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        inner = args[0] if args else Any
        return tuple(_fit(inner, item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{where} is {shortened(value)}; give a smaller number") from None
    expected = origin or hint
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
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
    words = [w for choice in choices for w in typing.get_args(choice) if isinstance(w, str)]
    if words and isinstance(value, str):
        known = ["true", "false", *words] if bool in choices else words
        problem = f"{where}: {shortened(value)} is not allowed"
        raise InputError(f"{problem}; {did_you_mean(value, known)}")
    raise InputError(problems[0])
