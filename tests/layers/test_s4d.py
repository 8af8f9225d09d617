from functools import partial

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.options import S4DOptions
from longsum_jax.layers.s4d import KERNELS, S4D
from longsum_jax.ops.ssm.fft import smooth_length

LAYERS = {
    "b_layer_bidir_L50": {},
    "b_layer_bidir_L33_odd": {},
    "b_layer_causal_nogate_L50": {"bidirectional": False, "gating": False},
}


def test_the_smallest_state():
    assert S4DOptions(d_state=2).d_state == 2
    for d_state in (1, 3):
        with pytest.raises(InputError, match=f"d_state is {d_state}; it must be even"):
            S4DOptions(d_state=d_state)
        with pytest.raises(InputError, match=f"d_state is {d_state}; it must be even"):
            S4D(d_model=4, d_state=d_state).init(jax.random.key(0), jnp.ones((1, 2, 4)))


def test_states_of_another_size_are_refused():
    layer = S4D(d_model=4, d_state=2)
    with pytest.raises(InputError, match="the input states have size 5, but d_model is 4"):
        layer.init(jax.random.key(0), jnp.ones((1, 2, 5)))


def golden_layer(**options):
    return S4D(d_model=16, d_state=16, **options)


def to_flax(arrays, prefix):
    """Arrays under ``prefix`` by their path in our layer: linear weights transposed, no level for
    the kernel."""
    flat = {}
    for key, value in arrays.items():
        if key.startswith(prefix):
            path = key.removeprefix(prefix).removeprefix("kernel.").replace(".weight", ".kernel")
            flat[path.replace(".", "/")] = value.T if path.endswith("kernel") else value
    return flat


def parameters(arrays):
    flat = {path: jnp.asarray(value) for path, value in to_flax(arrays, "param.").items()}
    return {"params": flax.traverse_util.unflatten_dict(flat, sep="/")}


@partial(jax.jit, static_argnums=0)
def output_and_gradients(layer, variables, u, mask, cotangent):
    """(out, gradients by path, gradient of u) of sum(out * cotangent)."""
    out, pull_back = jax.vjp(lambda variables, u: layer.apply(variables, u, mask), variables, u)
    gradients, du = pull_back(cotangent.astype(out.dtype))
    return out, flax.traverse_util.flatten_dict(gradients["params"], sep="/"), du


apply = jax.jit(lambda layer, variables, u, mask: layer.apply(variables, u, mask), static_argnums=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_golden_layers(golden, name):
    arrays = golden(name)
    layer = golden_layer(**LAYERS[name])
    u, cotangent = arrays["u"], arrays["cotangent"]
    ones = np.ones(u.shape[:2], bool)
    for case, mask in (("mask", arrays["attention_mask"].astype(bool)), ("nomask", ones)):
        out, gradients, du = output_and_gradients(layer, parameters(arrays), u, mask, cotangent)
        np.testing.assert_allclose(out, arrays[f"f64.{case}.out"], rtol=0, atol=1e-5)
        expected = to_flax(arrays, f"f64.{case}.grad.")
        assert set(gradients) == set(expected) - {"u"}
        for path, gradient in (*gradients.items(), ("u", du)):
            limit = 1e-5 * max(1.0, np.abs(expected[path]).max())
            np.testing.assert_allclose(
                gradient, expected[path], rtol=0, atol=limit, err_msg=f"{case} {path}"
            )


@pytest.mark.parametrize("name", LAYERS)
def test_golden_convolutions_before_the_gate(golden, name):
    arrays = golden(name)
    layer, mask = golden_layer(**LAYERS[name]), arrays["attention_mask"].astype(bool)

    def convolve(layer, u):
        return layer._convolve(layer.k_proj(u) * mask[..., None])

    y = jax.jit(lambda u: layer.apply(parameters(arrays), u, method=convolve))(arrays["u"])
    np.testing.assert_allclose(y, arrays["f64.mask.preglu_conv_plus_D"], rtol=0, atol=1e-5)


def test_no_mask_means_all_real(golden):
    arrays = golden("b_layer_bidir_L33_odd")
    out = jax.jit(lambda u: golden_layer().apply(parameters(arrays), u))(arrays["u"])
    np.testing.assert_allclose(out, arrays["f64.nomask.out"], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def case(golden):
    """(variables, u, mask, cotangent) of the golden layer of 50 positions."""
    arrays = golden("b_layer_bidir_L50")
    mask = arrays["attention_mask"].astype(bool)
    return parameters(arrays), arrays["u"], mask, arrays["cotangent"]


@pytest.mark.slow
def test_real_positions_do_not_depend_on_padding(case):
    variables, u, mask, _ = case
    out = np.asarray(apply(golden_layer(), variables, u, mask))
    longer = np.random.default_rng(1).normal(size=(len(u), 80, u.shape[2])).astype(np.float32) * 100
    longer[:, :50][mask] = u[mask]  # other padding, and more of it
    again = apply(golden_layer(), variables, longer, np.pad(mask, ((0, 0), (0, 30))))
    np.testing.assert_allclose(out[mask], np.asarray(again)[:, :50][mask], rtol=0, atol=1e-5)


@pytest.mark.parametrize("chunk", [16, 25, 50, 64])
def test_pieces_of_the_length_change_nothing(case, chunk):
    whole, chunked = (
        output_and_gradients(golden_layer(length_chunk=size), *case) for size in (0, chunk)
    )
    for x, y in zip(jax.tree.leaves(chunked), jax.tree.leaves(whole), strict=True):
        # Chunks sum positions in another order; the largest error is 1.8e-6 (JAX 0.12).
        np.testing.assert_allclose(x, y, rtol=0, atol=3e-6 * max(1.0, np.abs(y).max()))


def test_bfloat16_is_close_and_its_kernel_stays_float32(case):
    exact, _, exact_du = output_and_gradients(golden_layer(), *case)
    out, gradients, du = output_and_gradients(golden_layer(dtype=jnp.bfloat16), *case)
    assert out.dtype == jnp.bfloat16
    assert {g.dtype for g in gradients.values()} == {jnp.dtype("float32")}
    for value, reference in ((out, exact), (du, exact_du)):
        error = np.linalg.norm(np.asarray(value, np.float32) - reference) / np.linalg.norm(
            reference
        )
        assert error < 0.015


def initial(**options):
    layer = S4D(d_model=64, d_state=8, **options)
    variables = jax.jit(layer.init)(jax.random.key(0), jnp.zeros((1, 4, 64)))
    return meta.unbox(variables)["params"]


def test_initial_values_are_the_published_ones():
    params = initial()
    assert params["log_dt"].min() >= np.log(1e-3)
    assert params["log_dt"].max() <= np.log(1e-1)
    assert abs(params["log_dt"].mean() - np.log(1e-2)) < 0.5
    np.testing.assert_allclose(params["inv_A_real"], np.full((64, 4), np.log(0.5)), rtol=1e-6)
    np.testing.assert_allclose(params["A_imag"], np.tile(np.pi * np.arange(4), (64, 1)), rtol=1e-6)
    np.testing.assert_array_equal(params["B"], np.tile([1.0, 0.0], (64, 4, 1)))
    assert params["C"].shape == (2, 64, 4, 2)
    assert abs(np.square(params["C"]).sum(-1).mean() - 1) < 0.2
    for name in ("q_proj", "k_proj", "output_linear"):
        assert np.abs(params[name]["kernel"]).max() <= 64**-0.5
        assert np.abs(params[name]["bias"]).std() > 0.2 * 64**-0.5


def test_uniform_steps_and_dynamics_of_each_direction():
    params = initial(dt_init="uniform", dt_min=0.0, dt_max=1.0, shared_dynamics=False)
    assert params["log_dt"].shape == (2, 64)
    assert params["A_imag"].shape == params["inv_A_real"].shape == (2, 64, 4)
    assert params["B"].shape == (2, 64, 4, 2)
    dt = np.exp(params["log_dt"])
    assert 0 <= dt.min() < 0.1 < 0.9 < dt.max() <= 1


def test_input_vectors_are_drawn_as_output_vectors():
    """Appendix E of the LOCOST paper: b and c are standard complex normal."""
    params = initial(b_init="normal")
    for name in ("B", "C"):
        assert abs(np.square(params[name]).sum(-1).mean() - 1) < 0.2
        assert abs(params[name].mean()) < 0.1
    assert not np.array_equal(params["B"], params["C"][0])
    unchanged = initial()
    for name in params.keys() - {"B"}:
        jax.tree.map(np.testing.assert_array_equal, params[name], unchanged[name])


def test_equal_dynamics_of_each_direction_are_shared_dynamics(case):
    variables, u, mask, _ = case
    params = dict(variables["params"])
    for name in ("log_dt", "inv_A_real", "A_imag", "B"):
        params[name] = np.stack([params[name]] * 2)
    separate = apply(golden_layer(shared_dynamics=False), {"params": params}, u, mask)
    shared = apply(golden_layer(), variables, u, mask)
    np.testing.assert_allclose(separate, shared, rtol=0, atol=1e-5)


def test_discretization_of_the_paper(case):
    """Equation 2 has no (w - 1) / A: it equals the published layer with B multiplied by A / (w -
    1)."""
    variables, u, mask, _ = case
    params = dict(variables["params"])
    A = -np.exp(np.float64(params["inv_A_real"])) + 1j * np.float64(params["A_imag"])
    dt_A = np.exp(np.float64(params["log_dt"]))[:, None] * A
    B = (params["B"][..., 0] + 1j * params["B"][..., 1]) * A / np.expm1(dt_A)
    undone = {"params": params | {"B": np.stack([B.real, B.imag], -1).astype(np.float32)}}
    paper = apply(golden_layer(discretization="none"), variables, u, mask)
    published = apply(golden_layer(), undone, u, mask)
    np.testing.assert_allclose(paper, published, rtol=0, atol=1e-5 * np.abs(paper).max())


@pytest.mark.parametrize("options", [{}, {"discretization": "none"}])
def test_kept_kernels_change_nothing(case, options):
    variables, u, mask, cotangent = case
    layer = golden_layer(**options)
    _, retained = jax.jit(partial(layer.apply, mutable=[KERNELS]))(variables, u)
    assert retained[KERNELS]["spectrum"].shape == (16, smooth_length(u.shape[1]) // 2 + 1)
    # Kernels are read, not made: made of these parameters they would be NaN.
    broken = variables["params"] | {
        name: np.float32(np.nan) * variables["params"][name] for name in ("log_dt", "A_imag", "C")
    }

    @jax.jit
    def output_and_gradient(variables, u):
        out, pull_back = jax.vjp(lambda u: layer.apply(variables, u, mask), u)
        return out, *pull_back(cotangent)

    exact, result = (
        output_and_gradient(variables, u),
        output_and_gradient({"params": broken, **retained}, u),
    )
    for x, y in zip(result, exact, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-6 * np.abs(y).max())


def test_kernels_are_kept_for_the_fft_alone(case):
    variables, u, *_ = case
    assert KERNELS not in jax.eval_shape(golden_layer().init, jax.random.key(0), u)
    _, retained = jax.eval_shape(
        partial(golden_layer(backend="matmul").apply, mutable=[KERNELS]), variables, u
    )
    assert not retained
