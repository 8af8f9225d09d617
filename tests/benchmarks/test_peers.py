"""The claims beside peers, and how rows of several machines come into one report."""

import json
import sys

import pytest


@pytest.fixture(scope="module")
def peers(scripts):
    return scripts("peers")


def row(machine, ratio=None, length=1024):
    case = {
        "machine": machine,
        "what": "encoder",
        "model": "bart",
        "length": length,
        "claimed": 1.3,
    }
    return case | ({} if ratio is None else {"ratio": ratio})


def test_a_machine_replaces_its_own_rows_alone(peers):
    before = [row("A", 1.0), row("B", 2.0), row("A", 3.0, 4096)]
    after = peers.merged(before, [row("A", 1.5), row("A", None, 4096), row("A", None, 16384)])
    # A case that there was no time for keeps what was measured before.
    assert after == [row("B", 2.0), row("A", 3.0, 4096), row("A", 1.5), row("A", None, 16384)]


def test_what_a_machine_has_measured_is_known(peers, tmp_path):
    out = tmp_path / "peers.json"
    assert peers.measured(str(out), "A") == peers.measured(None, "A") == set()
    rows = [row("A", 1.0), row("A", None, 4096), row("B", 2.0, 16384)]
    out.write_text(json.dumps({"machines": {}, "rows": rows}))
    assert peers.measured(str(out), "A") == {("encoder", "bart", 1024)}


def test_cases_differ(peers):
    cases = [(case.what, case.model, case.length) for case in peers.cases()]
    assert len(set(cases)) == len(cases)


def test_machines_are_told_apart_by_processor_vectors_cores_and_devices(peers):
    machine = {
        "cpu": "Xeon",
        "instruction_sets": ["avx2", "avx512f"],
        "cores": 2,
        "devices": ["cpu"],
    }
    assert peers.machine_kind(machine) == "Xeon, AVX-512, 2 cores"
    other = machine | {"instruction_sets": ["avx2"], "devices": ["NVIDIA H200"]}
    assert peers.machine_kind(other) == "Xeon, 2 cores, NVIDIA H200"


def test_cases_name_flags_that_their_scripts_have(peers, tmp_path):
    for case in peers.cases():
        flags = [part.split("=")[0] for part in case.command(tmp_path / "x.json", "tiny")[2:]]
        text = (peers.HERE / case.script).read_text() + (peers.HERE / "sweep.py").read_text()
        assert all(f'"{flag}"' in text for flag in flags), case
        assert f'"{case.ratio}"' in text


# A script that measures nothing, in the place of encode.py.
SCRIPT = """
import json, sys

flags = dict(flag[2:].split("=") for flag in sys.argv[1:])
row = {"model": flags["models"], "length": int(flags["lengths"]), "public_ratio": 1.25}
with open(flags["out"], "w") as out:
    json.dump({"rows": [{"by": flags["size"]}, row]}, out)
"""


def test_a_report_keeps_other_machines(peers, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers, "HERE", tmp_path)
    (tmp_path / "encode.py").write_text(SCRIPT)
    out = tmp_path / "peers.json"
    other = row("Another", 1.1)
    out.write_text(json.dumps({"machines": {"Another": {}}, "rows": [other]}))
    flags = ["--size=tiny", "--only=encode", "--models=bart", "--lengths=1024", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["peers.py", *flags])
    peers.main()
    report = json.loads(out.read_text())
    first, second = report["rows"]
    assert first == other
    assert (second["model"], second["length"], second["ratio"]) == ("bart", 1024, 1.25)
    assert (second["claimed"], second["holds"]) == (1.3, False)
    assert second["machine"] in report["machines"]
    assert "encoder" in capsys.readouterr().out
