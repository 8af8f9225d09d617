"""Finds the first tensor of a step that is not finite.

A compiled step only reports that its loss, gradient or parameters are not
finite. Here such a step is repeated on one device, with a report from every
module, and all tensors are checked in the order in which they are computed.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.schema import first_names
from longsum_jax.training.gradients import gradient_fn, micro_batches
from longsum_jax.training.loss import LossFn, SegmentedLoss, document_loss
from longsum_jax.training.mesh import MeshJit, MeshOptions, activate, make_mesh
from longsum_jax.training.reporter import TrainingDiverged
from longsum_jax.training.state import TrainState
from longsum_jax.training.trees import name_of
from longsum_jax.typing import Array, NumpyBatch

_MOST_NAMES_SHOWN = 3


class NonfiniteWatch:
    """Ends a run at the first step with a loss, gradient or update that is not finite, and names
    the tensor that causes it.

    It waits for every step, whose state must not be donated.

    Args:
        loss_fn, accumulation, seed: arguments of the step.

    Raises:
        InputError: a run of several processes, none of which has all arrays.
    """

    def __init__(
        self, loss_fn: LossFn | SegmentedLoss, accumulation: int, seed: int
    ) -> None:
        if jax.process_count() > 1:
            raise InputError(
                f"--debug_nans needs a run of one process, this run has "
                f"{jax.process_count()}; repeat the step with one"
            )
        if isinstance(loss_fn, SegmentedLoss):
            whole = document_loss(loss_fn)
        else:
            whole = loss_fn
        self._loss = MeshJit(whole)
        self._gradient = MeshJit(gradient_fn(loss_fn))
        self._accumulation, self._seed = accumulation, seed
        self._outputs = _Outputs()

    def check(
        self,
        step: int,
        before: TrainState,
        batch: NumpyBatch,
        after: TrainState,
        metrics: Mapping[str, Array],
    ) -> None:
        """Raises TrainingDiverged unless all numbers of a step are finite.

        Args:
            step: number of steps done.
            before, after: states before and after the step.
            batch: batch of the step.
            metrics: metrics returned by the step.
        """
        if all(
            math.isfinite(metrics[name])
            for name in ("loss", "grad_norm", "param_norm")
        ):
            return
        if metrics["weight"] == 0 and math.isfinite(metrics["param_norm"]):
            # the batch has no labels: the step is skipped, and nothing is
            # damaged
            return
        name = (
            self._first(before, batch, after)
            or "a norm, whose square overflows"
        )
        raise TrainingDiverged(
            f"step {step}: the first tensor that is not finite is {name}; the last checkpoint is "
            "intact"
        )

    def _first(
        self, before: TrainState, batch: NumpyBatch, after: TrainState
    ) -> str | None:
        """Returns a description of the first tensor that is not finite, None if all are finite."""
        # The step is repeated on one device, without sharding.
        params, opt_state = jax.device_get((before.params, before.opt_state))
        mesh_options = MeshOptions()
        mesh = make_mesh(mesh_options, jax.local_devices()[:1])
        with activate(mesh, mesh_options.rules):
            return (
                _in_tree("of the batch", batch)
                # In the order of computation: the first hit is the cause, later
                # ones follow from it.
                or _in_tree("of the parameters", params)
                or _in_tree("of the optimizer state", opt_state)
                or self._in_computation(params, batch, before.step)
                or _in_tree(
                    "of the optimizer state after the update", after.opt_state
                )
                or _in_tree("of the parameters after the update", after.params)
            )

    def _in_computation(
        self, params: Any, batch: NumpyBatch, step: Array
    ) -> str | None:
        """Checks the loss and its gradient, one micro-batch at a time."""
        # The same keys as in the step, so that dropout repeats, except for
        # segments on several devices, each of which has a key of its own.
        rng = jax.random.fold_in(
            jax.random.key(self._seed), jax.device_get(step)
        )
        for index, part in enumerate(micro_batches(batch, self._accumulation)):
            key = jax.random.fold_in(rng, index)
            description = self._in_loss(params, part, key) or self._in_gradient(
                params, part, key
            )
            if description:
                if self._accumulation > 1:
                    description += f" (micro-batch {index})"
                return description
        return None

    def _in_loss(
        self, params: Any, batch: dict[str, Array], rng: Array
    ) -> str | None:
        self._outputs.forget()
        with nn.intercept_methods(self._outputs.intercept):
            out = self._loss(params, batch, rng)
        # Waits for the callbacks of ``intercept``.
        jax.effects_barrier()
        return self._outputs.first or _in_tree("of the loss", out._asdict())

    def _in_gradient(
        self, params: Any, batch: dict[str, Array], rng: Array
    ) -> str | None:
        grads, _ = self._gradient(params, batch, rng)
        return _in_tree("of the gradient", grads)


class _Outputs:
    """Reports of modules, in the order of their outputs.

    Attributes:
        first: description of the first output that is not finite.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Resets the reports."""
        self.first: str | None = None
        self._calls: Counter[str] = Counter()

    def intercept(
        self,
        method: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: nn.module.InterceptorContext,
    ) -> Any:
        """Calls a method of a module; pass it to ``nn.intercept_methods``."""
        out = method(*args, **kwargs)
        # Ids and masks are always finite.
        arrays = [x for x in jax.tree.leaves(out) if _has_fractions(x)]
        if arrays:
            path = (*context.module.path, context.method_name)
            is_finite = jnp.all(
                jnp.array([jnp.isfinite(x).all() for x in arrays])
            )
            name = "/".join(path).removesuffix("__call__").removesuffix("/")
            # A callback, because the output may be a tracer inside a scan.
            jax.debug.callback(
                partial(self._report, name or "the model"), is_finite
            )
        return out

    def _report(self, name: str, is_finite: Array) -> None:
        # The layers of a scanned stack share one name, with one call each.
        if self.first is None and not is_finite:
            self.first = f"the output of {name} (call {self._calls[name]})"
        self._calls[name] += 1


def _in_tree(what: str, tree: Any) -> str | None:
    """Returns the names of the arrays that are not finite, None if all are finite."""
    names = _names(tree)
    if names:
        return f"{first_names(names, _MOST_NAMES_SHOWN)} {what}"
    return None


def _names(tree: Any) -> list[str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [name_of(path) for path, leaf in leaves if not _is_finite(leaf)]


def _is_finite(array: Any) -> bool:
    return not _has_fractions(array) or bool(
        np.isfinite(np.asarray(array, np.float32)).all()
    )


def _has_fractions(value: Any) -> bool:
    """Returns True for floating-point arrays; modules also return other values."""
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
    return is_array and jnp.issubdtype(value.dtype, jnp.inexact)
