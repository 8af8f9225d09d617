import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.errors import InputError
from longsum_jax.layers.partitioning import is_on_one_cpu
from longsum_jax.ops.attention.blockwise import max_score_bytes
from longsum_jax.ops.platform import require_devices, target_platform
from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import DiagonalSSM


def mesh_of(device, size=1):
    return AbstractMesh((size,), ("batch",), axis_types=(AxisType.Auto,), abstract_device=device)


TPU = AbstractDevice("TPU v5 lite", 1, "tpu")
GPU = AbstractDevice("NVIDIA H200", None, "cuda")


def test_platform_is_that_of_the_mesh_then_of_the_default_device():
    assert target_platform() == jax.default_backend()
    with jax.default_device("tpu"):
        assert target_platform() == "tpu"
        with use_abstract_mesh(mesh_of(GPU)):
            assert target_platform() == "gpu"
    with jax.default_device(jax.devices("cpu")[0]):
        assert target_platform() == "cpu"
    with jax.set_mesh(jax.make_mesh((1,), ("batch",), axis_types=(AxisType.Auto,))):
        assert target_platform() == jax.devices()[0].platform


def test_a_program_that_was_traced_for_one_platform_is_traced_anew_for_another():
    traced = []
    function = jax.jit(lambda x: traced.append(target_platform()) or 2 * x)
    x = jax.ShapeDtypeStruct((4,), jnp.float32)
    for mesh in (mesh_of(TPU), mesh_of(GPU), mesh_of(TPU)):
        with use_abstract_mesh(mesh):
            function.trace(x)
    with jax.default_device("tpu"):
        function.trace(x)
    function.trace(x)
    assert traced == ["tpu", "gpu", "tpu", jax.default_backend()]


@pytest.mark.parametrize(("platform", "num_ffts"), [("tpu", 0), ("cpu", 3), ("gpu", 3)])
def test_state_space_layers_choose_for_the_devices_they_are_made_for(platform, num_ffts):
    channels, modes, length = 2, 4, 32
    ones = np.ones((2, channels, modes), np.float32)
    ssm = DiagonalSSM(ones[..., 0], -ones, ones, ones[..., None] * [1, 0], ones[..., None] * [1, 0])
    x = jax.ShapeDtypeStruct((1, length, channels), jnp.float32)
    with jax.default_device(platform):
        traced = jax.jit(lambda x: ssm_convolution(x, ssm, np.ones(2, np.float32))).trace(x)
    assert str(traced.jaxpr).count("= fft[") == num_ffts


def test_choices_of_cpus_are_left_to_cpus():
    assert is_on_one_cpu()
    assert max_score_bytes() == 2**23
    with jax.default_device("gpu"):
        assert not is_on_one_cpu()
        assert max_score_bytes() == 2**28
    with use_abstract_mesh(mesh_of(AbstractDevice("cpu", None, "cpu"), 2)):
        assert not is_on_one_cpu()
        assert max_score_bytes() == 2**23


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("Unable to initialize backend 'tpu': no TPU\nmore"), "Unable to initialize"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_devices_that_do_not_start_are_one_sentence(error, reason, monkeypatch):
    def fail():
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(InputError, match=rf"^JAX_PLATFORMS=tpu: .*\({reason}[^\n]*; unset"):
        require_devices()
