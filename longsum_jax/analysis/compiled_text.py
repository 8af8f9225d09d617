"""The work of a compiled program, read from its text: products, memory traffic, collectives.

XLA's own ``cost_analysis`` counts the body of a loop once and knows nothing of collectives. Here
computations are walked from the entry, and a loop's body counts as often as the loop runs. All
figures are those of one device.

    products        multiplications and additions of ``dot``, ``convolution``, matrix custom calls
                    and kernels of attention, and 5 n log2 n of FFTs; operations on single elements
                    are left out
    bytes           what instructions read from and write to the device's main memory; values that
                    TPUs keep on the chip (memory space S(1) and above) are left out. Of an operand
                    that an instruction only takes slices of, the slices count; kernels of
                    attention read keys once for every block of queries, but count them once
    collectives     operands, and what one device sends if devices pass them round in a ring
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](\{[^{}]*\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_ON_CHIP = re.compile(r"S\([1-4]\)")  # S(5) is the host's memory
_COMMENT = re.compile(r"/\*.*?\*/")
_BITS = re.compile(r"\d+")

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# Instructions that move no data by themselves.
_FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
    "optimization-barrier",
    "add-dependency",
    "while",
    "conditional",
    "call",
    "async-start",
    "async-update",
}
_FREE_TARGETS = ("AllocateBuffer", "AssumeGatherIndicesInBound", "Sharding", "PartialReduce")
_WITH_WORKSPACE = ("__cublas", "__cudnn")  # the rest of the result is room to work in
# Products of the size queries x keys in a kernel of attention (``ops.attention.fused``), by the
# beginning of its target (cuDNN) or of the instruction's name (splash attention).
_ATTENTION_PRODUCTS = {
    "__cudnn$fmhaSoftmaxBackward": 5,
    "__cudnn$fmhaSoftmax": 2,
    "splash_mha_fwd": 2,
    "splash_mha_dq": 3,
    "splash_mha_dkv": 4,
}
# Metadata of a Pallas kernel, which XLA writes into three lines.
_KERNEL_METADATA = re.compile(r"(kernel_metadata=\{)\n(.*)\n\}")
_SLICING = ("dynamic-slice", "slice", "gather")
# A loop that ends by its data runs this often unless the caller knows better.
_ONCE = 1


class ArrayType(NamedTuple):
    """An array of a program: its type, its shape, and whether it lies on the chip of a TPU."""

    dtype: str
    shape: tuple[int, ...]
    is_on_chip: bool

    @property
    def num_bytes(self) -> int:
        """Bytes, without the padding of tiles."""
        return math.ceil(math.prod(self.shape) * _bits(self.dtype) / 8)


@dataclass(frozen=True)
class Instruction:
    """One line of a program.

    Attributes:
        name: of the result.
        arrays: of the result, those of a tuple one after the other.
        opcode: as in the text.
        operands: names.
        attributes: the rest of the line.
    """

    name: str
    arrays: tuple[ArrayType, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str

    def attribute(self, name: str) -> str:
        """Returns the text of an attribute, "" if the line has none of that name."""
        found = re.search(rf"\b{name}=(\{{[^{{}}]*\}}|[^,\s]*)", self.attributes)
        return found.group(1) if found else ""

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the computations that this instruction runs."""
        listed = re.search(r"\bbranch_computations=\{([^}]*)\}", self.attributes)
        if listed:
            return tuple(_NAME.findall(listed.group(1)))
        if self.opcode.endswith(("-update", "-done")):
            return ()  # named again; the start runs it
        names = ("calls", "body", "true_computation", "false_computation")
        if self.opcode == "call":
            names = (*names, "to_apply")
        found = (self.attribute(name).lstrip("%") for name in names)
        return tuple(name for name in found if name)


@dataclass
class Computation:
    """Instructions by name, in their order; the last one gives the result unless marked."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""

    @cached_property
    def users(self) -> Mapping[str, list[Instruction]]:
        """Instructions that read a value, by its name."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions.values():
            for operand in instruction.operands:
                found.setdefault(operand, []).append(instruction)
        return found

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters by their numbers."""
        found = [x for x in self.instructions.values() if x.opcode == "parameter"]
        return tuple(sorted(found, key=_parameter_number))


class Traffic(NamedTuple):
    """Collectives of one kind.

    Attributes:
        count: how often one runs.
        num_bytes: of their operands, of an all-gather of what it gives.
        sent: bytes that a device sends to others in a ring.
        sent_between_hosts: those of ``sent`` in groups that reach over several hosts.
    """

    count: float = 0.0
    num_bytes: float = 0.0
    sent: float = 0.0
    sent_between_hosts: float = 0.0

    def scaled(self, times: float) -> "Traffic":
        """Returns that of ``times`` repetitions."""
        return Traffic(*(times * value for value in self))

    def plus(self, other: "Traffic") -> "Traffic":
        """Returns that of both."""
        return Traffic(*map(sum, zip(self, other, strict=True)))


class Work(NamedTuple):
    """What one device does in a program.

    Attributes:
        products: operations by the type of the factors: "bfloat16", "float32", and "float32,
            highest" where more than the fastest products are asked for.
        num_bytes: read from and written to main memory.
        collectives: by kind.
        open_loops: loops whose number of iterations the text does not tell.
    """

    products: Mapping[str, float] = {}
    num_bytes: float = 0.0
    collectives: Mapping[str, Traffic] = {}
    open_loops: float = 0.0

    def scaled(self, times: float) -> "Work":
        """Returns the work of ``times`` repetitions; a loop in a loop is one loop of the text."""
        return Work(
            {name: times * value for name, value in self.products.items()},
            times * self.num_bytes,
            {name: value.scaled(times) for name, value in self.collectives.items()},
            self.open_loops,
        )

    def plus(self, other: "Work") -> "Work":
        """Returns the work of both."""
        products = dict(self.products)
        for name, value in other.products.items():
            products[name] = products.get(name, 0.0) + value
        collectives = dict(self.collectives)
        for name, value in other.collectives.items():
            collectives[name] = collectives.get(name, Traffic()).plus(value)
        return Work(
            products,
            self.num_bytes + other.num_bytes,
            collectives,
            self.open_loops + other.open_loops,
        )

    @property
    def operations(self) -> float:
        """Operations of all products."""
        return sum(self.products.values())


def program_work(text: str, *, trips: int = _ONCE, devices_per_host: int = 0) -> Work:
    """Returns the work of a compiled program.

    Args:
        text: ``jax.stages.Compiled.as_text()``.
        trips: iterations of loops that end by their data, such as a search that may end early.
        devices_per_host: in the order of the program's partitions; 0 for a single host.
    """
    return _Walk(text, trips, devices_per_host).work


class _Walk:
    """Adds up the work of a program's computations."""

    def __init__(self, text: str, trips: int, devices_per_host: int) -> None:
        self._computations, self._entry = parse(text)
        found = re.search(r"num_partitions=(\d+)", text.split("\n", 1)[0])
        self._num_devices = int(found.group(1)) if found else 1
        self._trips = trips
        self._devices_per_host = devices_per_host
        self._known: dict[str, Work] = {}

    @property
    def work(self) -> Work:
        """The work of the whole program."""
        return self._of_computation(self._entry)

    def _of_computation(self, name: str) -> Work:
        if name not in self._known:
            computation = self._computations[name]
            of_instruction = partial(self._of_instruction, computation)
            works = map(of_instruction, computation.instructions.values())
            self._known[name] = reduce(Work.plus, works, Work())
        return self._known[name]

    def _of_instruction(self, inside: Computation, instruction: Instruction) -> Work:
        opcode = instruction.opcode
        own = Work(
            _products(inside, instruction),
            self._bytes(inside, instruction),
            self._collective(inside, instruction),
        )
        called = [name for name in instruction.called if name in self._computations]
        if opcode == "while":
            (body,) = called
            trips, is_open = self._loop_trips(instruction)
            inner = self._of_computation(body).scaled(trips)
            return own.plus(inner)._replace(open_loops=inner.open_loops + is_open)
        if opcode == "conditional":
            branches = map(self._of_computation, called)
            return own.plus(max(branches, key=_size_of_work, default=Work()))
        for name in called:
            inner = self._of_computation(name)
            if opcode == "fusion":
                inner = inner._replace(num_bytes=0.0)  # values inside never reach the memory
            own = own.plus(inner)
        return own

    def _loop_trips(self, loop: Instruction) -> tuple[int, bool]:
        """Returns how often a loop runs, and whether that is unknown and ``trips`` was taken."""
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
        if known:
            return int(known.group(1)), False
        condition = self._computations.get(loop.attribute("condition").lstrip("%"))
        bound = condition and self._bound(condition)
        return (self._trips, True) if bound is None else (bound, False)

    def _bound(self, condition: Computation) -> int | None:
        """Returns N of a condition ``i < N``; None for any other one. Counters begin at 0."""
        root = condition.instructions[condition.root]
        compare = root
        if root.opcode == "fusion":
            fused = self._computations[root.called[0]]
            compare = fused.instructions[fused.root]
        if compare.opcode != "compare" or compare.attribute("direction") != "LT":
            return None
        constants = [
            condition.instructions[name]
            for name in root.operands
            if condition.instructions[name].opcode == "constant"
        ]
        if len(constants) != 1 or not constants[0].attributes.isdigit():
            return None
        return int(constants[0].attributes)

    def _bytes(self, inside: Computation, instruction: Instruction) -> float:
        opcode = instruction.opcode
        target = instruction.attribute("custom_call_target").strip('"')
        if opcode in _FREE or opcode.endswith("-done") or target in _FREE_TARGETS:
            return 0.0
        operands = [inside.instructions[name] for name in instruction.operands]
        if opcode == "fusion" and instruction.called[0] in self._computations:
            fused = self._computations[instruction.called[0]]
            return _fusion_bytes(self._computations, fused, instruction, operands)
        if target.startswith(_WITH_WORKSPACE):
            instruction = replace(instruction, arrays=instruction.arrays[:-1] or instruction.arrays)
        return _access_bytes(instruction, operands)

    def _collective(self, inside: Computation, instruction: Instruction) -> dict[str, Traffic]:
        kind = instruction.opcode.removesuffix("-start")
        if kind not in COLLECTIVES:
            return {}
        operands = [inside.instructions[name] for name in instruction.operands]
        num_bytes = sum(array.num_bytes for operand in operands for array in operand.arrays)
        group = self._group(instruction)
        size = len(group)
        if kind == "all-reduce" and _is_cut_at_once(inside, instruction):
            kind = "reduce-scatter"
        others = (size - 1) / size
        if kind == "all-gather":
            num_bytes *= size
        share = {"all-reduce": 2 * others, "collective-permute": 1.0, "collective-broadcast": 1.0}
        sent = num_bytes * share.get(kind, others)
        per_host = self._devices_per_host
        is_between_hosts = per_host > 0 and len({device // per_host for device in group}) > 1
        return {kind: Traffic(1.0, num_bytes, sent, sent if is_between_hosts else 0.0)}

    def _group(self, instruction: Instruction) -> Sequence[int]:
        """Returns the devices of the first group that has the most of them."""
        everyone = range(self._num_devices)
        if instruction.opcode.startswith("collective-permute"):
            groups = _listed_groups("source_target_pairs", instruction.attributes)
            return max(groups, key=_distance, default=everyone)
        groups = replica_groups(instruction.attributes)
        return groups[0] if groups else everyone


def parse(text: str) -> tuple[dict[str, Computation], str]:
    """Returns the computations of a program's text by name, and the name of the entry."""
    computations: dict[str, Computation] = {}
    entry = ""
    current = Computation("")
    for line in _KERNEL_METADATA.sub(r"\1\2}", text).splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            words = line.split()
            name = words[words[0] == "ENTRY"].lstrip("%")
            current = computations.setdefault(name, Computation(name))
            entry = name if words[0] == "ENTRY" else entry
        elif line.startswith(" ") and " = " in line:
            instruction = _instruction(_COMMENT.sub("", line))
            current.instructions[instruction.name] = instruction
            if line.lstrip().startswith("ROOT ") or not current.root:
                current.root = instruction.name
    return computations, entry


def replica_groups(attributes: str) -> list[list[int]]:
    """Returns the groups of devices of a collective, [] where the text names none.

    It reads the three forms: lists {{0,1},{2,3}}, grids [2,2]<=[2,2]T(1,0), and axes of a mesh
    mesh['x'=2,'y'=2] {'x'}.
    """
    grid = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attributes)
    if grid:
        shape, source, order = (
            [int(number) for number in (part or "").split(",") if number] for part in grid.groups()
        )
        ids = np.arange(math.prod(source)).reshape(source)
        if order:
            ids = ids.transpose(order)
        return ids.reshape(shape[0], -1).tolist()
    mesh = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", attributes)
    if mesh:
        return _mesh_groups(*mesh.groups())
    return _listed_groups("replica_groups", attributes)


def _listed_groups(name: str, attributes: str) -> list[list[int]]:
    listed = re.search(rf"\b{name}=\{{((?:\{{[\d,]*\}},?)*)\}}", attributes)
    groups = re.findall(r"\{([\d,]+)\}", listed.group(1)) if listed else []
    return [[int(number) for number in group.split(",")] for group in groups]


def _mesh_groups(sizes: str, names: str) -> list[list[int]]:
    axes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", sizes)}
    ids = np.arange(math.prod(axes.values())).reshape(tuple(axes.values()))
    taken = re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", names)
    shape, inner, outer = [], [], []
    for name, size in axes.items():
        # An axis may be used in part: 'x':(2)4 is a factor of 4 after one of 2.
        of_axis = [(before, part) for other, before, part in taken if other == name]
        parts = [(int(before), int(part)) for before, part in of_axis if part]
        whole = any(not part for _, part in of_axis)
        before, part = parts[0] if parts else (1, size if whole else 1)
        for factor, is_taken in ((before, False), (part, True), (size // before // part, False)):
            (inner if is_taken else outer).append(len(shape))
            shape.append(factor)
    grouped = ids.reshape(shape).transpose(outer + inner)
    return grouped.reshape(-1, math.prod(shape[axis] for axis in inner)).tolist()


def _distance(pair: Sequence[int]) -> int:
    return abs(pair[0] - pair[-1])


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().removeprefix("ROOT ").partition(" = ")
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    types, rest = rest[:end], rest[end:].lstrip()
    opening = rest.index("(")
    opcode, end = rest[:opening], opening + _closing(rest[opening:])
    inner, attributes = rest[opening + 1 : end - 1], rest[end:].lstrip(", ")
    if opcode in ("constant", "parameter"):
        attributes, inner = inner, ""
    return Instruction(
        name.lstrip("%"), _arrays(types), opcode, tuple(_NAME.findall(inner)), attributes
    )


def _closing(text: str) -> int:
    """Returns the place after the parenthesis that closes the one at the start."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place + 1
    return len(text)


def _arrays(text: str) -> tuple[ArrayType, ...]:
    found = []
    for dtype, dims, layout in _ARRAY.findall(text):
        shape = tuple(int(size) for size in dims.split(",") if size)
        found.append(ArrayType(dtype, shape, bool(_ON_CHIP.search(layout))))
    return tuple(found)


def _bits(dtype: str) -> int:
    if dtype == "pred":
        return 8
    if dtype in ("token", "opaque"):
        return 0
    return int(_BITS.search(dtype).group())  # f32, bf16, s4, c64, f8e4m3fn, ...


def _parameter_number(instruction: Instruction) -> int:
    return int(instruction.attributes)


def _main_memory(arrays: Sequence[ArrayType]) -> int:
    return sum(array.num_bytes for array in arrays if not array.is_on_chip)


def _access_bytes(instruction: Instruction, operands: Sequence[Instruction]) -> int:
    """Returns what an instruction outside of fusions reads and writes."""
    opcode, written = instruction.opcode, _main_memory(instruction.arrays)
    if opcode in _SLICING:
        indices = sum(_main_memory(operand.arrays) for operand in operands[1:])
        read = 0 if operands[0].arrays[0].is_on_chip else _num_bytes(instruction)
        return written + read + indices
    if opcode == "dynamic-update-slice":
        update = _num_bytes(operands[1])
        return _main_memory(operands[1].arrays) + (update if written else 0)
    if opcode == "scatter":
        update = _num_bytes(operands[-1])
        return _main_memory(operands[-1].arrays) + (2 * update if written else 0)
    if opcode in ("copy-start", "async-start") or opcode.removesuffix("-start") in COLLECTIVES:
        # The result of an asynchronous copy lists the operand again.
        read = sum(_main_memory(operand.arrays) for operand in operands)
        results = instruction.arrays[: max(1, len(instruction.arrays) // 2)]
        if not opcode.endswith("-start"):
            results = instruction.arrays
        elif opcode == "copy-start":
            results = instruction.arrays[:1]
        return read + _main_memory(results)
    return written + sum(_main_memory(operand.arrays) for operand in operands)


def _num_bytes(instruction: Instruction) -> int:
    return sum(array.num_bytes for array in instruction.arrays)


def _fusion_bytes(
    computations: Mapping[str, Computation],
    fused: Computation,
    instruction: Instruction,
    operands: Sequence[Instruction],
) -> int:
    num_bytes = 0
    for parameter, operand in zip(fused.parameters, operands, strict=True):
        whole = _main_memory(operand.arrays)
        num_bytes += _read_bytes(computations, fused, parameter, whole)
    root = fused.instructions[fused.root]
    results = [root]
    if root.opcode == "tuple":
        results = [fused.instructions[name] for name in root.operands]
    for result, array in zip(results, instruction.arrays, strict=False):
        num_bytes += 0 if array.is_on_chip else _written_bytes(computations, fused, result)
    return num_bytes


def _read_bytes(
    computations: Mapping[str, Computation], fused: Computation, parameter: Instruction, whole: int
) -> int:
    """Returns what a fusion reads of an operand of ``whole`` bytes: all, or slices that it takes.

    On TPUs fusions hold fusions.
    """
    taken = 0
    for user in _users_of_value(fused, parameter.name):
        is_first = _value(fused, user.operands[0]) == parameter.name
        if user.opcode == "fusion":
            inner = computations[user.called[0]]
            for own, name in zip(inner.parameters, user.operands, strict=True):
                if _value(fused, name) == parameter.name:
                    taken += _read_bytes(computations, inner, own, whole)
        elif is_first and user.opcode in _SLICING:
            taken += _num_bytes(user)
        elif not (is_first and user.opcode == "dynamic-update-slice"):
            return whole
    return min(whole, taken)


def _users_of_value(fused: Computation, name: str) -> Iterator[Instruction]:
    """Yields what reads a value, also through changes of its shape alone."""
    for user in fused.users.get(name, []):
        if user.opcode == "bitcast":
            yield from _users_of_value(fused, user.name)
        else:
            yield user


def _value(fused: Computation, name: str) -> str:
    """Returns the name of a value before changes of its shape alone."""
    while fused.instructions[name].opcode == "bitcast":
        name = fused.instructions[name].operands[0]
    return name


def _written_bytes(
    computations: Mapping[str, Computation], fused: Computation, result: Instruction
) -> int:
    source = fused.instructions[_value(fused, result.name)]
    if source.opcode == "fusion":
        inner = computations[source.called[0]]
        root = inner.instructions[inner.root]
        if root.opcode != "tuple":
            return _written_bytes(computations, inner, root)
    if source.opcode == "dynamic-update-slice":
        source = fused.instructions[source.operands[1]]
    return _num_bytes(source)


def _is_cut_at_once(inside: Computation, instruction: Instruction) -> bool:
    """Tells whether an all-reduce stands in a fusion that keeps only the device's own slice."""
    root = inside.instructions[inside.root]
    return root.opcode == "dynamic-slice" and _value(inside, root.operands[0]) == instruction.name


def _size_of_work(work: Work) -> tuple[float, float]:
    return work.num_bytes, work.operations


def _products(inside: Computation, instruction: Instruction) -> dict[str, float]:
    opcode = instruction.opcode
    operands = [inside.instructions.get(name) for name in instruction.operands]
    if opcode == "dot":
        axes = _integers(instruction.attribute("lhs_contracting_dims"))
        operations = _dot_operations(instruction, operands[0], axes)
    elif opcode == "convolution":
        operations = _convolution_operations(instruction, operands[0], operands[1])
    elif opcode == "fft":
        operations = _fft_operations(instruction, operands[0])
    elif opcode == "custom-call" and (count := _count_attention_products(instruction)):
        operations = count * _attention_operations(instruction, operands)
        operands = list(filter(_is_float, operands))
    elif opcode == "custom-call" and "dot_dimension_numbers" in instruction.attributes:
        operations = _matrix_call_operations(instruction, operands[0])
    else:
        return {}
    return {_precision(instruction, operands[0]): operations}


def _precision(instruction: Instruction, factor: Instruction) -> str:
    dtype = factor.arrays[0].dtype
    if dtype == "bf16" or dtype.startswith(("f8", "f16")):
        return "bfloat16"
    is_high = re.search(r"\bhigh(est)?\b|HIGH", instruction.attributes.split("metadata=")[0])
    return "float32, highest" if is_high else "float32"


def _dot_operations(instruction: Instruction, factor: Instruction, axes: Sequence[int]) -> float:
    terms = math.prod(factor.arrays[0].shape[axis] for axis in axes)
    return 2.0 * math.prod(instruction.arrays[0].shape) * terms


def _matrix_call_operations(instruction: Instruction, factor: Instruction) -> float:
    """Returns the operations of a product that a library computes (cuBLAS, oneDNN)."""
    numbers = re.search(r'"dot_dimension_numbers":(\{[^}]*\})', instruction.attributes)
    axes = json.loads(numbers.group(1)).get("lhs_contracting_dimensions", [])
    return _dot_operations(instruction, factor, [int(axis) for axis in axes])


def _count_attention_products(instruction: Instruction) -> int:
    """Returns how many products of the size queries x keys an attention kernel computes; 0 if the
    instruction is none."""
    target = instruction.attribute("custom_call_target").strip('"')
    name = instruction.name if target == "tpu_custom_call" else target
    matches = [count for begin, count in _ATTENTION_PRODUCTS.items() if name.startswith(begin)]
    return matches[0] if matches else 0


def _attention_operations(
    instruction: Instruction, operands: Sequence[Instruction | None]
) -> float:
    """Returns the operations of one product of queries and keys; half of them if it is causal."""
    queries, keys, *_ = filter(_is_float, operands)
    is_cudnn = instruction.attribute("custom_call_target").startswith('"__cudnn')
    num_keys = keys.arrays[0].shape[1 if is_cudnn else -2]
    pairs = 2.0 * math.prod(queries.arrays[0].shape) * num_keys
    if is_cudnn:
        is_causal = re.search(r'"mask_type": ?"(PADDING_)?CAUSAL"', instruction.attributes)
    else:  # segments of padding come in twos; a third array has the positions of queries
        after_keys = operands[operands.index(keys) :]
        is_causal = sum(operand.arrays[0].dtype == "s32" for operand in after_keys) % 2
    return pairs / 2 if is_causal else pairs


def _is_float(operand: Instruction) -> bool:
    return operand.arrays[0].dtype.startswith(("bf", "f"))


def _fft_operations(instruction: Instruction, operand: Instruction) -> float:
    lengths = _integers(instruction.attribute("fft_length"))
    length = math.prod(lengths)
    rows = math.prod(operand.arrays[0].shape[: -len(lengths)])
    is_real = "R" in instruction.attribute("fft_type").removesuffix("FFT")
    return rows * 5.0 * length * math.log2(max(length, 2)) / (2 if is_real else 1)


def _convolution_operations(
    instruction: Instruction, inputs: Instruction, kernel: Instruction
) -> float:
    """Returns twice the multiplications of a convolution, those with padding left out.

    On TPUs products of matrices are convolutions, whose windows stand for axes of a batch.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes).groups()
    arrays = (inputs.arrays[0], kernel.arrays[0], instruction.arrays[0])
    of_input, of_kernel, of_output = (
        dict(zip(names, array.shape, strict=True))
        for names, array in zip(labels, arrays, strict=True)
    )
    window = instruction.attribute("window")
    axes = sorted(name for name in of_output if name.isdigit())
    operations = 2.0 * of_output["b"] * of_output["f"] * of_kernel["i"]
    for axis in axes:
        sizes = (of_input[axis], of_kernel[axis], of_output[axis])
        operations *= _window_pairs(*sizes, **_window(window, int(axis)))
    return operations


def _window(text: str, axis: int) -> dict[str, int]:
    """Returns stride, low padding and dilations of an axis of a window."""

    def value(name: str, default: str) -> str:
        found = re.search(rf"\b{name}=(\S+?)[\s}}]", text)
        return found.group(1).split("x")[axis] if found else default

    return {
        "stride": int(value("stride", "1")),
        "padding": int(value("pad", "0_0").split("_")[0]),
        "input_dilation": int(value("lhs_dilate", "1")),
        "kernel_dilation": int(value("rhs_dilate", "1")),
    }


def _window_pairs(
    inputs: int,
    kernel: int,
    outputs: int,
    *,
    stride: int,
    padding: int,
    input_dilation: int,
    kernel_dilation: int,
) -> int:
    """Returns how many pairs of an output and a tap of the kernel meet an input."""
    last = (inputs - 1) * input_dilation
    pairs = 0
    starts = np.arange(outputs) * stride - padding
    for tap in range(kernel):
        places = starts + tap * kernel_dilation
        meets = (places >= 0) & (places <= last) & (places % input_dilation == 0)
        pairs += int(meets.sum())
    return pairs


def _integers(text: str) -> list[int]:
    return [int(number) for number in _BITS.findall(text)]
