"""The training state: the arrays that a step takes and returns, and their creation on a mesh."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.core import meta
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.training.mesh import (
    Layout,
    Rules,
    create_sharded,
    plan_layout,
    slot_shardings,
)
from longsum_jax.training.trees import check_names, describe
from longsum_jax.typing import Array


@struct.dataclass
class TrainState:
    """All arrays of a run.

    Attributes:
        step: number of batches so far, () int32.
        params: parameter tree.
        opt_state: optimizer state.
        skipped: number of steps of the run whose loss or gradient was not
            finite, () int32.
        bad_streak: number of consecutive such steps up to now, () int32.
    """

    step: Array
    params: Any
    opt_state: Any
    skipped: Array
    bad_streak: Array

    def without_params(self) -> dict[str, Any]:
        """Returns everything except the parameters, in the format of checkpoints."""
        return {
            "step": self.step,
            "opt_state": self.opt_state,
            "carry": (),  # an empty entry of checkpoint format 1
            "skipped": self.skipped,
            "bad_streak": self.bad_streak,
        }

    @classmethod
    def from_checkpoint(cls, params: Any, rest: dict[str, Any]) -> "TrainState":
        """Joins the parameters and the ``without_params`` of a checkpoint."""
        rest = {name: value for name, value in rest.items() if name != "carry"}
        return cls(params=params, **rest)


def init_state(
    params: Any, optimizer: optax.GradientTransformation
) -> TrainState:
    """Returns the state of step 0 with ``params``."""

    def zero() -> Array:
        return jnp.zeros((), jnp.int32)

    return TrainState(
        step=zero(),
        params=params,
        opt_state=optimizer.init(params),
        skipped=zero(),
        bad_streak=zero(),
    )


def plan_state(
    init: Callable[[Array], Any],
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    rules: Rules,
    rng: Array,
) -> tuple[TrainState, Layout]:
    """Returns the shapes of the state of step 0 with shardings, and the layout of the parameters.

    Args:
        init: function from a PRNG key to a parameter tree, boxed with logical
            names or not.
        optimizer: optimizer of the run.
        mesh: result of `mesh.make_mesh`.
        rules: logical axis rules, see `MeshOptions.rules`.
        rng: PRNG key of the initialization.

    Returns:
        A state of jax.ShapeDtypeStruct, without computation; and the layout.
    """
    layout = plan_layout(init, mesh, rules, rng)
    # Parameters, moments and counts as shapes; nothing is computed or
    # allocated.
    shapes = jax.eval_shape(lambda: init_state(layout.shapes, optimizer))
    # in place of the arrays of a state
    replicated: Any = NamedSharding(mesh, P())
    # Optimizer slots have no logical names, and are sharded like their
    # parameters.
    shardings = TrainState(
        step=replicated,
        params=layout.shardings,
        opt_state=slot_shardings(
            shapes.opt_state, layout.shapes, layout.shardings, mesh
        ),
        skipped=replicated,
        bad_streak=replicated,
    )
    abstract = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=sharding
        ),
        shapes,
        shardings,
    )
    return abstract, layout


def create_state(
    abstract: TrainState,
    init: Callable[[Array], Any],
    optimizer: optax.GradientTransformation,
    rng: Array,
    initial_params: Any | None = None,
) -> TrainState:
    """Creates the state of step 0, with every array created on its own devices.

    Args:
        abstract: result of `plan_state` for the same arguments.
        init: function from a PRNG key to a parameter tree, boxed with logical
            names or not.
        optimizer: optimizer of the run.
        rng: PRNG key of the initialization; the values do not depend on the
            mesh.
        initial_params: host arrays to start from instead of ``init``, the same
            on every host.

    Raises:
        InputError: ``initial_params`` has missing or additional parameters, or
            other shapes.
    """
    shardings = shardings_of(abstract)
    if initial_params is None:
        params = create_sharded(init, shardings.params, rng)
    else:
        params = meta.unbox(initial_params)
        check_names(
            describe(abstract.params),
            describe(params),
            "initial_params",
            "parameters",
        )
        # Converted to the parameters' types, and sharded array by array.
        params = jax.tree.map(_place_host_array, params, abstract.params)

    def rest_of_state(params: Any) -> TrainState:
        return replace(init_state(params, optimizer), params=None)

    # Under jit with the output shardings, so that no array is created whole on
    # one device.
    create_rest = jax.jit(
        rest_of_state, out_shardings=replace(shardings, params=None)
    )
    return replace(create_rest(params), params=params)


def shardings_of(abstract: Any) -> Any:
    """Returns the shardings of a tree of jax.ShapeDtypeStruct."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def _place_host_array(value: Any, target: jax.ShapeDtypeStruct) -> Array:
    # Every device copies only its slice of the host array.
    host = np.asarray(value).astype(target.dtype)
    return jax.make_array_from_callback(
        target.shape, target.sharding, lambda index: host[index]
    )
