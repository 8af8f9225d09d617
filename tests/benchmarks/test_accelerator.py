"""The first minutes on a device: checks, resuming, and flags that the other scripts have."""

import json
import sys

import pytest


@pytest.fixture(scope="module")
def accelerator(scripts):
    return scripts("accelerator")


def test_cases_name_flags_that_their_scripts_have(accelerator):
    result = list(accelerator.cases("tiny", (1024, 4096), 16.0))
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

    trained = []
    monkeypatch.setattr(
        accelerator, "train", lambda *arguments: trained.append(arguments) or {"case": "training"}
    )
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
    assert [row["case"] for row in again if "case" in row].count("training") == 1
    assert len(trained) == 2  # what is left of the minutes
    assert json.loads(out.read_text())["machine"] == machine  # with the devices that were checked


def test_checks_that_were_stopped_begin_again(accelerator, monkeypatch, tmp_path):
    out, checked = tmp_path / "report.json", []
    out.write_text(json.dumps({"rows": [{"check": "t5", "error": 0.0, "holds": True}]}))
    monkeypatch.setattr(accelerator, "check", lambda *given: checked.append(given) or 1)
    with pytest.raises(SystemExit):
        started(accelerator, monkeypatch, out)
    assert checked


def test_a_report_of_an_earlier_version_is_not_continued(accelerator, monkeypatch, tmp_path):
    out = tmp_path / "report.json"
    row = {"check": accelerator.LAST_CHECK, "holds": True}
    out.write_text(json.dumps({"rows": [row], "machine": {}}))
    with pytest.raises(SystemExit, match="give another --out"):
        started(accelerator, monkeypatch, out)


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
@pytest.mark.parametrize("backend", ["splash", "mosaic", "triton"])
def test_kernels_are_compared_with_the_reference(accelerator, backend, monkeypatch):
    """Interpreted here; a kernel that computes something else is found."""
    import jax

    from longsum_jax.ops.attention import fused

    cpu = jax.devices()[0]
    assert not list(accelerator.kernel_rows(cpu))  # CPUs have none
    rows = list(accelerator.kernel_rows(cpu, backend))
    expected = ["all keys, masked", "causal", "causal, masked", "window"]
    if backend != "splash":
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
    [float32, products, kernel, bfloat16] = accelerator.check_rows(("t5",))
    assert float32["error"] == 0.0
    assert all(row["holds"] for row in (float32, products, kernel, bfloat16))
    assert abs(bfloat16["values"][0]) > 0


def test_rows_fill_a_share_of_the_device(accelerator):
    def rows(gib):
        [case] = [c for c in accelerator.cases("base", (4096,), gib) if c.name == "train led 4096"]
        [batch] = [flag for flag in case.flags if flag.startswith("--batch=")]
        return batch

    assert rows(140.0) == "--batch=8"
    assert rows(16.0) == "--batch=1"


def test_a_training_goes_on_and_returns_its_losses(accelerator, monkeypatch, tmp_path):
    script = tmp_path / "fake_train.py"
    script.write_text(
        "import pathlib, sys, time\n"
        "flags = dict(x.split('=', 1) for x in sys.argv[1:])\n"
        "log = pathlib.Path(flags['--workdir'], 'metrics.jsonl')\n"
        "log.parent.mkdir(exist_ok=True)\n"
        'log.write_text(\'{"step": 20, "loss": 3.5}\\n{"step": 40, "loss": 2.5}\\n\')\n'
    )
    run = accelerator.subprocess.Popen

    def start(command, cwd):
        assert command[1:3] == ["-m", "longsum_jax.train"]
        return run([command[0], str(script), *command[3:]], cwd=cwd)

    monkeypatch.setattr(accelerator, "NUM_TEXTS", 2)
    monkeypatch.setattr(accelerator.subprocess, "Popen", start)
    row = accelerator.train(tmp_path / "training", "tiny", 60.0)
    assert (row["steps"], row["loss"], len(row["losses"])) == (40, 2.5, 2)
    [first, second] = (tmp_path / "training" / "words.jsonl").read_text().splitlines()
    row = json.loads(first)
    assert row["document"] == row["summary"]
    assert len(row["document"].split()) == 24
    assert first != second
    script.write_text("raise SystemExit(3)")
    assert "exit status 3" in accelerator.train(tmp_path / "other", "tiny", 60.0)["note"]
