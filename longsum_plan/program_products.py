"""Counts operations of a compiled program: dots, convolutions, FFTs, attention kernels."""

import json
import math
import re
from collections.abc import Sequence

import numpy as np

from longsum_plan.program_text import Computation, Instruction, integers

# Number of products of size queries x keys in an attention kernel
# (``ops.attention.fused``), by the prefix of its target (cuDNN), of the
# instruction (kernels of TPUs), or of the Triton kernel.
_ATTENTION_PRODUCTS = {
    "__cudnn$fmhaSoftmaxBackward": 5,
    "__cudnn$fmhaSoftmax": 2,
    "splash_mha_fwd": 2,
    "splash_mha_dq": 3,
    "splash_mha_dkv": 4,
    "mosaic_attention_forward": 2,
    "mosaic_attention_backward": 5,
    "triton_attention_forward": 2,
    "triton_attention_queries": 3,
    "triton_attention_keys": 4,
}
_TRITON = "__gpu$xla.gpu.triton"
# Other kernels have the number of their operations in their name, to which XLA
# for TPUs adds the number of the instruction.
_OPERATIONS = re.compile(r"_operations_(\d+)(\.\w+)*$")
_PAIRS = re.compile(r"\bpairs_(\d+)\b")


def products(inside: Computation, instruction: Instruction) -> dict[str, float]:
    """Returns the operations of an instruction in the computation ``inside``, by the
    factors' type.
    """
    opcode = instruction.opcode
    instructions = inside.instructions
    operands = [
        instructions[name]
        for name in instruction.operands
        if name in instructions
    ]
    if opcode == "dot":
        axes = integers(instruction.attribute("lhs_contracting_dims"))
        operations = _dot_operations(instruction, operands[0], axes)
    elif opcode == "convolution":
        operations = _convolution_operations(
            instruction, operands[0], operands[1]
        )
    elif opcode == "fft":
        # not by units for products of narrow types
        return {"float32, highest": _fft_operations(instruction, operands[0])}
    elif opcode == "custom-call" and (
        count := _count_attention_products(instruction)
    ):
        operations = count * _attention_operations(instruction, operands)
        operands = list(filter(_is_float, operands))
    elif opcode == "custom-call" and (
        named := _OPERATIONS.search(_kernel_name(instruction))
    ):
        return {"bfloat16": float(named.group(1))}
    elif (
        opcode == "custom-call"
        and "dot_dimension_numbers" in instruction.attributes
    ):
        operations = _matrix_call_operations(instruction, operands[0])
    else:
        return {}
    return {_precision(instruction, operands[:2]): operations}


def _precision(instruction: Instruction, factors: Sequence[Instruction]) -> str:
    is_half = [_fits_bfloat16(factor.arrays[0].dtype) for factor in factors]
    if all(is_half):
        return "bfloat16"
    # a TPU needs fewer passes if one factor consists of a single bfloat16 part
    kind = "mixed" if any(is_half) else "float32"
    # The precision precedes the metadata, which may contain any name, or
    # follows it for cuBLAS.
    before, _, rest = instruction.attributes.partition("metadata={")
    text = (before + rest.partition("}")[2]).lower()
    for precision in ("highest", "high"):
        if re.search(rf"\b{precision}\b", text):
            return f"{kind}, {precision}"
    return "float32"


def _fits_bfloat16(dtype: str) -> bool:
    # "pred" for one-hot factors, which XLA for TPUs does not convert
    return dtype in ("bf16", "pred") or dtype.startswith(("f8", "f16"))


def _dot_operations(
    instruction: Instruction, factor: Instruction, axes: Sequence[int]
) -> float:
    terms = math.prod(factor.arrays[0].shape[axis] for axis in axes)
    return 2.0 * math.prod(instruction.arrays[0].shape) * terms


def _matrix_call_operations(
    instruction: Instruction, factor: Instruction
) -> float:
    """Returns the operations of a matrix product computed by a library (cuBLAS, oneDNN)."""
    numbers = re.findall(
        r'"dot_dimension_numbers":(\{[^}]*\})', instruction.attributes
    )
    axes = json.loads(numbers[0]).get("lhs_contracting_dimensions", [])
    return _dot_operations(instruction, factor, [int(axis) for axis in axes])


def _count_attention_products(instruction: Instruction) -> int:
    """Returns the number of products of size queries x keys in an attention kernel; 0
    for other instructions.
    """
    name = _kernel_name(instruction)
    for begin, count in _ATTENTION_PRODUCTS.items():
        if name.startswith(begin):
            return count
    return 0


def _kernel_name(instruction: Instruction) -> str:
    """Returns the name of the kernel that a custom call runs; "" if it has none."""
    target = instruction.target
    if target == "tpu_custom_call":
        return instruction.name
    if target != _TRITON:
        return target
    kernel = re.search(r'\bname = "(\w+)"', instruction.attributes)
    if kernel:
        return kernel.group(1)
    return ""


def _attention_operations(
    instruction: Instruction, operands: Sequence[Instruction]
) -> float:
    """Returns the operations of one product of queries and keys; half of them if causal.

    The names of Pallas kernels contain the number of pairs per row, see
    ``ops.attention.splash``.
    """
    queries, keys, *_ = filter(_is_float, operands)
    shape, of_keys = queries.arrays[0].shape, keys.arrays[0].shape
    if instruction.target.startswith("__cudnn"):
        is_causal = re.search(
            r'"mask_type": ?"(PADDING_)?CAUSAL"', instruction.attributes
        )
        operations = math.prod(shape) * of_keys[1]
        if is_causal:
            return 1.0 * operations
        return 2.0 * operations
    if instruction.target == _TRITON:  # [rows, length, heads, head_dim]
        shape = _heads_first(shape)
        of_keys = _heads_first(of_keys)
    if instruction.name.startswith("mosaic"):  # [rows, heads, head_dim, length]
        shape, of_keys = ((*x[:-2], x[-1], x[-2]) for x in (shape, of_keys))
    *rows, num_queries, head_dim = shape
    named = _PAIRS.search(instruction.attributes)
    if named:
        pairs = int(named.group(1))
    else:
        pairs = num_queries * of_keys[-2]
    return 2.0 * math.prod(rows) * head_dim * pairs


def _heads_first(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns [rows, length, heads, head_dim] as [rows, heads, length, head_dim]."""
    *rows, length, heads, head_dim = shape
    return (*rows, heads, length, head_dim)


def _is_float(operand: Instruction) -> bool:
    return operand.arrays[0].dtype.startswith(("bf", "f"))


def _fft_operations(instruction: Instruction, operand: Instruction) -> float:
    lengths = integers(instruction.attribute("fft_length"))
    length = math.prod(lengths)
    rows = math.prod(operand.arrays[0].shape[: -len(lengths)])
    # 5 n log2 n for a complex FFT, half of it for a real one.
    operations = rows * 5.0 * length * math.log2(max(length, 2))
    if "R" in instruction.attribute("fft_type").removesuffix("FFT"):
        return operations / 2
    return operations


def _convolution_operations(
    instruction: Instruction, inputs: Instruction, kernel: Instruction
) -> float:
    """Returns the operations of a convolution, two per multiplication, excluding padding.

    On TPUs, matrix products are convolutions whose windows represent batch
    axes.
    """
    labels, *_ = re.findall(
        r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes
    )
    arrays = (inputs.arrays[0], kernel.arrays[0], instruction.arrays[0])
    sizes_by_name = []
    for names, array in zip(labels, arrays, strict=True):
        sizes_by_name.append(dict(zip(names, array.shape, strict=True)))
    of_input, of_kernel, of_output = sizes_by_name
    window = instruction.attribute("window")
    axes = sorted(filter(str.isdigit, of_output))
    operations = 2.0 * of_output["b"] * of_output["f"] * of_kernel["i"]
    for axis in axes:
        sizes = (of_input[axis], of_kernel[axis], of_output[axis])
        operations *= _window_pairs(*sizes, **_window(window, int(axis)))
    return operations


def _window(text: str, axis: int) -> dict[str, int]:
    """Returns stride, low padding and dilations of one axis of a window."""

    def value(name: str, default: str) -> str:
        match = re.search(rf"\b{name}=(\S+?)[\s}}]", text)
        if match:
            return match.group(1).split("x")[axis]
        return default

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
    """Returns the number of (output, kernel tap) pairs that multiply an actual input."""
    last = (inputs - 1) * input_dilation
    pairs = 0
    starts = np.arange(outputs) * stride - padding
    for tap in range(kernel):
        positions = starts + tap * kernel_dilation
        meets = (
            (positions >= 0)
            & (positions <= last)
            & (positions % input_dilation == 0)
        )
        pairs += int(meets.sum())
    return pairs
