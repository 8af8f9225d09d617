"""Counts the bytes that a compiled program reads from and writes to main memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from longsum_plan.program_text import (
    COLLECTIVES,
    ArrayType,
    Computation,
    Instruction,
    continued_collectives,
    value_of,
)

# Instructions that do not move data themselves.
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
_FREE_TARGETS = (
    "AllocateBuffer",
    "AssumeGatherIndicesInBound",
    "Sharding",
    "PartialReduce",
)
# the last array of the result is workspace
_WITH_WORKSPACE = ("__cublas", "__cudnn")
# root of a fusion that starts a collective on a TPU
_COLLECTIVE_START = "AsyncCollectiveStart"
_SLICING = ("dynamic-slice", "slice", "gather")
# An entry of the result needs one entry of each operand.
_ENTRYWISE = (
    "add",
    "bitcast",
    "convert",
    "divide",
    "imag",
    "multiply",
    "negate",
    "real",
    "subtract",
)


class MemoryTraffic:
    """Counts bytes of instructions outside of fusions; values inside of one never reach memory.

    Args:
        computations: computations of the program, by name.
    """

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._shares: dict[tuple[str, str], float] = {}

    def bytes_of(self, inside: Computation, instruction: Instruction) -> float:
        """Returns the bytes read and written by an instruction in the computation ``inside``."""
        opcode = instruction.opcode
        if (
            opcode in _FREE
            or opcode.endswith("-done")
            or instruction.target in _FREE_TARGETS
        ):
            return 0.0
        operands = [inside.instructions[name] for name in instruction.operands]
        if opcode == "fusion" and instruction.called[0] in self._computations:
            return self._fusion(instruction, operands)
        return _access_bytes(
            replace(instruction, arrays=results(instruction)), operands
        )

    def _fusion(
        self, instruction: Instruction, operands: Sequence[Instruction]
    ) -> int:
        fused = self._computations[instruction.called[0]]
        root = fused.instructions[fused.root]
        passed = _passed_on(fused)
        num_bytes = 0
        for parameter, operand in zip(fused.parameters, operands, strict=True):
            if parameter.name not in passed:
                num_bytes += self._read(
                    fused, parameter, _main_memory(operand.arrays)
                )
        if root.target == _COLLECTIVE_START:
            return num_bytes + _main_memory(
                _begun(instruction.arrays, len(root.operands))
            )
        results = [root]
        if root.opcode == "tuple":
            results = [fused.instructions[name] for name in root.operands]
        for result, array in zip(results, instruction.arrays, strict=False):
            is_written = result.name not in passed and not array.is_on_chip
            if is_written:
                num_bytes += self._written(fused, result)
        return num_bytes

    def _read(
        self, fused: Computation, parameter: Instruction, whole: int
    ) -> int:
        """Returns the bytes that a fusion reads of an operand of ``whole`` bytes: all, or slices.

        On TPUs, fusions may be nested.
        """
        share = self._share_read(fused, parameter.name)
        return math.ceil(whole * share)

    def _share_read(self, fused: Computation, name: str) -> float:
        """Returns the share of a value's entries that a fusion reads, at most 1.

        Of an entrywise result it computes no more than is read of it.
        """
        # The number of paths from a value to the root may be exponential.
        key = fused.name, name
        if key not in self._shares:
            self._shares[key] = self._sum_of_shares(fused, name)
        return self._shares[key]

    def _sum_of_shares(self, fused: Computation, name: str) -> float:
        if name == fused.root:
            return 1.0
        size = _count_entries(fused.instructions[name])
        total = 0.0
        # each user once, such as the square of a value
        users = {user.name: user for user in fused.users.get(name, [])}
        for user in users.values():
            is_first = user.operands[0] == name
            if user.opcode == "fusion":
                inner = self._computations[user.called[0]]
                for parameter, operand in zip(
                    inner.parameters, user.operands, strict=True
                ):
                    if operand == name:
                        total += self._share_read(inner, parameter.name)
            elif is_first and user.opcode in _SLICING:
                # Of a slice that is cut again, only that part is read.
                share = self._share_read(fused, user.name)
                total += share * _count_entries(user) / size
            elif user.opcode in _ENTRYWISE:
                total += self._share_read(fused, user.name)
            elif not (is_first and _is_in_place(fused, user)):
                return 1.0
            elif user.opcode == "scatter":
                updates = fused.instructions[user.operands[-1]]
                total += _count_entries(updates) / size
        return min(1.0, total)

    def _written(self, fused: Computation, result: Instruction) -> int:
        """Returns the bytes that a fusion writes of a result: all, or the slice that it updates."""
        source = fused.instructions[value_of(fused, result.name)]
        if source.opcode == "fusion":
            inner = self._computations[source.called[0]]
            root = inner.instructions[inner.root]
            if root.opcode != "tuple":
                return self._written(inner, root)
        if source.opcode == "dynamic-update-slice":
            source = fused.instructions[source.operands[1]]
        if source.opcode == "scatter" and _is_in_place(fused, source):
            source = fused.instructions[source.operands[-1]]
        return source.num_bytes


def _is_in_place(fused: Computation, update: Instruction) -> bool:
    """Returns True if an operation updates a single array, which the fusion does not compute."""
    if update.opcode not in ("scatter", "dynamic-update-slice"):
        return False
    if update.opcode == "scatter" and len(update.operands) != 3:
        return False
    updated = fused.instructions[value_of(fused, update.operands[0])]
    return updated.opcode == "parameter"


def _passed_on(fused: Computation) -> set[str]:
    """Returns the values of a fusion that belong to collectives started by another fusion."""
    collectives = {
        collective.name for collective in continued_collectives(fused)
    }
    if not collectives:
        return set()
    root = fused.instructions[fused.root]
    parameters = {parameter.name for parameter in fused.parameters}
    return collectives | {root.name} | parameters.intersection(root.operands)


def _begun(
    arrays: Sequence[ArrayType], num_operands: int
) -> Sequence[ArrayType]:
    """Returns the results of an asynchronous operation, whose arrays list its operands first."""
    return arrays[num_operands : 2 * num_operands]


def results(instruction: Instruction) -> tuple[ArrayType, ...]:
    """Returns the result arrays of an instruction, without the workspace of libraries."""
    if instruction.target.startswith(_WITH_WORKSPACE):
        return instruction.arrays[:-1] or instruction.arrays
    return instruction.arrays


def _access_bytes(
    instruction: Instruction, operands: Sequence[Instruction]
) -> int:
    """Returns the bytes read and written by an instruction outside of fusions."""
    opcode, written = instruction.opcode, _main_memory(instruction.arrays)
    if opcode in _SLICING:
        indices = sum(_main_memory(operand.arrays) for operand in operands[1:])
        if operands[0].arrays[0].is_on_chip:
            read = 0
        else:
            read = instruction.num_bytes
        return written + read + indices
    if opcode == "slice-start":  # the result lists the operand before the slice
        part = instruction.arrays[1]
        if operands[0].arrays[0].is_on_chip:
            read = 0
        else:
            read = part.num_bytes
        return read + _main_memory([part])
    if opcode == "dynamic-update-slice":
        num_bytes = _main_memory(operands[1].arrays)
        if written:
            num_bytes += operands[1].num_bytes
        return num_bytes
    if opcode == "scatter":
        num_bytes = _main_memory(operands[-1].arrays)
        if written:
            num_bytes += 2 * operands[-1].num_bytes
        return num_bytes
    read = sum(_main_memory(operand.arrays) for operand in operands)
    if opcode == "copy-start":  # the result lists the operand after the copy
        return read + _main_memory(instruction.arrays[:1])
    kind = opcode.removesuffix("-start")
    if (
        opcode.endswith("-start")
        and kind in COLLECTIVES
        and kind != "all-reduce"
    ):
        return read + _main_memory(_begun(instruction.arrays, len(operands)))
    return written + read


def _count_entries(value: Instruction) -> int:
    return math.prod(value.arrays[0].shape)


def _main_memory(arrays: Sequence[ArrayType]) -> int:
    return sum(array.num_bytes for array in arrays if not array.is_on_chip)
