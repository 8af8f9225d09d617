"""The first minutes on a device: checks, resuming, and flags that the other scripts have."""

import json
import sys

import pytest


@pytest.fixture(scope="module")
def accelerator(scripts):
    return scripts("accelerator")


def test_cases_name_flags_that_their_scripts_have(accelerator):
    result = list(accelerator.cases("tiny", (1024, 4096)))
    assert len({case.name for case in result}) == len(result) > 10
    for case in result:
        text = (accelerator.HERE / case.script).read_text()
        text += (accelerator.HERE / "sweep.py").read_text()
        for flag in case.flags:
            assert f'"{flag.split("=")[0]}"' in text, case


def started(accelerator, monkeypatch, out, *flags):
    monkeypatch.setattr(sys, "argv", ["accelerator.py", f"--out={out}", *flags])
    accelerator.main()
    return json.loads(out.read_text())["rows"]


def test_checks_come_first_and_a_report_is_continued(accelerator, monkeypatch, tmp_path, capsys):
    out, measured, checked = tmp_path / "report.json", [], []
    checks = [{"check": "t5", "error": 0.0, "holds": True}]
    monkeypatch.setattr(accelerator, "check_rows", lambda families: iter(checks))

    def check(families, out):  # in this process, where check_rows is the one above
        checked.append(families)
        accelerator.write_checks(families, out)
        return 0

    def measure(case, seconds):
        measured.append(case.name)
        return [{"case": case.name, **({"note": "no time"} if len(measured) == 2 else {})}]

    monkeypatch.setattr(accelerator, "check", check)
    monkeypatch.setattr(accelerator, "measure", measure)
    first = started(accelerator, monkeypatch, out)
    assert [row.get("check") for row in first[:3]] == ["t5", "all of them", None]
    machine = json.loads(out.read_text())["machine"]
    names = list(measured)
    measured.clear()
    again = started(accelerator, monkeypatch, out)
    assert checked == [",".join(accelerator.FAMILIES)]  # not checked again
    assert measured == names[1:2]  # the one that had no time
    assert len(again) == len(first)
    assert json.loads(out.read_text())["machine"] == machine  # with the devices that were checked


def test_checks_that_were_stopped_begin_again(accelerator, monkeypatch, tmp_path):
    out, checked = tmp_path / "report.json", []
    out.write_text(json.dumps({"rows": [{"check": "t5", "error": 0.0, "holds": True}]}))
    monkeypatch.setattr(accelerator, "check", lambda *given: checked.append(given) or 1)
    with pytest.raises(SystemExit):
        started(accelerator, monkeypatch, out)
    assert checked


def test_nothing_is_measured_on_a_device_that_computes_wrongly(accelerator, monkeypatch, tmp_path):
    wrong = [{"check": "t5", "error": 0.5, "holds": False}]
    monkeypatch.setattr(accelerator, "check_rows", lambda families: iter(wrong))
    monkeypatch.setattr(accelerator, "measure", None)
    out = tmp_path / "report.json"
    with pytest.raises(SystemExit, match="something else than this machine's CPU"):
        started(accelerator, monkeypatch, out, "--only_checks")
    monkeypatch.setattr(accelerator, "check", lambda *given: 1)
    with pytest.raises(SystemExit):
        started(accelerator, monkeypatch, out)


def test_backends_of_the_state_space_operation_agree(accelerator):
    import jax

    assert 0 < accelerator.backends_error(jax.devices()[0]) < 1e-5
    assert 0 < accelerator.backends_error(jax.devices()[0], "fused", "bfloat16") < 2**-7


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["splash", "triton"])
def test_kernels_are_compared_with_the_reference(accelerator, backend, monkeypatch):
    """Interpreted here; a kernel that computes something else is found."""
    import jax

    from longsum_jax.ops.attention import fused

    cpu = jax.devices()[0]
    assert not list(accelerator.kernel_rows(cpu))  # CPUs have none
    rows = list(accelerator.kernel_rows(cpu, backend))
    expected = ["all keys, masked", "causal", "causal, masked", "window"]
    if backend == "triton":
        expected.append("position bias, dropout")
    assert [row["check"] for row in rows] == [f"attention, {x}: {backend}" for x in expected]
    assert all(row["holds"] and 0 < row["error"] < 0.02 for row in rows)
    exact = fused._attend
    monkeypatch.setattr(
        fused, "_attend", lambda q, *rest, **options: exact(1.2 * q, *rest, **options)
    )
    assert not any(row["holds"] for row in accelerator.kernel_rows(cpu, backend))


@pytest.mark.slow
def test_losses_of_a_family_agree_with_themselves(accelerator):
    [float32, products, bfloat16] = accelerator.check_rows(("t5",))
    assert float32["error"] == 0.0
    assert all(row["holds"] for row in (float32, products, bfloat16))
    assert abs(bfloat16["values"][0]) > 0
