import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import longsum_jax
from longsum_jax.training import mesh_programs
from longsum_jax.training.mesh import PRESETS, MeshOptions, activate, make_mesh
from longsum_jax.training.mesh_programs import MeshJit, platform_of

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
    "ops/ssm/fused.py": "inside a program",
    "training/gradients.py": "inside the step",
    "training/mesh.py": "parameters are drawn",
    "training/mesh_programs.py": "the options themselves",
    "training/state.py": "the optimizer's state is created",
    "training/step.py": "one device",
}


def on_mesh(devices=None):
    return activate(make_mesh(MeshOptions(), devices), PRESETS["replicated"])


def test_a_function_has_the_options_of_the_active_mesh(monkeypatch):
    """XLA refuses the option, which shows that it got it."""
    monkeypatch.setitem(mesh_programs._OPTIONS, "cpu", {"no_such_option": True})
    double = MeshJit(lambda x, times: x * times, static_argnames="times")
    x = jnp.ones(3)
    assert double(x, times=2).tolist() == [2, 2, 2]
    with on_mesh():
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
