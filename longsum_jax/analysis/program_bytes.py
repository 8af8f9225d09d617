"""Bytes that the instructions of a compiled program read from and write to main memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from longsum_jax.analysis.program_text import (
    ArrayType,
    Computation,
    Instruction,
    users_of_value,
    value_of,
)

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
_SLICING = ("dynamic-slice", "slice", "gather")


class MemoryTraffic:
    """Bytes of instructions outside of fusions; values inside of one never reach the memory.

    Args:
        computations: of the program, by name.
    """

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations

    def bytes_of(self, inside: Computation, instruction: Instruction) -> float:
        """Returns what an instruction of the computation ``inside`` reads and writes."""
        opcode = instruction.opcode
        if opcode in _FREE or opcode.endswith("-done") or _target(instruction) in _FREE_TARGETS:
            return 0.0
        operands = [inside.instructions[name] for name in instruction.operands]
        if opcode == "fusion" and instruction.called[0] in self._computations:
            return self._fusion(instruction, operands)
        return _access_bytes(replace(instruction, arrays=results(instruction)), operands)

    def _fusion(self, instruction: Instruction, operands: Sequence[Instruction]) -> int:
        fused = self._computations[instruction.called[0]]
        num_bytes = 0
        for parameter, operand in zip(fused.parameters, operands, strict=True):
            num_bytes += self._read(fused, parameter, _main_memory(operand.arrays))
        root = fused.instructions[fused.root]
        results = [root]
        if root.opcode == "tuple":
            results = [fused.instructions[name] for name in root.operands]
        for result, array in zip(results, instruction.arrays, strict=False):
            num_bytes += 0 if array.is_on_chip else self._written(fused, result)
        return num_bytes

    def _read(self, fused: Computation, parameter: Instruction, whole: int) -> int:
        """Returns what a fusion reads of an operand of ``whole`` bytes: all, or slices of it.

        On TPUs fusions hold fusions.
        """
        taken = 0
        for user in users_of_value(fused, parameter.name):
            is_first = value_of(fused, user.operands[0]) == parameter.name
            if user.opcode == "fusion":
                inner = self._computations[user.called[0]]
                for own, name in zip(inner.parameters, user.operands, strict=True):
                    if value_of(fused, name) == parameter.name:
                        taken += self._read(inner, own, whole)
            elif is_first and user.opcode in _SLICING:
                taken += user.num_bytes
            elif not (is_first and user.opcode == "dynamic-update-slice"):
                return whole
        return min(whole, taken)

    def _written(self, fused: Computation, result: Instruction) -> int:
        """Returns what a fusion writes of a result: all, or the slice that it replaces."""
        source = fused.instructions[value_of(fused, result.name)]
        if source.opcode == "fusion":
            inner = self._computations[source.called[0]]
            root = inner.instructions[inner.root]
            if root.opcode != "tuple":
                return self._written(inner, root)
        if source.opcode == "dynamic-update-slice":
            source = fused.instructions[source.operands[1]]
        return source.num_bytes


def results(instruction: Instruction) -> Sequence[ArrayType]:
    """Returns the arrays that an instruction gives, without the room that libraries work in."""
    if _target(instruction).startswith(_WITH_WORKSPACE):
        return instruction.arrays[:-1] or instruction.arrays
    return instruction.arrays


def _target(instruction: Instruction) -> str:
    return instruction.attribute("custom_call_target").strip('"')


def _access_bytes(instruction: Instruction, operands: Sequence[Instruction]) -> int:
    """Returns what an instruction outside of fusions reads and writes."""
    opcode, written = instruction.opcode, _main_memory(instruction.arrays)
    if opcode in _SLICING:
        indices = sum(_main_memory(operand.arrays) for operand in operands[1:])
        read = 0 if operands[0].arrays[0].is_on_chip else instruction.num_bytes
        return written + read + indices
    if opcode == "slice-start":  # the result lists the operand before the slice
        part = instruction.arrays[1]
        read = 0 if operands[0].arrays[0].is_on_chip else part.num_bytes
        return read + _main_memory([part])
    if opcode == "dynamic-update-slice":
        update = operands[1].num_bytes
        return _main_memory(operands[1].arrays) + (update if written else 0)
    if opcode == "scatter":
        update = operands[-1].num_bytes
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


def _main_memory(arrays: Sequence[ArrayType]) -> int:
    return sum(array.num_bytes for array in arrays if not array.is_on_chip)
