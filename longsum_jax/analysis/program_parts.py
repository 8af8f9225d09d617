"""Parts of a compiled program: how much each module of a model takes, in which pass.

JAX writes into every instruction where it came from, and XLA keeps that while it compiles:

    jit(step)/transpose(jvp(T5))/encoder/while/body/checkpoint/layers/feed_forward/wi/dot_general
              a gradient         encoder               layers/feed_forward/wi      its operation
"""

import re
from typing import NamedTuple

from longsum_jax.analysis.program_bytes import results
from longsum_jax.analysis.program_text import ArrayType, Instruction
from longsum_jax.analysis.program_work import Work, instruction_works

DEPTH = 3  # names of a module's path that are kept: encoder/layers/feed_forward
_ORIGIN = re.compile(r'\bop_name="([^"]*)"')
# Names of modules and of their methods, "cross_attention" or "cross_attention.project_kv"; those of
# transformations, classes and sums of products have other letters.
_MODULE = re.compile(r"([a-z]\w*)(\.\w+)?")
_METHOD = re.compile(r"\b[A-Z]\w*\.(\w+)")  # of a whole model, "T5.score_targets"
_CONTROL_FLOW = re.compile(
    r"while|body|cond|branch_\d+_fun|closed_call|eval_jaxpr|checkpoint|rematted_computation"
    r"|custom_[jv][vj]p\w*"
)


class Part(NamedTuple):
    """Work of one device for a module in one pass.

    Attributes:
        module: its path, "encoder/layers/feed_forward"; the method of a model, "score_targets",
            for what that does by itself; "" for what belongs to neither, such as the optimizer's
            update.
        stage: "forward", "again" for activations that are computed a second time, or "gradient".
        work: of all its instructions.
        largest: the largest array that it writes to memory; None without any.
    """

    module: str
    stage: str
    work: Work
    largest: ArrayType | None


def program_parts(text: str, *, trips: int = 1, devices_per_host: int = 0) -> list[Part]:
    """Returns the parts of a compiled program, whose works add up to ``program_work``'s.

    An instruction that XLA fused from several modules belongs to the module of its result.
    Arguments are those of ``program_work``.
    """
    found: dict[tuple[str, str], Part] = {}
    works = instruction_works(text, trips=trips, devices_per_host=devices_per_host)
    for instruction, work in works:
        key = origin(instruction)
        part = found.get(key, Part(*key, Work(), None))
        largest = _larger(part.largest, instruction) if work.num_bytes else part.largest
        found[key] = part._replace(work=part.work.plus(work), largest=largest)
    return list(found.values())


def origin(instruction: Instruction) -> tuple[str, str]:
    """Returns module and stage of an instruction, as ``Part`` names them."""
    named = _ORIGIN.search(instruction.attributes)
    *path, _operation = named.group(1).split("/") if named else [""]
    modules: list[str] = []
    methods = [name for names in path for name in _METHOD.findall(names)]
    for name in path:
        module = _MODULE.fullmatch(name)
        if module is None or _CONTROL_FLOW.fullmatch(name):
            continue
        if modules[-1:] != [module[1]]:  # named again by its method
            modules.append(module[1])
    stage = "forward"
    if "rematted_computation" in path:
        stage = "again"
    elif any(name.startswith("transpose(") for name in path):
        stage = "gradient"
    return "/".join(modules[:DEPTH] or methods[-1:]), stage


def _larger(largest: ArrayType | None, instruction: Instruction) -> ArrayType | None:
    made = [array for array in results(instruction) if not array.is_on_chip]
    return max(filter(None, [largest, *made]), key=_num_bytes, default=None)


def _num_bytes(array: ArrayType) -> int:
    return array.num_bytes
