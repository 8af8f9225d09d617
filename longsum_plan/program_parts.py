"""Splits the work of a compiled program by module of the model and by pass.

JAX records the origin of every instruction, and XLA preserves it during
compilation:

    jit(step)/transpose(jvp(T5))/encoder/while/body/checkpoint/layers/feed_forward/wi/dot_general
              a gradient         encoder               layers/feed_forward/wi      its operation
"""

import re
from typing import NamedTuple

from longsum_plan.program_bytes import results
from longsum_plan.program_text import ArrayType, Instruction
from longsum_plan.program_work import Work, instruction_works

# number of names kept of a module's path: encoder/layers/feed_forward
DEPTH = 3
_ORIGIN = re.compile(r'\bop_name="([^"]*)"')
# Names of modules and their methods, "cross_attention" or
# "cross_attention.project_kv"; names of transformations, classes and einsums
# contain other characters.
_MODULE = re.compile(r"([a-z]\w*)(\.\w+)?")
# a method of the whole model, "T5.score_targets"
_METHOD = re.compile(r"\b[A-Z]\w*\.(\w+)")
_CONTROL_FLOW = re.compile(
    r"while|body|cond|branch_\d+_fun|closed_call|eval_jaxpr|checkpoint|rematted_computation"
    r"|custom_[jv][vj]p\w*"
)


class ModulePart(NamedTuple):
    """One device's work for a module in one pass.

    Attributes:
        module: path of the module, "encoder/layers/feed_forward"; the model's
            method, such as "score_targets", for operations outside of its
            modules; "" for all others, such as the optimizer's update.
        stage: "forward", "again" for recomputed activations, or "gradient".
        work: total work of its instructions.
        largest: largest array that it writes to memory; None if it writes none.
    """

    module: str
    stage: str
    work: Work
    largest: ArrayType | None


def program_parts(
    text: str, *, trips: int = 1, devices_per_host: int = 0
) -> list[ModulePart]:
    """Returns the parts of a compiled program, whose works sum to ``program_work``.

    An instruction that XLA fused from several modules belongs to the module of
    its result, and a copy that XLA inserted to the module that uses it. The
    arguments are described in ``program_work``.
    """
    parts: dict[tuple[str, str], ModulePart] = {}
    works = instruction_works(
        text, trips=trips, devices_per_host=devices_per_host
    )
    for instruction, work in works:
        key = origin(instruction)
        part = parts.get(key, ModulePart(*key, Work(), None))
        if work.num_bytes:
            largest = _larger(part.largest, instruction)
        else:
            largest = part.largest
        parts[key] = part._replace(work=part.work.plus(work), largest=largest)
    return list(parts.values())


def origin(instruction: Instruction) -> tuple[str, str]:
    """Returns module and stage of an instruction, see ``ModulePart``."""
    named = _ORIGIN.search(instruction.attributes)
    if named:
        *path, _operation = named.group(1).split("/")
    else:
        *path, _operation = [""]
    modules: list[str] = []
    methods = [name for names in path for name in _METHOD.findall(names)]
    for name in path:
        module = _MODULE.fullmatch(name)
        if module is None or _CONTROL_FLOW.fullmatch(name):
            continue
        if modules[-1:] != [module[1]]:  # repeated by the name of its method
            modules.append(module[1])
    stage = "forward"
    if "rematted_computation" in path:
        stage = "again"
    elif any(name.startswith("transpose(") for name in path):
        stage = "gradient"
    return "/".join(modules[:DEPTH] or methods[-1:]), stage


def _larger(
    largest: ArrayType | None, instruction: Instruction
) -> ArrayType | None:
    made = [array for array in results(instruction) if not array.is_on_chip]
    return max(filter(None, [largest, *made]), key=_num_bytes, default=None)


def _num_bytes(array: ArrayType) -> int:
    return array.num_bytes
