"""--debug_nans: the first step that is not finite ends the run and names its tensor."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longsum_jax.training.loss import LossOutput, SegmentedLoss
from longsum_jax.training.reporter import TrainingDiverged

BAD_STEP = 3


class Batches:
    """Batches of ones, with another value in one row of the third."""

    def __init__(self, value=1.0, row=0):
        self._value, self._row, self._step = value, row, 0

    def __next__(self):
        self._step += 1
        x = np.ones((4, 2), np.float32)
        if self._step == BAD_STEP:
            x[self._row] = self._value
        return {"x": x}

    def state(self):
        return {"position": self._step}

    def restore(self, state):
        self._step = state["position"]


class Squares(nn.Module):
    """Squares its input in each of three layers, which a scan runs."""

    @nn.compact
    def __call__(self, x):
        options = {"variable_axes": {"params": 0}, "split_rngs": {"params": False}, "length": 3}
        options["check_constancy_invariants"] = False  # as the library's stacks
        return nn.scan(Layer, **options)(name="layers")(x, None)[0]


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        weight = self.param("weight", nn.initializers.ones, (2,))
        return weight * x * x, None


def of_module(params, batch, rng):
    return LossOutput(Squares().apply({"params": params}, batch["x"]).sum(), jnp.float32(4))


def of_root(params, batch, rng):
    """Is finite at 0, and its derivative is not."""
    return LossOutput(
        jnp.sqrt(jnp.abs(params["layers"]["weight"][0] * batch["x"])).sum(), jnp.float32(4)
    )


def of_segments(params, batch, rng, memory):
    out = of_module(params, batch, rng)
    return out, memory + out.loss_sum


SEGMENTED = SegmentedLoss(
    of_segments,
    lambda params, batch: jnp.zeros(()),
    lambda batch: jnp.int32(2),
)


def init(rng):
    return {"layers": {"weight": jnp.ones((3, 2))}}


def train(toy, workdir, loss_fn, batches, **options):
    options = {"debug_nans": True, "optimizer": optax.sgd(1e-3)} | options
    return toy.toy_fit(workdir, loss_fn=loss_fn, init=init, batches=batches, steps=5, **options)


CASES = {
    "batch": (of_module, Batches(np.nan), {}, "x of the batch"),
    # (1e10)^2^2 is within float32, its square is not.
    "layer": (of_module, Batches(1e10), {}, r"the output of layers \(call 1\)"),
    "gradient": (of_root, Batches(0.0), {}, "layers/weight of the gradient"),
    "update": (
        of_module,
        Batches(1e4),
        {"optimizer": optax.sgd(3e38)},
        "layers/weight of the parameters after the update",
    ),
    "micro-batch": (
        of_module,
        Batches(1e10, row=1),
        {"accumulation": 2},
        r"the output of layers \(call 1\) \(micro-batch 1\)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_tensor_is_named(toy, tmp_path, case):
    loss_fn, batches, options, name = CASES[case]
    step = 1 if case == "update" else BAD_STEP
    said = f"^step {step}: the first tensor that is not finite is {name}; the last checkpoint is"
    with pytest.raises(TrainingDiverged, match=said):
        train(toy, tmp_path, loss_fn, batches, **options)
    saved = [int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit()]
    assert saved == ([] if step == 1 else [BAD_STEP - 1])


def test_a_batch_without_labels_is_skipped(toy, tmp_path):
    def of_labels(params, batch, rng):
        out = of_module(params, batch, rng)
        return out._replace(weight=jnp.where(batch["x"][0, 0] == 0, 0.0, out.weight))

    train(toy, tmp_path, of_labels, Batches(0.0))
    assert (tmp_path / "checkpoints/5").is_dir()


def test_layers_of_segments_are_named(toy, tmp_path):
    class Segments(Batches):
        def __next__(self):
            return {"x": np.tile(super().__next__()["x"][:, None], (1, 2, 1))}

    with pytest.raises(TrainingDiverged, match=r"step 3: .* the output of layers \(call 1\);"):
        train(toy, tmp_path, SEGMENTED, Segments(1e10))


def test_parameters_that_a_run_starts_from_are_named(toy, tmp_path):
    start = {"layers": {"weight": np.array([[1, 1], [1, np.inf], [1, 1]], np.float32)}}
    with pytest.raises(TrainingDiverged, match=r"step 1: .* layers/weight of the parameters;"):
        train(toy, tmp_path, of_module, Batches(), initial_params=start)


@pytest.mark.slow
def test_a_finite_run_is_not_changed(toy, tmp_path):
    runs = [
        toy.toy_fit(tmp_path / name, dropout=0.2, debug_nans=name == "watched")
        for name in ("plain", "watched")
    ]
    assert toy.losses(tmp_path / "plain") == toy.losses(tmp_path / "watched")
    jax.tree.map(np.testing.assert_array_equal, *(run.state.params for run in runs))
