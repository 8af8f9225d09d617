"""Adafactor: every layer's matrix alone, whatever arrays hold it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family
from longsum_jax.training.adafactor import AdafactorState, scale_by_adafactor
from longsum_jax.training.checkpointing import TrainingCheckpoints
from longsum_jax.training.mesh import MESH_AXES, PRESETS
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state, plan_state

MESH = AbstractMesh((1, 4, 1, 1), MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))
LAYERS, STEPS = 3, 6
AXES = {
    "layers/q/kernel": ("layers", "embed", "heads", "kv"),
    "layers/q/bias": ("layers", "heads", "kv"),
    "layers/o/kernel": ("layers", "heads", "kv", "embed"),
    "layers/scale": ("layers", "embed"),
    "layers/C": ("layers", "directions", "channels", "modes"),
    "shared": ("vocab", "embed"),
    "bias": ("embed",),
}
SHAPES = {
    "layers/q/kernel": (LAYERS, 6, 2, 2),
    "layers/q/bias": (LAYERS, 2, 2),
    "layers/o/kernel": (LAYERS, 2, 2, 6),
    "layers/scale": (LAYERS, 6),
    "layers/C": (LAYERS, 2, 4, 5),
    "shared": (7, 6),
    "bias": (6,),
}


def nested(flat):
    tree = {}
    for path, value in flat.items():
        *parents, last = path.split("/")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = value
    return tree


def draws():
    """Parameters, and gradients whose sizes differ from layer to layer and step to step."""
    rng = np.random.default_rng(0)
    params = {path: rng.normal(size=shape) for path, shape in SHAPES.items()}
    gradients = []
    for _ in range(STEPS):
        sizes = {path: 10.0 ** rng.integers(-6, 2, shape[:1]) for path, shape in SHAPES.items()}
        step = {path: rng.normal(size=shape) for path, shape in SHAPES.items()}
        if rng.random() < 0.5:  # sudden growth, which the update's clipping is for
            sizes = {path: 100 * size for path, size in sizes.items()}
        for path, size in sizes.items():
            step[path] *= size.reshape(-1, *(1,) * (step[path].ndim - 1))
        gradients.append(step)
    return params, gradients


def run(options, params, gradients):
    """The parameters after every step, by path."""
    optimizer = make_optimizer(options, AXES)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), nested(params))
    state, values = jax.jit(optimizer.init)(params), []
    update = jax.jit(optimizer.update)
    for gradient in gradients:
        gradient = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), nested(gradient))
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        flat, _ = jax.tree_util.tree_flatten_with_path(params)
        values.append(
            {jax.tree_util.keystr(p, simple=True, separator="/"): np.asarray(x) for p, x in flat}
        )
    return values


def single_layers(path, x):
    """The layers of a parameter as torch would hold them: heads joined, vectors and matrices."""
    layers = list(x) if AXES[path][0] == "layers" else [x]
    joined = {
        "layers/q/kernel": lambda y: y.reshape(6, 4),
        "layers/q/bias": lambda y: y.reshape(4),
        "layers/o/kernel": lambda y: y.reshape(4, 6),
    }
    return [joined.get(path, lambda y: y)(layer) for layer in layers]


def twin(params, gradients, lr, decay, scale_parameter):
    """Adafactor of one vector, matrix or stack of matrices (Shazeer & Stern, algorithms 4 and 5),
    in float64; the parameter after every step."""
    rows = columns = full = 0.0
    values = []
    for t, g in enumerate(gradients, 1):
        beta = 1 - t**-0.8
        square = g * g + 1e-30
        if g.ndim > 1:
            rows = beta * rows + (1 - beta) * square.mean(-1)
            columns = beta * columns + (1 - beta) * square.mean(-2)
            mean = rows.mean(-1)[..., None, None]
            update = g / np.sqrt(rows[..., :, None] * columns[..., None, :] / mean)
        else:
            full = beta * full + (1 - beta) * square
            update = g / np.sqrt(full)
        update = update / max(1.0, np.sqrt((update**2).mean()))
        rate = lr * (max(1e-3, np.sqrt((params**2).mean())) if scale_parameter else 1.0)
        params = params - rate * (update + decay * params)
        values.append(params)
    return values


@pytest.mark.parametrize("scale_parameter", [False, True])
def test_every_layers_matrix_is_alone(scale_parameter):
    params, gradients = draws()
    options = OptimizerOptions(
        "adafactor",
        0.01,
        clip_norm=None,
        min_dim_size_to_factor=2,
        weight_decay=0.05,
        decays_all=True,
        scale_parameter=scale_parameter,
    )
    result = run(options, params, gradients)
    for path in SHAPES:
        layers = single_layers(path, params[path])
        of_layers = zip(*(single_layers(path, g[path]) for g in gradients), strict=True)
        for index, (layer, steps) in enumerate(zip(layers, of_layers, strict=True)):
            expected = twin(layer, steps, 0.01, 0.05, scale_parameter)
            for t in range(STEPS):
                value = single_layers(path, result[t][path])[index]
                np.testing.assert_allclose(value, expected[t], atol=1e-5, err_msg=path)


def test_every_layers_matrix_is_as_optax_has_it():
    """Optax knows no layers and factors two axes: it gets every matrix as an array of its own."""
    params, gradients = draws()
    options = OptimizerOptions(
        "adafactor", 0.01, clip_norm=None, min_dim_size_to_factor=2, clip_threshold=0.7
    )
    result = run(options, params, gradients)
    optimizer = optax.adafactor(
        0.01,
        min_dim_size_to_factor=2,
        clipping_threshold=0.7,
        multiply_by_parameter_scale=False,
    )
    update = jax.jit(optimizer.update)
    for path in ("layers/q/kernel", "layers/o/kernel", "layers/scale", "shared"):
        layers = [jnp.asarray(x, jnp.float32) for x in single_layers(path, params[path])]
        state = jax.jit(optimizer.init)(layers)
        for t, gradient in enumerate(gradients):
            steps = [jnp.asarray(g, jnp.float32) for g in single_layers(path, gradient[path])]
            updates, state = update(steps, state, layers)
            layers = optax.apply_updates(layers, updates)
            value = single_layers(path, result[t][path])
            for ours, theirs in zip(value, layers, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=2e-6, err_msg=path)


def test_a_large_gradient_leaves_the_other_layers_updates_as_they_are():
    axes = {"kernel": ("layers", "embed", "heads", "kv")}
    optimizer = scale_by_adafactor(axes)
    gradient = np.random.default_rng(0).normal(size=(4, 256, 4, 64)).astype(np.float32)
    gradients = {"kernel": jnp.asarray(gradient)}
    large = {"kernel": gradients["kernel"].at[2].multiply(50.0)}
    update = jax.jit(optimizer.update)
    plain, state = update(gradients, jax.jit(optimizer.init)(gradients))
    after, _ = update(large, state)
    rms = np.sqrt(np.square(after["kernel"]).mean((1, 2, 3)))
    np.testing.assert_allclose(rms, 1.0, atol=0.01)
    expected, _ = update(gradients, state)
    others = [0, 1, 3]
    np.testing.assert_array_equal(after["kernel"][others,], expected["kernel"][others,])
    np.testing.assert_allclose(np.sqrt(np.square(plain["kernel"]).mean((1, 2, 3))), 1.0, atol=0.01)


def test_the_moments_of_bart_large_are_as_small_as_published():
    """Every matrix costs a row and a column, every vector itself."""
    family = get_family("bart")
    config = family.presets["large"]
    axes = family.parameter_axes(config)
    params = nested(
        {
            path: jax.ShapeDtypeStruct(shape, jnp.float32)
            for path, shape in family.parameter_shapes(config).items()
        }
    )
    optimizer = make_optimizer(OptimizerOptions("adafactor"), axes)
    state = jax.eval_shape(optimizer.init, params)
    floats = sum(leaf.size for leaf in jax.tree.leaves(state) if leaf.dtype == jnp.float32)

    width, ffn, vocab, positions = 1024, 4096, 50265, 1026
    attention = 4 * (width + width) + 4 * width  # four matrices, four biases
    feed_forward = 2 * (width + ffn) + width + ffn
    norm = 2 * width
    encoder = 12 * (attention + feed_forward + 2 * norm)
    decoder = 12 * (2 * attention + feed_forward + 3 * norm)
    embeddings = vocab + width + 2 * (positions + width) + 2 * norm + vocab  # bias of the logits
    assert floats == encoder + decoder + embeddings + 1  # the learning rate
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 406_341_721


def boxed(shape, *names):
    return nn.with_logical_partitioning(nn.initializers.ones, names)(None, shape)


def two_layers(rng):
    del rng
    kernel = boxed((2, 256, 4, 64), "layers", "embed", "heads", "kv")
    return {"layers": {"kernel": kernel, "scale": boxed((2, 256), "layers", "embed")}}


TWO_LAYERS = {
    "layers/kernel": ("layers", "embed", "heads", "kv"),
    "layers/scale": ("layers", "embed"),
}


def test_moments_lie_on_the_mesh():
    """Those of vectors, like their parameter, and rows and columns are whole on every device."""
    optimizer = make_optimizer(OptimizerOptions("adafactor"), TWO_LAYERS)
    abstract, _ = plan_state(two_layers, optimizer, MESH, PRESETS["fsdp"], jax.random.key(0))
    state = next(part for part in abstract.opt_state if isinstance(part, AdafactorState))
    assert abstract.params["layers"]["kernel"].sharding.spec == P(None, "fsdp")
    assert abstract.params["layers"]["scale"].sharding.spec == P()
    assert state.full["layers"]["scale"].sharding.spec == P()
    rows, columns = state.rows["layers"]["kernel"], state.columns["layers"]["kernel"]
    assert (rows.shape, rows.sharding.spec) == ((2, 256), P())
    assert (columns.shape, columns.sharding.spec) == ((2, 4, 64), P())
    assert jax.tree.leaves((state.full["layers"]["kernel"], state.rows["layers"]["scale"])) == []


def test_moments_of_stacked_layers_of_older_versions_are_refused(tmp_path):
    params = nn.meta.unbox(two_layers(None))
    older = optax.chain(optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0))
    checkpoints = TrainingCheckpoints(tmp_path / "run" / "checkpoints")
    checkpoints.save(1, params, init_state(params, older).without_params(), {}, None)
    checkpoints.wait()
    newer = make_optimizer(OptimizerOptions("adafactor", clip_norm=None), TWO_LAYERS)
    target = init_state(params, newer)
    message = (
        "step 1: the arrays of the training state do not fit this model: missing .*; extra .*; "
        "another optimizer or an older version of this library wrote it, start a new run from its "
        f"parameters with init_from={tmp_path / 'run'}$"
    )
    with pytest.raises(InputError, match=message):
        checkpoints.restore(params, target.without_params())
    checkpoints.close()
