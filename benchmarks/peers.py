"""What this library says of its speed, measured again beside its peers, on as many machines as run
this.

    python benchmarks/peers.py --minutes=20 --out=peers.json

Runs the other scripts for one case after another, those named first until --minutes are over, each
in a process of its own. A row has the `ratio` of the case (times as fast as the peer, measured in
one process) and whether what is claimed of it `holds`. The report keeps the rows of other
machines: a kind of machine is its processor with its number of cores and its devices, and each has
rows of its own. With --missing it measures only what has no ratio of this machine yet.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import Deadline, describe_machine, print_table

HERE = Path(__file__).resolve().parent
MODELS = ("bart", "t5", "longt5", "led", "pegasus_x")


class Case(NamedTuple):
    """One measurement.

    Attributes:
        what: is measured, as the table says it.
        script: of this folder.
        flags: of the script, but for model and length.
        ratio: key of the peer's row that says how many times as fast ours is.
        claimed: the least ratio.
        model, length: of the documents.
    """

    what: str
    script: str
    flags: tuple[str, ...]
    ratio: str
    claimed: float
    model: str
    length: int

    def command(self, out: Path, size: str) -> list[str]:
        """Returns the command that writes a report to ``out``."""
        case = (f"--models={self.model}", f"--lengths={self.length}", f"--size={size}")
        return [sys.executable, str(HERE / self.script), *case, *self.flags, f"--out={out}"]


def cases() -> list[Case]:
    """Returns all cases, in the order in which they are run."""
    result = []
    for length in (1024, 4096):
        for model in ("bart", "t5"):
            result += _decoding(model, length)
        own = "--repeats=2"
        for model in MODELS:
            encode = (own, f"--peers={model}")
            result.append(Case("encoder", "encode.py", encode, "public_ratio", 1.3, model, length))
        for model in MODELS:
            step = (own, f"--peers={model}")
            result.append(Case("training step", "train_step.py", step, "ratio", 1.2, model, length))
        step = (own, "--peers=longt5")
        row = ("training step vs. LongT5", "train_step.py", step, "ratio", 1.5)
        result.append(Case(*row, "locost", length))
    for model in ("longt5", "led", "pegasus_x"):
        encode = ("--repeats=2", f"--peers={model}")
        result.append(Case("encoder", "encode.py", encode, "public_ratio", 1.3, model, 16384))
    for length in (1024, 4096, 16384):
        encode = ("--repeats=2", "--peers=longt5")
        row = ("encoder vs. LongT5", "encode.py", encode, "public_ratio", 1.3)
        result.append(Case(*row, "locost", length))
    for batch in (4, 16):
        for model, length in (("bart", 1024), ("t5", 1024), ("bart", 4096)):
            result += _decoding(model, length, batch)
    for model in ("longt5", "led"):
        result += _decoding(model, 16384)
    result += _decoding("led", 16384, 4)
    return result


def _decoding(model: str, length: int, batch: int = 1) -> list[Case]:
    documents = f", {batch} documents at once" if batch > 1 else ""
    result = []
    for beams, what, claimed in ((1, "greedy search", 1.2), (4, "four beams", 2.0)):
        flags = (f"--beams={beams}", f"--batches={batch}", "--new_tokens=64", "--repeats=2")
        row = (f"tokens/s, {what}{documents}", "decode.py", flags, "decode_ratio", claimed)
        result.append(Case(*row, model, length))
    return result


def measure(case: Case, size: str, seconds: float) -> dict[str, Any]:
    """Returns the row of a case; without a ratio where it took longer than ``seconds``."""
    row = {"what": case.what, "model": case.model, "length": case.length, "claimed": case.claimed}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        try:
            subprocess.run(
                case.command(out, size), check=True, capture_output=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return row | {"note": "not measured in the time that was left"}
        except subprocess.CalledProcessError as error:
            if error.returncode == -signal.SIGKILL:  # by the system, which does not say of which
                return row | {"note": "one of the two takes more memory than there is"}
            sys.exit(f"{case.script} for {case.model}: {error.stderr.decode()[-2000:]}")
        report = json.loads(out.read_text())
    peers = [result for result in report["rows"] if case.ratio in result]
    if not peers:
        return row | {"note": "no ratio: " + "; ".join(_notes(report["rows"]))}
    ratio = peers[0][case.ratio]
    return row | {"ratio": ratio, "holds": ratio >= case.claimed}


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["note"] for row in rows if "note" in row]


def machine_kind(machine: Mapping[str, Any]) -> str:
    """Returns what tells machines of another kind apart."""
    devices = sorted(set(machine["devices"]) - {"cpu"})
    wide = "AVX-512" if any(x.startswith("avx512") for x in machine["instruction_sets"]) else ""
    parts = [machine["cpu"], wide, f"{machine['cores']} cores", *devices]
    return ", ".join(filter(None, parts))


def merged(before: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns rows with those of ``before`` that they do not replace."""

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["machine"], row["what"], row["model"], row["length"]

    new = {key(row) for row in rows if "ratio" in row}
    retained = [row for row in before if key(row) not in new]
    retained_keys = {key(row) for row in retained}
    return [*retained, *(row for row in rows if key(row) not in retained_keys)]


def measured(path: str | None, machine: str) -> set[tuple[str, str, int]]:
    """Returns what, model and length of the cases that a report has ratios of on a machine."""
    if path is None or not Path(path).exists():
        return set()
    rows = json.loads(Path(path).read_text())["rows"]
    rows = [row for row in rows if row["machine"] == machine and "ratio" in row]
    return {(row["what"], row["model"], row["length"]) for row in rows}


def write(path: Path, rows: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> None:
    """Puts the rows of this machine into a report, which has those of others."""
    report = json.loads(path.read_text()) if path.exists() else {"machines": {}, "rows": []}
    report["command"] = "python benchmarks/peers.py"
    report["machines"][machine_kind(machine)] = dict(machine)
    report["rows"] = merged(report["rows"], rows)
    path.write_text(json.dumps(report, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    Deadline.add_flag(parser)
    parser.set_defaults(minutes=20.0)
    parser.add_argument(
        "--missing", action="store_true", help="only what --out has no ratio of on this machine"
    )
    parser.add_argument("--only", default="", help="cases whose script's name begins so")
    parser.add_argument("--models", default="", help="only these, comma-separated")
    parser.add_argument("--lengths", default="", help="only these, comma-separated")
    parser.add_argument("--size", default="base", help="of the models; default: base")
    parser.add_argument("--out", help="JSON report to write, or to put rows into")
    args = parser.parse_args()
    deadline = Deadline(args.minutes)
    machine = describe_machine()
    done = measured(args.out, machine_kind(machine)) if args.missing else set()
    rows = []
    for case in cases():
        if not case.script.startswith(args.only):
            continue
        if args.models and case.model not in args.models.split(","):
            continue
        if args.lengths and str(case.length) not in args.lengths.split(","):
            continue
        if (case.what, case.model, case.length) in done:
            continue
        if deadline.is_over:
            break
        row = {"machine": machine_kind(machine), **measure(case, args.size, deadline.seconds)}
        row["load"] = os.getloadavg()[0]
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
        if args.out:
            write(Path(args.out), rows, machine)
    print_table([{key: row[key] for key in row if key != "machine"} for row in rows])


if __name__ == "__main__":
    main()
