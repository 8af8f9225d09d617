"""Optimizers and learning-rate schedules of the papers, as optax transformations.

All settings are in a frozen `OptimizerOptions`. The published LOCOST runs are
`OptimizerOptions("adamw", 0.02, "t5", warmup_steps=10_000)` for pre-training
and `OptimizerOptions("adamw", 5e-4)` for fine-tuning.
"""

import dataclasses
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

import flax.traverse_util
import jax
import jax.numpy as jnp
import optax

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.schema import (
    Count,
    PositiveFloat,
    Range,
    Rate,
    Weight,
    check_ranges,
)
from longsum_jax.training.adafactor import (
    ParameterAxes,
    scale_by_adafactor,
    scale_by_parameter_rms,
)
from longsum_jax.training.trees import name_of
from longsum_jax.typing import Array

# Elementwise optimizers of optax, for which stacked layers change nothing:
# functions from the decay rates of the moments and eps to the update rule.
_OF_OPTAX: Mapping[
    str, Callable[[float, float, float], optax.GradientTransformation]
] = {
    "adamw": optax.scale_by_adam,
    "lion": lambda b1, b2, eps: optax.scale_by_lion(b1, b2),
    "nadamw": functools.partial(optax.scale_by_adam, nesterov=True),
    "sgd": lambda b1, b2, eps: optax.trace(b1),
}
Name = Literal["adamw", "lion", "nadamw", "sgd", "adamw_hf", "adafactor"]
Schedule = Literal["constant", "t5", "linear", "cosine"]
NAMES = get_args(Name)
SCHEDULES = get_args(Schedule)
SPIKE_DECAY = 0.98  # decay of the mean gradient norm
SPIKE_WARMUP = 20  # number of steps before the mean is used
# schedules multiply it by at most 1; float32 ends at 3.4e38
MAX_LEARNING_RATE = 1e6


@dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer, its learning-rate schedule, and gradient clipping.

    Attributes:
        name: optimizer: "adamw" adds eps to the root of the bias-corrected
            second moment, as in torch, apex and optax; "adamw_hf" adds eps to
            the root before the correction, as in transformers' AdamW; "lion",
            "nadamw" and "sgd" (with momentum b1) are optax's; "adafactor" is
            ``adafactor.scale_by_adafactor``. All of them support ``weight_decay``.
        learning_rate: peak learning rate, by which ``schedule``'s factor is
            multiplied; at most ``MAX_LEARNING_RATE``.
        schedule: learning-rate schedule, see `schedule`.
        warmup_steps: number of warm-up steps, whose effect depends on the
            schedule.
        total_steps: step at which "linear" and "cosine" reach zero, unused by
            the others; None for the end of the run, see `for_run`.
        b1, b2, eps: decay rates of Adam's moments, and constant of its
            denominator; optax's default of b2 for "lion" is 0.99.
        weight_decay: decoupled weight decay, multiplied by the learning rate.
        decays_all: True to also decay norms and biases, as fairseq does; False
            to exempt them, as transformers does, see ``is_decayed``.
        clip_norm: maximum global gradient norm; None or 0 disables clipping.
        clip_threshold: for Adafactor, largest root mean square of the update of
            one layer's parameter.
        scale_parameter: True for Adafactor to multiply its step by the root
            mean square of each layer's parameter.
        decay_rate: exponent of Adafactor's second-moment decay, 1 -
            step**-decay_rate.
        min_dim_size_to_factor: smallest size of both sides of a matrix for
            which Adafactor factors the second moment.
        skip_spikes: ratio of a step's gradient norm to the mean of earlier
            norms above which the step is skipped, see ``without_spikes``; None
            to skip no steps.

    Raises:
        InputError: an unknown name or schedule, a value out of range, or a
            schedule that ends (``total_steps``) before the warm-up does.
    """

    name: Name = "adamw"
    learning_rate: Annotated[float, Range(0, MAX_LEARNING_RATE, above=True)] = (
        1e-3
    )
    schedule: Schedule = "constant"
    warmup_steps: Count = 0
    total_steps: int | None = None
    b1: Rate = 0.9
    b2: Rate = 0.999
    eps: PositiveFloat = 1e-8
    weight_decay: Weight = 0.0
    decays_all: bool = False
    clip_norm: Weight | None = 1.0
    clip_threshold: PositiveFloat = 1.0
    scale_parameter: bool = False
    decay_rate: PositiveFloat = 0.8
    min_dim_size_to_factor: Count = 128
    skip_spikes: Annotated[float, Range(1, above=True)] | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            guess = did_you_mean(self.name, NAMES)
            raise InputError(
                f'optimizer.name: "{self.name}" is not allowed; {guess}'
            )
        if self.schedule not in SCHEDULES:
            guess = did_you_mean(self.schedule, SCHEDULES)
            raise InputError(
                f'optimizer.schedule: "{self.schedule}" is not allowed; {guess}'
            )
        check_ranges(self, "optimizer")
        if (
            self.total_steps is not None
            and self.decays
            and self.total_steps <= self.warmup_steps
        ):
            raise InputError(
                f'optimizer.total_steps: schedule "{self.schedule}" needs more than the '
                f"{self.warmup_steps} warm-up steps, got {self.total_steps}"
            )

    @property
    def decays(self) -> bool:
        """True if the schedule reaches zero at ``total_steps``."""
        return self.schedule in ("linear", "cosine")

    def for_run(self, steps: int) -> "OptimizerOptions":
        """Returns the options for a run of ``steps`` steps, the default of ``total_steps``.

        A run that is shorter than its warm-up ends while the learning rate is
        still rising.
        """
        if not self.decays or self.total_steps is not None:
            return self
        return dataclasses.replace(
            self, total_steps=max(steps, self.warmup_steps + 1)
        )


def schedule(options: OptimizerOptions) -> Callable[[Array | int], Array]:
    """Returns the learning rate as a function of the number of updates so far (0 at the first).

    With w = warmup_steps, n = total_steps and s updates so far, the learning
    rate is `learning_rate` times

        t5        sqrt(w + 1) / sqrt(max(s, w) + 1): constant, then 1/sqrt, as published by LOCOST
        constant  1 after the warm-up
        linear    (n - s) / (n - w) after the warm-up, 0 after n steps
        cosine    (1 + cos(pi (s - w) / (n - w))) / 2 after the warm-up, 0 after n steps

    and the warm-up of the last three is s / w, as in transformers' schedules
    with these names. The published LOCOST fine-tuning ignores its warm-up
    setting: use `warmup_steps` 0 for it.

    Raises:
        InputError: "linear" or "cosine" without total_steps.
    """
    w, n = options.warmup_steps, options.total_steps
    if options.decays and n is None:
        raise InputError(
            f'optimizer.total_steps: schedule "{options.schedule}" needs the step at which it '
            "reaches zero; give it, or OptimizerOptions.for_run(steps)"
        )

    def after_warmup(step: Array) -> Array:
        if n is None or options.schedule == "constant":
            return jnp.float32(1.0)
        # 0 at the end of the warm-up, 1 at step n and after it.
        progress = jnp.clip((step - w) / (n - w), 0.0, 1.0)
        if options.schedule == "linear":
            return 1.0 - progress
        return 0.5 * (1.0 + jnp.cos(jnp.pi * progress))

    def learning_rate(step: Array | int) -> Array:
        step = jnp.asarray(step, jnp.float32)
        if options.schedule == "t5":
            factor = jnp.sqrt((w + 1) / (jnp.maximum(step, w) + 1))
        else:
            # Both branches are computed: max(w, 1) avoids a division by zero.
            factor = jnp.where(step < w, step / max(w, 1), after_warmup(step))
        return options.learning_rate * factor

    return learning_rate


def make_optimizer(
    options: OptimizerOptions,
    axes: ParameterAxes | None = None,
    trained: str = "",
) -> optax.GradientTransformation:
    """Returns clipping, the optimizer, weight decay and the schedule as one transformation.

    Its state contains the learning rate of the last update under the name
    "learning_rate" (`optax.tree_utils.tree_get(state, "learning_rate")`), and
    with ``skip_spikes`` the number of skipped steps under "spikes"; training
    metrics read them there.

    Args:
        options: optimizer options.
        axes: names of the parameters' axes, by which Adafactor distinguishes
            layers and matrices; None for parameters that are not stacks of
            layers.
        trained: regular expression for the paths of the trained parameters, see
            ``find_trained``; the others do not change and have no optimizer
            state. Empty trains all.

    Raises:
        InputError: schedule "linear" or "cosine" without ``total_steps``
            (``OptimizerOptions.for_run``). Also raised by ``init`` of the
            result, if no path contains a match of ``trained``.
    """
    # The chain, in order: clipping; the rule of the optimizer; weight decay;
    # minus the learning rate as a factor.
    if options.clip_norm:
        chain = [clip_by_global_norm(options.clip_norm)]
    else:
        chain = []
    if options.name == "adafactor":
        chain += _adafactor(options, axes or {})
    else:
        chain += _by_moments(options)
    # Spikes are detected outside of the chain, from gradient norms before
    # clipping.
    optimizer = optax.chain(*chain, _descend(schedule(options)))
    if options.skip_spikes is not None:
        optimizer = without_spikes(optimizer, options.skip_spikes)
    if trained:
        return _restrict(optimizer, trained)
    return optimizer


def _restrict(
    optimizer: optax.GradientTransformation, pattern: str
) -> optax.GradientTransformation:
    """Restricts ``optimizer`` to the parameters whose path contains ``pattern``."""

    def is_trained(tree: Any) -> Any:
        return find_trained(tree, pattern)

    def is_frozen(tree: Any) -> Any:
        return jax.tree.map(operator.not_, is_trained(tree))

    # The two masks are complements: trained parameters get their update, the
    # others get -0.
    # Masked parameters have no moments.
    keep = optax.stateless(lambda updates, params: _unchanging(updates))
    return optax.chain(
        optax.masked(optimizer, is_trained), optax.masked(keep, is_frozen)
    )


def find_trained(tree: Any, pattern: str) -> Any:
    """Returns a tree that is True for trained parameters, else False.

    Args:
        tree: parameter tree.
        pattern: regular expression, searched for in the paths of parameters
            ("encoder/attention/global_embeddings").

    Raises:
        InputError: no path contains a match.
    """
    flat = flax.traverse_util.flatten_dict(tree, sep="/")
    matches = {path: re.search(pattern, path) is not None for path in flat}
    if not any(matches.values()):
        names = ", ".join(sorted(matches))
        raise InputError(
            f'training.train: "{pattern}" matches no parameter; known: {names}'
        )
    return flax.traverse_util.unflatten_dict(matches, sep="/")


def _unchanging(updates: Any) -> Any:
    """Returns updates that do not change parameters; adding 0 would turn -0 into 0."""
    return jax.tree.map(lambda x: jnp.full_like(x, -0.0), updates)


def global_norm(tree: Any) -> Array:
    """Returns the Euclidean norm over all arrays of a tree, () float32."""
    return jnp.sqrt(
        sum(
            jnp.sum(jnp.square(x.astype(jnp.float32)))
            for x in jax.tree.leaves(tree)
        )
    )


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales gradients by max_norm / (norm + 1e-6) if that is below 1, as in torch."""

    def update(
        updates: Any, state: optax.EmptyState, params: Any = None
    ) -> tuple[Any, optax.EmptyState]:
        del params
        # One factor for all arrays: the direction of the gradient does not
        # change.
        scale = jnp.minimum(1.0, max_norm / (global_norm(updates) + 1e-6))
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


class SpikesState(NamedTuple):
    """The state of ``without_spikes``.

    Attributes:
        inner: state of the optimizer.
        mean_norm: mean gradient norm of earlier steps, () float32.
        count: number of steps in the mean, () int32.
        spikes: number of skipped steps, () int32.
    """

    inner: Any
    mean_norm: Array
    count: Array  # type: ignore[assignment] # hides tuple.count
    spikes: Array


def without_spikes(
    optimizer: optax.GradientTransformation, factor: float
) -> optax.GradientTransformation:
    """Returns ``optimizer`` without steps whose gradient norm is far above the mean so far.

    Such steps precede spikes of the loss; Chowdhery et al. 2022 (PaLM, section
    5.1) skip batches around them manually. Parameters and moments do not
    change. The mean decays by ``SPIKE_DECAY`` per step; a spike enters it as
    ``factor`` times the mean, so that persistently high norms are accepted
    after some steps. The first ``SPIKE_WARMUP`` steps are never skipped.

    Args:
        optimizer: optimizer for the other steps.
        factor: ratio of the norm to the mean of earlier norms above which a
            step is skipped; above 1.
    """

    def init(params: Any) -> SpikesState:
        count = jnp.zeros((), jnp.int32)
        return SpikesState(
            optimizer.init(params), jnp.zeros((), jnp.float32), count, count
        )

    def update(
        updates: Any, state: SpikesState, params: Any = None
    ) -> tuple[Any, SpikesState]:
        norm = global_norm(updates)
        highest = factor * state.mean_norm
        # If all gradients so far were zero, no step is a spike; otherwise every
        # later step would be.
        is_spike = (
            (state.count >= SPIKE_WARMUP) & (highest > 0) & (norm > highest)
        )

        def skip(updates: Any, inner: Any, params: Any) -> tuple[Any, Any]:
            del params
            return _unchanging(updates), inner

        updates, inner = jax.lax.cond(
            is_spike, skip, optimizer.update, updates, state.inner, params
        )
        count = state.count.astype(jnp.float32)
        # The first steps have equal weights in the mean.
        decay = jnp.minimum(SPIKE_DECAY, count / (count + 1))
        # A spike enters the mean capped, so that a single one hardly raises it.
        mean = decay * state.mean_norm + (1 - decay) * jnp.where(
            is_spike, highest, norm
        )
        count = optax.safe_increment(state.count)
        return updates, SpikesState(inner, mean, count, state.spikes + is_spike)

    return optax.GradientTransformation(init, update)


def scale_by_adam_hf(
    b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
    """Returns Adam with eps outside the bias correction.

    Its update is sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps).

    This is transformers' `AdamW` (4.x), which the published code falls back to;
    in the first steps its eps has 1 / sqrt(1 - b2^t) times the weight of eps in
    `optax.scale_by_adam`.
    """
    plain = optax.scale_by_adam(b1, b2, eps)

    def update(
        updates: Any, state: optax.ScaleByAdamState, params: Any = None
    ) -> tuple[Any, Any]:
        # Only the moments of optax's Adam are used, not its update.
        _, state = plain.update(updates, state, params)
        count = state.count.astype(jnp.float32)
        # 1 - b**t by expm1: in float32 the plain difference is off by 1e-5 in
        # the first steps.
        log_b1, log_b2 = (math.log(b) if b else -math.inf for b in (b1, b2))
        factor = jnp.sqrt(-jnp.expm1(count * log_b2)) / -jnp.expm1(
            count * log_b1
        )
        updates = jax.tree.map(
            lambda m, v: factor * m / (jnp.sqrt(v) + eps), state.mu, state.nu
        )
        return updates, state

    return optax.GradientTransformation(plain.init, update)


# Paths of norms and biases, including T5's position biases, as transformers.
_UNDECAYED = re.compile(r"(^|/)scale$|bias")


def is_decayed(path: str) -> bool:
    """Returns True for a parameter with weight decay by default.

    Args:
        path: path of the parameter, such as "encoder/layers/norm/scale".
    """
    return _UNDECAYED.search(path) is None


def _weight_decay(
    options: OptimizerOptions,
) -> list[optax.GradientTransformation]:
    if not options.weight_decay:
        return []

    def decay(path: Any, update: Array, param: Array) -> Array:
        if options.decays_all or is_decayed(name_of(path)):
            return update + options.weight_decay * param
        return update

    def add_decay(updates: Any, params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(decay, updates, params)

    return [optax.stateless(add_decay)]


def _by_moments(
    options: OptimizerOptions,
) -> list[optax.GradientTransformation]:
    rules = {**_OF_OPTAX, "adamw_hf": scale_by_adam_hf}
    rule = rules[options.name]
    return [rule(options.b1, options.b2, options.eps), *_weight_decay(options)]


def _adafactor(
    options: OptimizerOptions, axes: ParameterAxes
) -> list[optax.GradientTransformation]:
    """Returns the published settings: fixed learning rate (relative_step off), no first moment."""
    factored = scale_by_adafactor(
        axes,
        decay_rate=options.decay_rate,
        clip_threshold=options.clip_threshold,
        min_dim_size_to_factor=options.min_dim_size_to_factor,
    )
    chain = [factored, *_weight_decay(options)]
    if options.scale_parameter:
        chain.append(scale_by_parameter_rms(axes))
    return chain


class AverageState(NamedTuple):
    """The state of an optimizer, and the moving averages of its parameters."""

    inner: Any
    average: Any


def with_average(
    optimizer: optax.GradientTransformation, decay: float, trained: str = ""
) -> optax.GradientTransformation:
    """Keeps exponential moving averages of the parameters after each update.

    Args:
        optimizer: optimizer of the parameters, which are the same as without.
        decay: share of the old average in the new one.
        trained: pattern of the averaged parameters, see ``find_trained``; the
            others are constant. Empty averages all.
    """

    def init(params: Any) -> AverageState:
        average = params
        if trained:
            average = jax.tree.map(
                lambda is_trained, param: (
                    param if is_trained else optax.MaskedNode()
                ),
                find_trained(params, trained),
                params,
            )
        return AverageState(optimizer.init(params), average)

    def update(
        updates: Any, state: AverageState, params: Any = None
    ) -> tuple[Any, AverageState]:
        # The averages are of the parameters after this update, which optax
        # applies later.
        updates, inner = optimizer.update(updates, state.inner, params)

        def add(average: Any, param: Array, update: Array) -> Any:
            if isinstance(average, optax.MaskedNode):
                return average
            # decay * average + (1 - decay) * new parameter, with one product.
            return average + (1 - decay) * (param + update - average)

        average = jax.tree.map(
            add, state.average, params, updates, is_leaf=_is_masked
        )
        return updates, AverageState(inner, average)

    return optax.GradientTransformation(init, update)


def swap_average(params: Any, opt_state: Any) -> tuple[Any, Any]:
    """Exchanges the parameters and their averages, if the optimizer has some.

    Checkpoints contain the averages as parameters, for evaluation and use, and
    the parameters in the optimizer's state, from which training continues.
    """
    if not isinstance(opt_state, AverageState):
        return params, opt_state
    average = opt_state.average
    averaged = jax.tree.map(
        lambda new, old: old if _is_masked(new) else new,
        average,
        params,
        is_leaf=_is_masked,
    )
    stored = jax.tree.map(
        lambda new, old: new if _is_masked(new) else old,
        average,
        params,
        is_leaf=_is_masked,
    )
    return averaged, opt_state._replace(average=stored)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


class DescendState(NamedTuple):
    """The number of updates so far, and the learning rate of the last update."""

    count: Array  # type: ignore[assignment] # hides tuple.count
    learning_rate: Array


def _descend(rate: Callable[[Array], Array]) -> optax.GradientTransformation:
    """Multiplies by minus the scheduled learning rate and stores that rate."""

    def init(params: Any) -> DescendState:
        del params
        return DescendState(
            jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
        )

    def update(
        updates: Any, state: DescendState, params: Any = None
    ) -> tuple[Any, DescendState]:
        del params
        learning_rate = rate(state.count)
        updates = jax.tree.map(
            lambda u: -learning_rate.astype(u.dtype) * u, updates
        )
        return updates, DescendState(
            optax.safe_increment(state.count), learning_rate
        )

    return optax.GradientTransformation(init, update)
