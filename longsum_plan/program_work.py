"""Counts the work of a compiled program from its text: products, memory traffic, collectives.

XLA's ``cost_analysis`` counts the body of a loop once and does not include
collectives. Here, computations are walked from the entry, and a loop's body is
counted once per iteration. All numbers are per device.

    products        multiplications and additions of ``dot``, ``convolution``, matrix custom calls
                    and attention kernels, and 5 n log2 n of FFTs; elementwise
                    operations are not counted
    bytes           bytes that instructions read from and write to the device's main memory; values
                    in a TPU's on-chip memory (memory space S(1) and above) are
                    not counted. If an instruction only reads slices of an
                    operand, the slices are counted; attention kernels read keys
                    once per block of queries, but are counted once
    collectives     operands, and the bytes that one device sends in a ring
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from longsum_plan.program_bytes import MemoryTraffic
from longsum_plan.program_products import products
from longsum_plan.program_text import (
    COLLECTIVES,
    Computation,
    Instruction,
    continued_collectives,
    listed_groups,
    parse,
    replica_groups,
    value_of,
    with_origin,
)

# Default number of iterations of a loop with a data-dependent end.
_ONCE = 1


class Traffic(NamedTuple):
    """Collectives of one kind.

    Attributes:
        count: number of executions.
        num_bytes: bytes of their operands, or of the result for an all-gather.
        sent: bytes that a device sends to others in a ring.
        sent_between_hosts: part of ``sent`` in groups that span several hosts.
    """

    count: float = 0.0  # type: ignore[assignment] # hides tuple.count
    num_bytes: float = 0.0
    sent: float = 0.0
    sent_between_hosts: float = 0.0

    def scaled(self, times: float) -> "Traffic":
        """Returns the traffic of ``times`` repetitions."""
        return Traffic(*(times * value for value in self))

    def plus(self, other: "Traffic") -> "Traffic":
        """Returns the sum of both."""
        return Traffic(*map(sum, zip(self, other, strict=True)))


class Work(NamedTuple):
    """Work of one device in a program.

    Attributes:
        products: operations by the type of the factors: "bfloat16", "float32",
            and "float32, high" or "float32, highest" if such a precision is
            requested, or "mixed, high" and "mixed, highest" if only one factor
            is float32.
        num_bytes: bytes read from and written to main memory.
        collectives: traffic by kind.
        open_loops: number of loops whose iteration count is not in the text.
    """

    products: Mapping[str, float] = {}
    num_bytes: float = 0.0
    collectives: Mapping[str, Traffic] = {}
    open_loops: float = 0.0

    def scaled(self, times: float) -> "Work":
        """Returns the work of ``times`` repetitions; open loops are still counted once."""
        return Work(
            {name: times * value for name, value in self.products.items()},
            times * self.num_bytes,
            {
                name: value.scaled(times)
                for name, value in self.collectives.items()
            },
            self.open_loops,
        )

    def plus(self, other: "Work") -> "Work":
        """Returns the sum of both."""
        products = dict(self.products)
        for name, value in other.products.items():
            products[name] = products.get(name, 0.0) + value
        collectives = dict(self.collectives)
        for kind, traffic in other.collectives.items():
            collectives[kind] = collectives.get(kind, Traffic()).plus(traffic)
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

    @property
    def sent(self) -> float:
        """Bytes that the device sends in all collectives."""
        return sum(traffic.sent for traffic in self.collectives.values())


def program_work(
    text: str, *, trips: int = _ONCE, devices_per_host: int = 0
) -> Work:
    """Returns the work of a compiled program.

    Args:
        text: text from ``jax.stages.Compiled.as_text()``.
        trips: iterations of loops with a data-dependent end, such as a search
            that may end early.
        devices_per_host: number of devices per host, in the order of the
            program's partitions; 0 for a single host.
    """
    works = instruction_works(
        text, trips=trips, devices_per_host=devices_per_host
    )
    return reduce(Work.plus, (work for _, work in works), Work())


def instruction_works(
    text: str, *, trips: int = _ONCE, devices_per_host: int = 0
) -> Iterator[tuple[Instruction, Work]]:
    """Yields the instructions of a compiled program, each with the work of all its repetitions.

    Instructions inside a fusion are part of it. Of a conditional's branches,
    the largest is counted. The arguments are described in ``program_work``.
    """
    walk = _Walk(text, trips, devices_per_host)
    return walk.instructions(walk.entry, 1.0)


class _Walk:
    """Walks through the instructions of a program in order, with repetitions of loops."""

    def __init__(self, text: str, trips: int, devices_per_host: int) -> None:
        self._computations, self.entry = parse(text)
        match = re.search(r"num_partitions=(\d+)", text.split("\n", 1)[0])
        if match:
            self._num_devices = int(match.group(1))
        else:
            self._num_devices = 1
        self._memory = MemoryTraffic(self._computations)
        self._continued = self._continued_collectives()
        self._trips = trips
        self._devices_per_host = devices_per_host

    def _continued_collectives(self) -> set[tuple[str, str]]:
        """Returns computation and name of collectives that fusions continue but do not start."""
        result: set[tuple[str, str]] = set()
        for computation in self._computations.values():
            for instruction in computation.instructions.values():
                if instruction.opcode == "fusion":
                    fused = self._computations[instruction.called[0]]
                    for collective in continued_collectives(fused):
                        result.add((fused.name, collective.name))
        return result

    def instructions(
        self, name: str, times: float
    ) -> Iterator[tuple[Instruction, Work]]:
        """Yields the instructions of a computation that runs ``times`` times."""
        computation = self._computations[name]
        for instruction in computation.instructions.values():
            opcode = instruction.opcode
            work = Work(
                products(computation, instruction),
                self._memory.bytes_of(computation, instruction),
                self._collective(computation, instruction),
            )
            called = [
                name
                for name in instruction.called
                if name in self._computations
            ]
            inner_times = times
            if opcode == "while":
                trips, is_open = self._loop_trips(instruction)
                work = work._replace(open_loops=is_open)
                inner_times = times * trips
            elif opcode == "fusion":
                work = work.plus(self._fused(called))
            yield with_origin(computation, instruction), work.scaled(times)
            if opcode == "fusion":
                continue  # its work includes the instructions inside
            runs = [self.instructions(name, inner_times) for name in called]
            if opcode == "conditional":
                # the largest branch counts
                branches = list(map(list, runs))
                yield from max(branches, key=_size_of_branch, default=[])
            else:
                for run in runs:
                    yield from run

    def _fused(self, called: Sequence[str]) -> Work:
        """Returns the work inside a fusion, whose values never reach main memory."""
        total = Work()
        for name in called:
            for _, work in self.instructions(name, 1.0):
                total = total.plus(work)
        return total._replace(num_bytes=0.0)

    def _loop_trips(self, loop: Instruction) -> tuple[int, bool]:
        """Returns the iterations of a loop; True if they are unknown and ``trips`` is assumed."""
        match = re.search(
            r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes
        )
        if match:
            return int(match.group(1)), False
        condition = self._computations.get(
            loop.attribute("condition").lstrip("%")
        )
        bound = None
        if condition:
            bound = self._bound(condition)
        if bound is None:
            return (self._trips, True)
        return (bound, False)

    def _bound(self, condition: Computation) -> int | None:
        """Returns N for a condition ``i < N``; None for any other one. Counters begin at 0.

        ``i`` must be a variable of the loop: a number that the condition
        computes, such as the number of finished rows, counts no iterations.
        """
        root = condition.instructions[condition.root]
        compare, inside = root, condition
        if root.opcode == "fusion":
            inside = self._computations[root.called[0]]
            compare = inside.instructions[inside.root]
        if (
            compare.opcode != "compare"
            or compare.attribute("direction") != "LT"
        ):
            return None
        if inside is not condition and not all(
            inside.instructions[name].opcode == "parameter"
            for name in compare.operands
        ):
            return None
        operands = [condition.instructions[name] for name in root.operands]
        opcodes = sorted(operand.opcode for operand in operands)
        if opcodes != ["constant", "get-tuple-element"]:
            return None
        (constant,) = (x for x in operands if x.opcode == "constant")
        if constant.attributes.isdigit():
            return int(constant.attributes)
        return None

    def _collective(
        self, inside: Computation, instruction: Instruction
    ) -> dict[str, Traffic]:
        kind = instruction.opcode.removesuffix("-start")
        if (
            kind not in COLLECTIVES
            or (inside.name, instruction.name) in self._continued
        ):
            return {}
        operands = [inside.instructions[name] for name in instruction.operands]
        num_bytes = sum(operand.num_bytes for operand in operands)
        group = self._group(instruction)
        size = len(group)
        if kind == "all-reduce" and _is_cut_at_once(inside, instruction):
            kind = "reduce-scatter"
        others = (size - 1) / size
        if kind == "all-gather":
            num_bytes *= size
        share = {
            "all-reduce": 2 * others,
            "collective-permute": 1.0,
            "collective-broadcast": 1.0,
        }
        sent = num_bytes * share.get(kind, others)
        per_host = self._devices_per_host
        between_hosts = 0.0
        if per_host > 0:
            hosts = {device // per_host for device in group}
            if len(hosts) > 1:
                between_hosts = sent
        return {kind: Traffic(1.0, num_bytes, sent, between_hosts)}

    def _group(self, instruction: Instruction) -> Sequence[int]:
        """Returns the devices of the first group, or the most distant pair of a permutation."""
        everyone = range(self._num_devices)
        if instruction.opcode.startswith("collective-permute"):
            groups = listed_groups(
                "source_target_pairs", instruction.attributes
            )
            return max(groups, key=_distance, default=everyone)
        groups = replica_groups(instruction.attributes)
        if groups:
            return groups[0]
        return everyone


def _is_cut_at_once(inside: Computation, instruction: Instruction) -> bool:
    """Returns True if an all-reduce is in a fusion that keeps only the device's slices."""
    root = inside.instructions[inside.root]
    results = root.operands if root.opcode == "tuple" else (root.name,)
    return all(
        _is_slice_of(inside, inside.instructions[name], instruction)
        for name in results
    )


def _is_slice_of(
    inside: Computation, result: Instruction, reduced: Instruction
) -> bool:
    """Returns True if a result is a device's slice of one of the reduced arrays."""
    if result.opcode != "dynamic-slice":
        return False
    source = inside.instructions[value_of(inside, result.operands[0])]
    if source.opcode == "get-tuple-element":
        source = inside.instructions[source.operands[0]]
    return source is reduced


def _size_of_branch(
    branch: Sequence[tuple[Instruction, Work]],
) -> tuple[float, float]:
    num_bytes = operations = 0.0
    for _, work in branch:
        num_bytes += work.num_bytes
        operations += work.operations
    return num_bytes, operations


def _distance(pair: Sequence[int]) -> int:
    return abs(pair[0] - pair[-1])
