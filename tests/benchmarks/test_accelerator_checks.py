"""Checks of what a device computes, made on this machine's CPU."""

import math
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="module")
def checks(scripts):
    return scripts("accelerator_checks")


def test_an_error_of_a_check_leaves_the_others(checks, monkeypatch):
    def fail(*given):
        raise ValueError("no such instruction")

    monkeypatch.setattr(checks, "loss_and_norm", lambda *given: (1.0, float("nan")))
    monkeypatch.setattr(checks, "backends_error", fail)
    monkeypatch.setattr(checks, "kernel_checks", lambda *given: iter([("kernel", fail)]))
    rows = list(checks.check_rows(("t5",)))
    assert [row["check"] for row in rows] == [
        "t5, float32",
        "state-space products beside FFT",
        "state-space kernel beside FFT",
        "kernel",
        "PyTorch",
        "t5, bfloat16",
    ]
    assert [row["check"] for row in rows if row["holds"]] == ["PyTorch"]
    assert [row.get("note") for row in rows[1:4]] == 3 * ["ValueError: no such instruction"]
    optional = [row["check"] for row in rows if row.get("optional")]
    assert optional == ["state-space kernel beside FFT", checks.PEER_CHECK]


def test_pytorch_must_use_the_device_of_jax(checks):
    assert checks._same_device(SimpleNamespace(platform="cpu"))["holds"]
    for platform in ("gpu", "tpu"):
        assert not checks._same_device(SimpleNamespace(platform=platform))["holds"]


def test_backends_of_the_state_space_operation_agree(checks):
    import jax

    assert 0 < checks.backends_error(jax.devices()[0], "matmul", "float32") < 1e-5
    assert 0 < checks.backends_error(jax.devices()[0], "fused", "bfloat16") < 2**-7


def test_gradients_that_are_no_numbers_are_found(checks, monkeypatch):
    """After values that agree."""
    import jax
    import jax.numpy as jnp

    nan = float("nan")
    assert checks.largest([0.5, 1.0]) == 1.0
    for errors in ([0.0, nan], [nan, 0.0]):
        assert not checks._error(checks.largest(errors), "float32")["holds"]

    def attend(q, k, v, mask, kernel):
        # The gradient of the root at 0 is not a number, its value is.
        return q + k + v + (jnp.sqrt(0 * v) if kernel else 0)

    assert math.isnan(checks.kernel_error(jax.devices()[0], "some kernel", attend))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["splash", "mosaic", "triton"])
def test_kernels_are_compared_with_the_reference(checks, backend, monkeypatch):
    """Interpreted here; a kernel that computes something else is found."""
    import jax

    from longsum_jax.ops.attention import fused

    cpu = jax.devices()[0]
    assert not list(checks.kernel_checks(cpu))  # CPUs have none
    names, errors = zip(*checks.kernel_checks(cpu, backend), strict=True)
    expected = ["all keys, masked", "causal", "causal, masked", "window"]
    if backend != "splash":
        expected.append("position bias, dropout")
    assert list(names) == [f"attention, {x}: {backend}" for x in expected]
    most = checks.MOST["bfloat16"]
    assert all(0 < error() < most for error in errors)
    exact = fused._attend
    monkeypatch.setattr(
        fused, "_attend", lambda q, *rest, **options: exact(1.2 * q, *rest, **options)
    )
    assert all(error() > most for error in errors)


@pytest.mark.slow
def test_losses_of_a_family_agree_with_themselves(checks):
    [float32, products, kernel, _, bfloat16] = checks.check_rows(("t5",))
    assert float32["error"] == 0.0
    assert all(row["holds"] for row in (float32, products, kernel, bfloat16))
    assert abs(bfloat16["values"][0]) > 0
