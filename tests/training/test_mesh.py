"""Resolution of logical names; what needs several devices is in test_resume.py."""

import ast
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.training import mesh
from longsum_jax.training.mesh import (
    MESH_AXES,
    PRESETS,
    MeshJit,
    MeshOptions,
    activate,
    check_batch_size,
    create_sharded,
    make_mesh,
    place,
    plan_layout,
    platform_of,
    sharding_table,
    slot_shardings,
)

AXES = (AxisType.Auto,) * len(MESH_AXES)
MESH = AbstractMesh((2, 4, 2, 1), MESH_AXES, axis_types=AXES)  # shapes only, no devices needed
LONG = AbstractMesh((2, 4, 1, 2), MESH_AXES, axis_types=AXES)


@pytest.mark.parametrize(
    ("preset", "names", "shape", "spec"),
    [
        ("replicated", ("vocab", "embed"), (32, 16), P()),
        ("replicated", ("batch", "length"), (32, 16), P("batch")),
        ("fsdp", ("vocab", "embed"), (32, 16), P(None, "fsdp")),
        ("fsdp", ("batch", "length", "act_embed"), (32, 7, 16), P(("batch", "fsdp"))),
        ("fsdp", ("layers", "embed"), (12, 16), P()),
        ("fsdp+tensor", ("vocab", "embed"), (32, 16), P("tensor", "fsdp")),
        ("fsdp+tensor", ("layers", "mlp"), (12, 16), P(None, "tensor")),
        ("fsdp+tensor", ("embed", "heads", "kv"), (16, 6, 5), P("fsdp", "tensor")),
        ("fsdp+tensor", ("layers", "channels", "modes"), (12, 16, 64), P(None, "tensor")),
        ("fsdp+tensor", ("buckets", None), (32, 16), P()),
        ("fsdp+sequence", ("vocab", "embed"), (32, 16), P(None, "fsdp")),
        (
            "fsdp+sequence",
            ("batch", "length", "act_embed"),
            (32, 8, 16),
            P(("batch", "fsdp"), "sequence"),
        ),
    ],
)
def test_place_follows_the_preset(preset, names, shape, spec):
    placement = place(names, shape, LONG if preset == "fsdp+sequence" else MESH, PRESETS[preset])
    assert placement.sharding.spec == spec
    assert placement.note == ""


def test_place_leaves_whole_what_does_not_divide_and_says_so():
    placement = place(("embed", "mlp"), (18, 16), MESH, PRESETS["fsdp+tensor"])
    assert placement.sharding.spec == P(None, "tensor")
    assert placement.note == "embed 18 whole: not a multiple of 4"


def test_place_gives_a_mesh_axis_to_the_first_dimension_only():
    placement = place(("heads", "mlp"), (4, 16), MESH, PRESETS["fsdp+tensor"])
    assert placement.sharding.spec == P("tensor")
    assert placement.note == "mlp 16 whole: tensor taken"


def toy_init(rng):
    kernel = nn.with_logical_partitioning(nn.initializers.normal(), ("embed", "mlp"))(rng, (8, 6))
    return {"dense": {"kernel": kernel, "bias": jnp.zeros(6)}}


def test_layout_and_table():
    layout = plan_layout(toy_init, MESH, PRESETS["fsdp+tensor"], jax.random.key(0))
    header, bias, kernel, totals = sharding_table(layout).splitlines()
    assert header.split() == ["parameter", "shape", "sharding", "bytes/device"]
    assert bias.split() == ["dense/bias", "(6,)", "()", "24"]
    assert kernel.split() == ["dense/kernel", "(8,", "6)", "(fsdp,", "tensor)", "24"]
    assert totals == "54 parameters, 216 bytes, 48 bytes on each device"


def test_table_repeats_the_remarks():
    rules = {"embed": ("fsdp",), "mlp": ("fsdp",)}
    layout = plan_layout(toy_init, MESH, rules, jax.random.key(0))
    assert "mlp 6 whole: fsdp taken" in sharding_table(layout)


def test_optimizer_slots_lie_like_their_parameters():
    layout = plan_layout(toy_init, MESH, PRESETS["fsdp"], jax.random.key(0))
    shape = jax.ShapeDtypeStruct
    slots = {
        "mu": {"dense": {"kernel": shape((8, 6), jnp.float32), "bias": shape((6,), jnp.float32)}},
        "rows": {"dense": {"kernel": shape((8,), jnp.float32), "bias": shape((1,), jnp.float32)}},
        "count": shape((), jnp.int32),
    }
    specs = jax.tree.map(
        lambda s: s.spec, slot_shardings(slots, layout.shapes, layout.shardings, MESH)
    )
    assert specs["mu"]["dense"] == {"kernel": P("fsdp"), "bias": P()}
    assert specs["rows"]["dense"] == {"kernel": P(), "bias": P()}
    assert specs["count"] == P()


def test_create_sharded_unboxes_and_keeps_the_values():
    key = jax.random.key(5)
    layout = plan_layout(toy_init, make_mesh(MeshOptions()), PRESETS["fsdp"], key)
    params = create_sharded(toy_init, layout.shardings, key)
    expected = nn.meta.unbox(toy_init(jax.random.key(5)))
    np.testing.assert_allclose(params["dense"]["kernel"], expected["dense"]["kernel"], rtol=1e-6)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda s: s.shape, layout.shapes)


def test_a_device_that_is_listed_twice_is_named():
    device = jax.devices()[0]
    with pytest.raises(InputError, match=r"mesh: device .* is listed twice"):
        make_mesh(MeshOptions(), [device, device])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"preset": "fdsp"}, 'did you mean "fsdp"'),
        ({"batch": 0}, "mesh.batch: 0 devices"),
        ({"fsdp": 2}, 'mesh.fsdp: 2, but preset "replicated"'),
        ({"preset": "fsdp", "tensor": 2}, 'mesh.tensor: 2, but preset "fsdp"'),
    ],
)
def test_bad_mesh_options_are_named(values, message):
    with pytest.raises(InputError, match=message):
        MeshOptions(**values)


@pytest.mark.parametrize(
    ("rows", "devices", "accumulation", "message"),
    [
        (256, 256, 8, r"2048, or training.accumulation=1, or batch x fsdp = 32 with the other"),
        (24, 4, 4, r"16, or training.accumulation=2, or batch x fsdp = 2 "),
        (4, 1, 3, r"3, or training.accumulation=1$"),
    ],
)
def test_rows_that_do_not_divide(rows, devices, accumulation, message):
    mesh = AbstractMesh((devices, 1), ("batch", "fsdp"), axis_types=(AxisType.Auto,) * 2)
    with pytest.raises(InputError, match=f"give a multiple of {message}"):
        check_batch_size(rows, mesh, accumulation)


PACKAGE = Path(longsum_jax.__file__).parent
# Programs that need no options: parameters are created, converted or merged without products of
# rows; the others run on one device, or inside another program.
WITHOUT_OPTIONS = {
    "analysis/kernels.py": "one device",
    "checkpoints/lora.py": "matrices of LoRA are drawn, and merged into kernels",
    "experiment/warm_start.py": "parameters are drawn",
    "inference/decoder_storage.py": "one CPU",
    "inference/kernel_cache.py": "one device",
    "models/family.py": "parameters are drawn",
    "ops/attention/mosaic.py": "inside a program",
    "ops/attention/triton.py": "inside a program",
    "ops/ssm/chunked.py": "inside a program",
    "ops/ssm/fused.py": "inside a program",
    "training/gradients.py": "inside the step",
    "training/mesh.py": "parameters are drawn; the options themselves",
    "training/state.py": "the optimizer's state is created",
    "training/step.py": "one device",
}


def test_a_function_has_the_options_of_the_active_mesh(monkeypatch):
    """XLA refuses the option, which shows that it got it."""
    monkeypatch.setitem(mesh._COMPILER_OPTIONS, "cpu", {"no_such_option": True})
    double = MeshJit(lambda x, times: x * times, static_argnames="times")
    x = jnp.ones(3)
    assert double(x, times=2).tolist() == [2, 2, 2]
    with activate(make_mesh(MeshOptions()), PRESETS["replicated"]):
        assert double.eval_shape(x, times=2).shape == (3,)
        for run in (double, lambda *x, **times: double.lower(*x, **times).compile()):
            with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
                run(x, times=2)
    assert double(x, times=2).tolist() == [2, 2, 2]
    assert platform_of(jax.sharding.get_abstract_mesh()) is None


def test_programs_of_meshes_are_compiled_with_options():
    """A call of jax.jit elsewhere has none: use MeshJit, or say here why it needs none."""
    calls = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("jax.jit", "jax.pmap")
    }
    assert calls == set(WITHOUT_OPTIONS)
