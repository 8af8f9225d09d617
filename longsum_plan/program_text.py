"""Parses the text of a compiled program: computations, instructions, groups of devices."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](\{[^{}]*\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_ON_CHIP = re.compile(r"S\([1-4]\)")  # S(5) is host memory
_COMMENT = re.compile(r"/\*.*?\*/")
_BITS = re.compile(r"\d+")
# Devices in the order of a grid, and groups of devices along axes of a mesh.
_GRID = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}"
)
# Metadata of a Pallas kernel, which XLA splits into three lines.
_KERNEL_METADATA = re.compile(r"(kernel_metadata=\{)\n(.*)\n\}")
_ORIGIN = re.compile(r'metadata=\{op_name="[^}]*\}')
# copies between memories or layouts, which XLA inserts
_COPIES = ("copy", "copy-start", "slice-start")

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)


class ArrayType(NamedTuple):
    """An array of a program: its dtype, shape, and whether it is in a TPU's on-chip memory."""

    dtype: str
    shape: tuple[int, ...]
    is_on_chip: bool

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    @property
    def num_bytes(self) -> int:
        """Bytes, excluding the padding of tiles."""
        return math.ceil(math.prod(self.shape) * _bits(self.dtype) / 8)


@dataclass(frozen=True)
class Instruction:
    """One line of a program.

    Attributes:
        name: name of the result.
        arrays: arrays of the result, flattened if it is a tuple.
        opcode: opcode as in the text.
        operands: names of the operands.
        attributes: remainder of the line.
    """

    name: str
    arrays: tuple[ArrayType, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the result."""
        return sum(array.num_bytes for array in self.arrays)

    def attribute(self, name: str) -> str:
        """Returns the text of an attribute; "" if the line does not have it."""
        match = re.search(
            rf"\b{name}=(\{{[^{{}}]*\}}|[^,\s]*)", self.attributes
        )
        if match:
            return match.group(1)
        return ""

    @property
    def target(self) -> str:
        """Name of the function called by a custom call; "" for other instructions."""
        return self.attribute("custom_call_target").strip('"')

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the computations that this instruction runs."""
        listed = re.search(
            r"\bbranch_computations=\{([^}]*)\}", self.attributes
        )
        if listed:
            return tuple(_NAME.findall(listed.group(1)))
        if self.opcode.endswith(("-update", "-done")):
            return ()  # repeats the computation that the start runs
        names: tuple[str, ...] = (
            "calls",
            "body",
            "condition",
            "true_computation",
            "false_computation",
        )
        if self.opcode == "call":
            names = (*names, "to_apply")
        attributes = (self.attribute(name).lstrip("%") for name in names)
        return tuple(name for name in attributes if name)


@dataclass
class Computation:
    """Instructions by name, in order; the root is the marked one, or else the first."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""

    @cached_property
    def users(self) -> Mapping[str, list[Instruction]]:
        """Instructions that use a value, by the value's name."""
        result: dict[str, list[Instruction]] = {}
        for instruction in self.instructions.values():
            for operand in instruction.operands:
                result.setdefault(operand, []).append(instruction)
        return result

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters in order of their numbers."""
        parameters = [
            x for x in self.instructions.values() if x.opcode == "parameter"
        ]
        return tuple(sorted(parameters, key=_parameter_number))


def parse(text: str) -> tuple[dict[str, Computation], str]:
    """Returns the computations in a program's text by name, and the name of the entry."""
    computations: dict[str, Computation] = {}
    entry = ""
    current = Computation("")
    for line in _KERNEL_METADATA.sub(r"\1\2}", text).splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            words = line.split()
            name = words[words[0] == "ENTRY"].lstrip("%")
            current = computations.setdefault(name, Computation(name))
            if words[0] == "ENTRY":
                entry = name
        elif line.startswith(" ") and " = " in line:
            instruction = _instruction(_COMMENT.sub("", line))
            current.instructions[instruction.name] = instruction
            if line.lstrip().startswith("ROOT ") or not current.root:
                current.root = instruction.name
    return computations, entry


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().removeprefix("ROOT ").partition(" = ")
    if rest.startswith("("):
        end = _closing(rest)
    else:
        end = rest.index(" ")
    types, rest = rest[:end], rest[end:].lstrip()
    opening = rest.index("(")
    opcode, end = rest[:opening], opening + _closing(rest[opening:])
    inner, attributes = rest[opening + 1 : end - 1], rest[end:].lstrip(", ")
    if opcode in ("constant", "parameter"):
        attributes, inner = inner, ""
    return Instruction(
        name.lstrip("%"),
        _arrays(types),
        opcode,
        tuple(_NAME.findall(inner)),
        attributes,
    )


def _closing(text: str) -> int:
    """Returns the position after the parenthesis that closes the one at the start."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index + 1
    return len(text)


def _arrays(text: str) -> tuple[ArrayType, ...]:
    arrays = []
    for dtype, dims, layout in _ARRAY.findall(text):
        shape = tuple(int(size) for size in dims.split(",") if size)
        arrays.append(ArrayType(dtype, shape, bool(_ON_CHIP.search(layout))))
    return tuple(arrays)


def _bits(dtype: str) -> int:
    if dtype == "pred":
        return 8
    if dtype in ("token", "opaque"):
        return 0
    return int(_BITS.findall(dtype)[0])  # f32, bf16, s4, c64, f8e4m3fn, ...


def _parameter_number(instruction: Instruction) -> int:
    return int(instruction.attributes)


def value_of(fused: Computation, name: str) -> str:
    """Returns the name of a value before any bitcasts, which only change its shape."""
    while fused.instructions[name].opcode == "bitcast":
        name = fused.instructions[name].operands[0]
    return name


def continued_collectives(fused: Computation) -> list[Instruction]:
    """Returns the collectives that a fusion continues and that another fusion started.

    TPUs run an asynchronous collective concurrently with several fusions, each
    of which contains it. The first one ends in AsyncCollectiveStart, the last
    one in AsyncCollectiveDone; those in between return the collective's
    operand.
    """
    root = fused.instructions[fused.root]
    collectives = []
    for name in root.operands:
        value = fused.instructions[name]
        if value.opcode in COLLECTIVES:
            source = fused.instructions[value.operands[0]]
            is_given_back = (
                source.opcode == "parameter" and source.name in root.operands
            )
            goes_on = root.opcode == "tuple" and is_given_back
            if goes_on or root.target == "AsyncCollectiveDone":
                collectives.append(value)
    return collectives


def with_origin(inside: Computation, copy: Instruction) -> Instruction:
    """Returns a copy that XLA inserted with the origin of the first instruction that uses it.

    If a loop uses it, it has the origin of its source. Other instructions are
    returned unchanged.
    """
    if copy.opcode not in _COPIES or _ORIGIN.search(copy.attributes):
        return copy
    for neighbor in (_first_user, _first_operand):
        other = neighbor(inside, copy)
        while other is not None:
            named = _ORIGIN.search(other.attributes)
            if named:
                attributes = f"{copy.attributes}, {named.group(0)}"
                return replace(copy, attributes=attributes)
            other = neighbor(inside, other)
    return copy


def _first_user(inside: Computation, value: Instruction) -> Instruction | None:
    users = inside.users.get(value.name, [])
    if users and users[0].opcode != "tuple":
        return users[0]
    return None


def _first_operand(
    inside: Computation, value: Instruction
) -> Instruction | None:
    if not value.operands:
        return None
    operand = inside.instructions[value.operands[0]]
    if operand.opcode in ("while", "conditional"):
        return None
    return operand


def replica_groups(attributes: str) -> list[list[int]]:
    """Returns the groups of devices of a collective; [] if the text does not list any.

    It parses three forms: lists {{0,1},{2,3}}, grids [2,2]<=[2,2]T(1,0), and
    axes of a mesh mesh['x'=2,'y'=2] {'x'}, whose devices may be in another
    order: mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}.
    """
    grid = re.search(
        rf"replica_groups=\[([\d,]+)\]<={_GRID.pattern}", attributes
    )
    if grid:
        shape, *source = grid.groups()
        return _grid(*source).reshape(integers(shape)[0], -1).tolist()
    mesh = _MESH.search(attributes)
    if mesh:
        return _mesh_groups(*mesh.groups())
    return listed_groups("replica_groups", attributes)


def _grid(sizes: str, order: str | None) -> np.ndarray:
    """Returns the devices of a grid such as [2,4]T(1,0), numbered before the transposition."""
    shape = integers(sizes)
    ids = np.arange(math.prod(shape)).reshape(shape)
    if order:
        return ids.transpose(integers(order))
    return ids


def listed_groups(name: str, attributes: str) -> list[list[int]]:
    """Returns the groups in an attribute that lists them: {{0,1},{2,3}}."""
    listed = re.search(rf"\b{name}=\{{((?:\{{[\d,]*\}},?)*)\}}", attributes)
    if not listed:
        return []
    groups = []
    for group in re.findall(r"\{([\d,]+)\}", listed.group(1)):
        groups.append(integers(group))
    return groups


def _mesh_groups(
    sizes: str, devices: str | None, names: str
) -> list[list[int]]:
    axes: dict[str, int] = {}
    for name, size in re.findall(r"'([^']+)'=(\d+)", sizes):
        axes[name] = int(size)
    ids = np.arange(math.prod(axes.values()))
    if devices:
        grid = _GRID.fullmatch(devices)
        if grid:
            ids = _grid(*grid.groups())
        else:
            ids = np.array(integers(devices))
    matches = re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", names)
    shape: list[int] = []
    inner: list[int] = []
    outer: list[int] = []
    for name, size in axes.items():
        # An axis may be used partially: 'x':(2)4 is a factor of 4 after one of
        # 2.
        before, part = 1, 1  # not used
        for other, offset, factor in matches:
            if other != name:
                continue
            if factor:
                before, part = int(offset), int(factor)
                break
            part = size
        # Three axes for every axis of the mesh, of which the middle one varies
        # inside of a group.
        first = len(shape)
        shape += [before, part, size // before // part]
        outer += [first, first + 2]
        inner.append(first + 1)
    grouped = ids.reshape(shape).transpose(outer + inner)
    group_size = math.prod(shape[axis] for axis in inner)
    return grouped.reshape(-1, group_size).tolist()


def integers(text: str) -> list[int]:
    """Returns all integers in a text."""
    return [int(number) for number in _BITS.findall(text)]
