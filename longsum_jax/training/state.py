"""The training state: what one step takes and returns, and how it comes to be on a mesh."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.core import meta
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.training.checkpointing import check_names, describe
from longsum_jax.training.mesh import Layout, Rules, plan_layout, rows_sharding, slot_shardings
from longsum_jax.typing import Array


@struct.dataclass
class TrainState:
    """All arrays of a run.

    Attributes:
        step: () int32, batches taken so far.
        params: parameter tree.
        opt_state: optimizer state.
        carry: what the loss function hands from batch to batch, () for most models; the first
            dimension of every array in it is the rows of the global batch.
        skipped: () int32, steps whose loss or gradient was not finite, in the whole run.
        bad_streak: () int32, how many of them in a row up to now.
    """

    step: Array
    params: Any
    opt_state: Any
    carry: Any
    skipped: Array
    bad_streak: Array

    def rest(self) -> dict[str, Any]:
        """Everything but the parameters, as checkpoints store it."""
        return {
            "step": self.step,
            "opt_state": self.opt_state,
            "carry": self.carry,
            "skipped": self.skipped,
            "bad_streak": self.bad_streak,
        }


def plan_state(
    init: Callable[[Array], Any],
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    rules: Rules,
    rng: Array,
    carry: Any = (),
) -> tuple[TrainState, Layout]:
    """Returns the state as jax.ShapeDtypeStruct leaves with shardings, and the layout of the
    parameters."""
    layout = plan_layout(init, mesh, rules, rng)
    shapes = jax.eval_shape(lambda: _fresh(layout.shapes, optimizer, carry))
    replicated = NamedSharding(mesh, P())
    shardings = TrainState(
        step=replicated,
        params=layout.shardings,
        opt_state=slot_shardings(shapes.opt_state, layout.shapes, layout.shardings, mesh),
        carry=jax.tree.map(lambda x: rows_sharding(mesh, x.ndim), shapes.carry),
        skipped=replicated,
        bad_streak=replicated,
    )
    abstract = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        shapes,
        shardings,
    )
    return abstract, layout


def create_state(
    abstract: TrainState,
    init: Callable[[Array], Any],
    optimizer: optax.GradientTransformation,
    rng: Array,
    carry: Any = (),
    initial_params: Any | None = None,
) -> TrainState:
    """Creates the state of step 0 with every array born on its own devices.

    Args:
        abstract: from `plan_state`, called with the same arguments.
        init: PRNG key to parameter tree, boxed with logical names or not.
        optimizer: the optimizer.
        rng: key of the initialisation; the values do not depend on the mesh.
        carry: the first carry, global arrays, the same on every host.
        initial_params: host arrays to start from instead of ``init``, the same on every host.

    Raises:
        InputError: ``initial_params`` lacks parameters of the model, or has others, or other
            shapes.
    """
    shardings = shardings_of(abstract)
    if initial_params is None:
        # No logical rules are active here: boxes would constrain dimensions that do not divide the
        # mesh.
        create = jax.jit(
            lambda key: _fresh(meta.unbox(init(key)), optimizer, carry), out_shardings=shardings
        )
        return create(rng)
    initial_params = meta.unbox(initial_params)
    check_names(describe(abstract.params), describe(initial_params), "initial_params", "parameters")
    params = jax.tree.map(_place_host_array, initial_params, abstract.params)
    return jax.jit(lambda params: _fresh(params, optimizer, carry), out_shardings=shardings)(params)


def shardings_of(abstract: Any) -> Any:
    """Returns the shardings of a tree of jax.ShapeDtypeStruct."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def _fresh(params: Any, optimizer: optax.GradientTransformation, carry: Any) -> TrainState:
    def zero() -> Array:
        return jnp.zeros((), jnp.int32)

    carry = jax.tree.map(jnp.asarray, carry)
    return TrainState(zero(), params, optimizer.init(params), carry, zero(), zero())


def _place_host_array(value: Any, target: jax.ShapeDtypeStruct) -> Array:
    host = np.asarray(value).astype(target.dtype)
    return jax.make_array_from_callback(target.shape, target.sharding, lambda index: host[index])
