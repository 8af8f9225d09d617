"""The first minutes on a device: checks, resuming, and flags that the other scripts have."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def accelerator(scripts):
    return scripts("accelerator")


def test_cases_have_names_of_their_own(accelerator):
    names = [case.name for case in accelerator.cases("tiny", (1024, 4096), 16.0)]
    assert len(set(names)) == len(names) > 20


def test_scripts_know_the_flags_of_cases(accelerator, scripts, monkeypatch):
    """Their own parsers read them, values included."""

    class ParsedError(Exception):
        """Ends a script when its flags are read."""

    parse = accelerator.argparse.ArgumentParser.parse_args

    def read(parser):
        parse(parser)
        raise ParsedError

    monkeypatch.setattr(accelerator.argparse.ArgumentParser, "parse_args", read)
    for case in accelerator.cases("tiny", (1024, 4096), 16.0, "reference"):
        script = scripts(case.script.removesuffix(".py"))
        monkeypatch.setattr(sys, "argv", [script.__file__, *case.flags, "--out=report.json"])
        with pytest.raises(ParsedError):
            script.main()
        models = [flag.split("=")[1] for flag in case.flags if flag.startswith("--models=")]
        assert set(models) <= set(scripts("models").MODELS)


def test_measurements_come_in_the_order_of_what_they_settle(accelerator):
    names = [case.name for case in accelerator.cases("base", (4096, 16384), 140.0)]
    kinds = list(dict.fromkeys(name.split()[0] for name in names))
    assert kinds == ["train", "encode", "decode", "profile", "state-space", "attention"]
    assert "train t5 4096" in names
    assert "train t5 16384" not in names
    assert names[-5:] == [
        *(f"attention {name}" for name in ("triton", "cudnn", "reference")),
        *(f"train {model} 16384, PyTorch compiled" for model in ("longt5", "led")),
    ]


def test_every_time_is_the_median_of_five_turns(accelerator):
    for case in accelerator.cases("base", (4096, 16384), 104.0):
        assert {"--repeats=5", "--median"} <= set(case.flags), case
        if case.script in ("encode.py", "train_step.py"):  # which end turns that take long
            assert "--enough=inf" in case.flags, case


def test_a_peer_of_a_training_step_has_the_device_alone(accelerator):
    steps = [case for case in accelerator.cases("base", (4096,), 104.0) if case.name[:5] == "train"]
    theirs = [case for case in steps if "PyTorch" in case.name]
    assert [case.name for case in theirs] == [
        f"train {model} 4096, PyTorch {side}"
        for side in ("plain", "compiled")
        for model in ("longt5", "led", "t5")
    ]
    for case in steps:
        flags = {"--batch=8", "--target=512", "--lengths=4096"}
        alone = [f"--alone={case.name.split()[-1]}"] if case in theirs else ["--peers=none"]
        assert flags | set(alone) <= set(case.flags)


def test_without_kernels_no_case_has_one(accelerator):
    for case in accelerator.cases("tiny", (1024,), 16.0, "reference"):
        if case.script != "ssm.py" and "--alone" not in " ".join(case.flags):
            assert "--attention_backend=reference" in case.flags, case


def test_without_pytorch_ours_is_measured_alone(accelerator, monkeypatch, checked):
    report = json.loads(checked.read_text())
    report["rows"][0]["holds"] = False
    checked.write_text(json.dumps(report))
    measured = []

    def measure(case, *_):
        measured.append(case)
        return "", None

    monkeypatch.setattr(accelerator, "measure", measure)
    monkeypatch.setattr(accelerator, "train", lambda *_: {"case": "training"})
    started(accelerator, monkeypatch, checked)
    names = [case.name for case in accelerator.cases("base", (4096, 16384), 16.0)]
    assert [case.name for case in measured] == [name for name in names if "PyTorch" not in name]
    assert all("--peers=none" in case.flags for case in measured if case.script != "ssm.py")


def test_missing_packages_are_named_at_once(accelerator):
    project = tomllib.loads((accelerator.HERE.parent / "pyproject.toml").read_text())["project"]
    names = [re.match(r"[\w-]+", line)[0] for line in project["dependencies"] if ";" not in line]
    modules = {"orbax-checkpoint": "orbax", "protobuf": "google.protobuf"}
    modules |= {"markdown-it-py": "markdown_it"}
    needed = {modules.get(name, name.replace("-", "_")) for name in names}
    assert needed == {*accelerator.MODULES} - {"torch", "transformers"}
    assert all(map(accelerator.is_installed, needed))
    assert not accelerator.is_installed("no_such_package")
    assert not accelerator.is_installed("no_such_package.part")


def started(accelerator, monkeypatch, out, *flags):
    monkeypatch.setattr(sys, "argv", ["accelerator.py", f"--out={out}", *flags])
    accelerator.main()
    return json.loads(out.read_text())["rows"]


@pytest.fixture
def checked(accelerator, tmp_path):
    """A report of a device whose checks hold."""
    rows = [{"check": accelerator.PEER_CHECK, "holds": True}]
    facts = {"device_gib": 16.0, "platform": "gpu"}
    rows.append({"check": accelerator.LAST_CHECK, "holds": True, **facts})
    settings = {"size": "base", "attention_backend": "auto"}
    accelerator.write_report(tmp_path / "report.json", rows, **settings)
    return tmp_path / "report.json"


def test_checks_come_first(accelerator, monkeypatch, tmp_path):
    commands = []

    class Failed:
        returncode = 3

    monkeypatch.setattr(
        accelerator.subprocess, "run", lambda command, **options: commands.append(command) or Failed
    )
    out = tmp_path / "report.json"
    with pytest.raises(SystemExit, match="3"):
        started(accelerator, monkeypatch, out, "--size=tiny")
    flags = [f"--out={out}", "--size=tiny", "--only_checks"]
    assert [command[-5:] for command in commands] == [
        [sys.executable, accelerator.__file__, *flags]
    ]


def test_unfinished_checks_begin_again(accelerator, monkeypatch, checked):
    report = json.loads(checked.read_text())
    report["rows"] = [{"check": "t5", "error": 0.0, "holds": True}]
    checked.write_text(json.dumps(report))

    class Failed:
        returncode = 1

    monkeypatch.setattr(accelerator.subprocess, "run", lambda command, **options: Failed)
    with pytest.raises(SystemExit, match="1"):
        started(accelerator, monkeypatch, checked)


@pytest.mark.parametrize("flag", ["--size=tiny", "--attention_backend=reference"])
def test_a_report_of_other_settings_is_not_continued(accelerator, monkeypatch, checked, flag):
    before = checked.read_text()
    with pytest.raises(SystemExit, match="give another --out"):
        started(accelerator, monkeypatch, checked, flag)
    assert checked.read_text() == before


def test_a_report_is_continued(accelerator, monkeypatch, checked, capsys):
    """Each case is measured once; what was stopped continues from its rows; failures come last."""
    measured, trained, ends = [], [], {1: accelerator.STOPPED, 2: "exit status 1: no such flag"}

    def measure(case, seconds, before):
        assert 0 < seconds <= 150
        measured.append((case.name, before))
        part = {"rows": [{"by": "x", "seconds": len(measured)}]}
        return ends.get(len(measured), ""), part

    def train(*arguments):
        trained.append(arguments)
        return {"case": "training", "steps": len(trained)}

    monkeypatch.setattr(accelerator, "measure", measure)
    monkeypatch.setattr(accelerator, "train", train)
    machine = json.loads(checked.read_text())["machine"] | {"devices": ["some GPU"]}
    report = json.loads(checked.read_text()) | {"machine": machine}
    checked.write_text(json.dumps(report))

    first = started(accelerator, monkeypatch, checked, "--minutes=2.5")
    names = [name for name, _ in measured]
    assert names == [case.name for case in accelerator.cases("base", (4096, 16384), 16.0)]
    assert [row["note"] for row in first if "note" in row] == list(ends.values())
    said = capsys.readouterr().err
    assert f"{names[0]}, one of {len(names)} cases: 1" in said  # and the seconds that are left

    measured.clear()
    ends = {1: accelerator.STOPPED, 2: ""}
    started(accelerator, monkeypatch, checked, "--minutes=2.5")
    part = {"rows": [{"by": "x", "seconds": 1}]}
    assert [(name, before == part) for name, before in measured] == [
        (names[0], True),  # stopped, so it comes first
        (names[1], False),
    ]
    measured.clear()
    ends = {}
    again = started(accelerator, monkeypatch, checked, "--minutes=2.5")
    assert [name for name, _ in measured] == names[:1]
    assert len(again) == 2 + len(names) + 1  # no notes, no row twice
    assert again[-1] == {"case": "training", "steps": 3}
    report = json.loads(checked.read_text())
    assert report["unfinished"] == {}
    assert report["machine"] == machine  # with the devices that were checked


def test_a_case_that_takes_too_long_leaves_time_for_the_others(accelerator, monkeypatch, checked):
    limits, left = [], []

    def measure(case, seconds, before):
        limits.append(seconds)
        return (accelerator.STOPPED if len(limits) == 1 else ""), None

    monkeypatch.setattr(accelerator, "measure", measure)
    monkeypatch.setattr(accelerator, "train", lambda *_: {"case": "training"})
    started(accelerator, monkeypatch, checked)
    assert max(limits) == accelerator.LONGEST_CASE
    [(name, case)] = json.loads(checked.read_text())["unfinished"].items()
    assert (name, case["note"]) == ("train locost 4096", accelerator.TOO_LONG)
    # It is not the first one of the next start.
    monkeypatch.setattr(accelerator, "pending", lambda *given: left.append(given) or [])
    started(accelerator, monkeypatch, checked)
    monkeypatch.undo()
    [(every, rows, unfinished)] = left
    names = [case.name for case in accelerator.pending(every, rows, unfinished)]
    assert name == names[-1]


def test_a_case_that_failed_twice_is_left_out(accelerator):
    case = accelerator.Case("a", "encode.py", ())
    for tries, left in ((1, [case]), (2, [])):
        unfinished = {"a": {"note": "exit status 1: ", "tries": 2, "failures": tries}}
        assert accelerator.pending(iter([case]), [{"case": "a"}], unfinished) == left


def test_a_finished_report_is_not_checked_again(accelerator, monkeypatch, checked):
    """Its measurements would be lost."""
    report = json.loads(checked.read_text())
    report["rows"].append({"case": "train led 4096", "seconds": 1.0})
    checked.write_text(json.dumps(report))
    monkeypatch.setattr(accelerator, "write_checks", None)
    assert started(accelerator, monkeypatch, checked, "--only_checks") == report["rows"]


def test_training_steps_are_compared_with_the_fastest_peer(accelerator):
    def row(model, length, by, seconds=None, **columns):
        timed = {} if seconds is None else {"seconds": seconds, "gib": seconds, "loss": 2.0}
        return {"case": f"train {model} {length}", "model": model, "length": length, "by": by} | (
            timed | columns
        )

    rows = [
        {"check": "t5", "holds": True},
        row("locost", 4096, "longsum_jax", 1.0),
        row("longt5", 4096, "longsum_jax", 2.0, loss=2.5),
        row("longt5", 4096, "PyTorch longt5", 8.0),
        row("longt5", 4096, "PyTorch longt5, compiled", 4.0),
        row("led", 4096, "PyTorch led, compiled", note="out of memory"),
        row("led", 4096, "PyTorch led, compiled, recomputing", 6.0),
        row("led", 4096, "longsum_jax", 3.0),
        row("longt5", 16384, "longsum_jax", 1.0),
        row("longt5", 4096, "longsum_jax", 1.0) | {"case": "encode longt5"},
        {"case": "train configs/locost_small.py:copy", "steps": 10, "loss": 1.0},
    ]
    before = json.loads(json.dumps(rows))
    accelerator.compare(rows)
    added = [{key: x[key] for key in x if key not in y} for x, y in zip(rows, before, strict=True)]
    compiled = {"peer": "PyTorch longt5, compiled"}
    recomputing = {"peer": "PyTorch led, compiled, recomputing"}
    expected = {
        1: compiled | {"ratio": 4.0, "memory_share": 0.25},
        2: compiled | {"ratio": 2.0, "memory_share": 0.5, "difference": 0.25},
        7: recomputing | {"ratio": 2.0, "memory_share": 0.5, "difference": 0.0},
    }
    assert added == [expected.get(number, {}) for number in range(len(rows))]


def test_rows_say_what_holds_for_their_script(accelerator):
    case = accelerator.Case("decode", "decode.py", ())
    assert accelerator.rows_of(case, None) == []
    report = {"size": "base", "dtype": "bfloat16", "batch": 8, "rows": [{"by": "a"}, {"batch": 1}]}
    shared = {"case": "decode", "dtype": "bfloat16"}
    rows = [shared | {"batch": 8, "by": "a"}, shared | {"batch": 1}]
    assert accelerator.rows_of(case, report) == rows


def test_cases_that_failed_or_were_stopped_twice_come_last(accelerator):
    every = [accelerator.Case(name, "encode.py", ()) for name in "abcde"]
    stopped = {"note": accelerator.STOPPED}
    unfinished = {
        "a": {"note": "exit status 1: ", "tries": 1, "failures": 1},
        "b": {**stopped, "tries": 2},
        "d": {**stopped, "tries": 1},
    }
    rows = [{"case": name} for name in "abcd"]
    left = accelerator.pending(iter(every), rows, unfinished)
    assert [case.name for case in left] == ["d", "e", "a", "b"]


@pytest.mark.parametrize(("num_rows", "failures"), [(1, 2), (2, 1)])
def test_a_new_row_is_progress(accelerator, monkeypatch, checked, num_rows, failures):
    """A case of many rows may take several slices."""
    report = json.loads(checked.read_text())
    name = "train locost 4096"
    before = {"note": accelerator.TOO_LONG, "tries": 1, "failures": 1, "report": {"rows": [{}]}}
    checked.write_text(json.dumps(report | {"unfinished": {name: before}}))
    part = {"rows": [{"by": "longsum_jax"}] * num_rows}
    only = [case for case in accelerator.cases("base", (4096,), 16.0) if case.name == name]
    monkeypatch.setattr(accelerator, "pending", lambda *_: only)
    monkeypatch.setattr(accelerator, "measure", lambda *_: ("exit status 1: ", part))
    monkeypatch.setattr(accelerator, "train", lambda *_: {"case": "training"})
    started(accelerator, monkeypatch, checked)
    assert json.loads(checked.read_text())["unfinished"][name]["failures"] == failures


def test_nothing_begins_without_time(accelerator, monkeypatch, checked):
    monkeypatch.setattr(accelerator, "measure", None)
    monkeypatch.setattr(accelerator, "train", None)
    assert len(started(accelerator, monkeypatch, checked, "--minutes=0.5")) == 2


def test_a_case_that_is_stopped_returns_its_rows(accelerator, monkeypatch, tmp_path):
    (tmp_path / "case.py").write_text(
        "import json, pathlib, sys, time\n"
        "out = pathlib.Path(sys.argv[-1].removeprefix('--out='))\n"
        "rows = json.loads(out.read_text())['rows'] if out.exists() else []\n"
        "out.write_text(json.dumps({'rows': [*rows, {'n': len(rows)}]}))\n"
        "print('x' * 100_000)\n"
        "sys.exit(2) if '--fail' in sys.argv else time.sleep(0 if rows else 60)\n"
    )
    monkeypatch.setattr(accelerator, "HERE", tmp_path)
    case = accelerator.Case("name", "case.py", ())
    start = time.monotonic()
    note, part = accelerator.measure(case, 2.0)
    assert (note, part) == (accelerator.STOPPED, {"rows": [{"n": 0}]})
    assert time.monotonic() - start < 30
    note, part = accelerator.measure(case, 60.0, part)
    assert (note, part) == ("", {"rows": [{"n": 0}, {"n": 1}]})
    note, part = accelerator.measure(case._replace(flags=("--fail",)), 60.0)
    assert note == f"exit status 2: {accelerator.NOTE * 'x'}"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="only Linux has setpriv")
def test_a_case_ends_with_a_start_that_is_killed(accelerator, tmp_path):
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    parent = "import sys; sys.path.insert(0, sys.argv[1]); import accelerator\n"
    parent += "accelerator.run_for([sys.executable, '-c', sys.argv[2]], 300)"
    command = [sys.executable, "-c", parent, str(accelerator.HERE), child]
    with subprocess.Popen(command) as process:
        wait_until(lambda: pid.exists() and pid.read_text())
        process.kill()
    wait_until(lambda: not Path(f"/proc/{pid.read_text()}").exists())


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_nothing_is_measured_on_a_device_that_computes_wrongly(
    accelerator, scripts, monkeypatch, tmp_path
):
    checks = scripts("accelerator_checks")
    out, wrong = tmp_path / "report.json", {"check": "t5", "error": 0.5, "holds": False}
    monkeypatch.setattr(checks, "check_rows", lambda *given: iter([wrong]))
    with pytest.raises(SystemExit, match="nothing is measured"):
        started(accelerator, monkeypatch, out, "--only_checks")
    assert not accelerator._has_checks(json.loads(out.read_text())["rows"])
    optional = wrong | {"optional": True}  # of an operation that no model uses
    monkeypatch.setattr(checks, "check_rows", lambda *given: iter([optional]))
    assert accelerator._has_checks(started(accelerator, monkeypatch, out, "--only_checks"))


def test_backends_that_are_stopped_continue_after_their_rows(scripts, monkeypatch, tmp_path):
    ssm, out = scripts("ssm"), tmp_path / "ssm.json"
    made, options = [], []

    def seconds(compiled, u, *_, **given):
        options.append(given)
        made.append(u.shape)
        if len(made) == 6:  # forward and backward of the second length
            raise KeyboardInterrupt
        return float(len(made))

    monkeypatch.setattr(ssm, "BACKEND_LENGTHS", (16, 64))
    monkeypatch.setattr(ssm, "BACKEND_BATCHES", (2,))
    monkeypatch.setattr(ssm, "seconds", seconds)
    flags = ["--tables=backends", "--size=tiny", "--median", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["ssm.py", *flags])
    with pytest.raises(KeyboardInterrupt):
        ssm.main()
    before = json.loads(out.read_text())["rows"]
    assert [(row["length"], row["what"]) for row in before] == [
        (16, "forward"),
        (16, "forward+backward"),
    ]
    ssm.main()
    rows = json.loads(out.read_text())["rows"]
    assert rows[:2] == before
    assert [row["length"] for row in rows] == [16, 16, 64, 64]
    assert set(made) == {(2, 16, 32), (2, 64, 32)}  # of the model's channels
    assert all(given["statistic"]([1.0, 3.0, 9.0]) == 3.0 for given in options)


def test_rows_fill_a_share_of_the_device(accelerator):
    def rows(gib):
        [case] = [c for c in accelerator.cases("base", (4096,), gib) if c.name == "train led 4096"]
        [batch] = [flag for flag in case.flags if flag.startswith("--batch=")]
        return batch

    assert rows(140.0) == "--batch=8"
    assert rows(16.0) == "--batch=1"


def test_a_training_goes_on_and_returns_its_losses(accelerator, monkeypatch, tmp_path):
    script = tmp_path / "fake_train.py"
    written = (
        "import pathlib, sys, time\n"
        "flags = dict(x.split('=', 1) for x in sys.argv[1:])\n"
        "log = pathlib.Path(flags['--workdir'], 'metrics.jsonl')\n"
        "log.parent.mkdir(exist_ok=True)\n"
        'log.write_text(\'{"step": 20, "loss": 3.5}\\n{"step": 40, "loss": 2.5}\\n\')\n'
    )
    wait = "time.sleep(300)\n"
    script.write_text(written)
    run = accelerator.subprocess.Popen

    def start(command, cwd, env):
        assert env["PYTHONPATH"].split(":")[0] == str(accelerator.HERE.parent)
        arguments = command[command.index("longsum_jax.train") + 1 :]
        # The config's own number of steps would end before the minutes do.
        assert f"--config.training.steps={accelerator.STEPS}" in arguments
        assert not any(str(tmp_path) in flag for flag in arguments)  # the folder may move
        return run([sys.executable, str(script), *arguments], cwd=cwd)

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
    # A training that does not end when it is asked to is killed; its losses remain.
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    script.write_text(f"{ignore}{written}with log.open('a') as file: file.write('{{\"st')\n{wait}")
    monkeypatch.setattr(accelerator, "SAVING", 0.5)
    begin = time.monotonic()
    row = accelerator.train(tmp_path / "third", "tiny", 6.0)
    assert row["note"] == "exit status -9 after 2 losses"
    assert (row["steps"], row["loss"]) == (40, 2.5)
    assert time.monotonic() - begin < 60


def test_every_kind_of_row_has_its_table(accelerator, monkeypatch):
    """Tables without rows are left out; none of them has rows of another kind."""
    docs = accelerator.HERE.parent / "docs"
    monkeypatch.syspath_prepend(str(docs))
    tables, rows = (importlib.import_module(f"result_pages.{name}") for name in ("tables", "rows"))
    specified = tables.read_tables(docs / "result_pages" / "tables.toml", vars(rows))["accelerator"]
    by = {"by": "longsum_jax", "model": "led", "length": 4096, "seconds": 0.125}
    profiled = {"share": 0.5, "count": 2, "kind": "dot_general", "part": "norm, forward"}
    of_kinds = {
        "train led 4096": by | {"case": "train led 4096", "peer": "PyTorch led", "ratio": 2.0},
        "encode led": by,
        "decode bart 1024, beams 4": by | {"beams": 4},
        "profile train 4096": by | {"operations": [profiled | {"seconds": 0.25}]},
        "state-space backends": {"what": "forward", "batch": 8, "length": 4096, "ratio": 0.75},
        "attention triton": by,
        "train configs/locost_small.py:copy": {"steps": 1000, "loss": 2.5},
    }
    cases = {case.name for case in accelerator.cases("base", (4096, 16384), 104.0)}
    assert {name.split()[0] for name in cases} == {name.split()[0] for name in of_kinds}
    checks = [{"check": "t5", "holds": True}]
    measured = [table for table in specified if table.optional or table is specified[0]]
    captions = []
    for name, columns in of_kinds.items():
        row = {"case": name} | columns
        lines = [tables.render(table._replace(optional=True), [row, *checks]) for table in measured]
        [table] = filter(None, lines)
        captions.append(table[0])
        assert len(table) == 6  # caption, head, one row
    assert len(set(captions)) == len(of_kinds)
    assert not any(tables.render(table, checks) for table in measured[1:])
