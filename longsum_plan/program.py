"""Programs that can be planned: a function that lowers them, and the shapes of their arrays."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax.stages import Lowered


class AbstractProgram(NamedTuple):
    """A program that is not compiled yet.

    Attributes:
        name: "train", "loss", "read", "search", ...
        lower: function that traces the program for the devices of its arrays or
            its mesh.
        parts: trees of shapes among the arguments by role: "parameters",
            "optimizer"; {} if the program does not use all of them.
        trips: maximum iterations of a loop with a data-dependent end.
        arguments: arguments of the call, including unused ones, which still
            occupy device memory; () if all are used.
        idle: trees of shapes that are not arguments but stay in device memory
            during the run.
    """

    name: str
    lower: Callable[[], Lowered]
    parts: Mapping[str, Any]
    trips: int = 1
    arguments: tuple[Any, ...] = ()
    idle: Any = ()
