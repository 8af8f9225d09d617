"""Plans of shipped configs and of summaries for TPUs and GPUs, compiled and never run.

    python benchmarks/plans.py --out=plans.json [--cases=c4_v5e,c4_v5p]

Every case is one call of `longsum plan` in a process of its own. TPU cases need the extra
`plan-tpu`, GPU cases `plan-cuda`, neither a TPU nor a GPU. A report that is there already is
continued: cases that it holds are kept. On two cores the largest cases compile for a quarter of an
hour each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import print_table, write_report

C4 = "--config=configs/locost_c4.py"
FSDP = ("--config.mesh.preset=fsdp", "--config.mesh.batch=1", "--config.mesh.fsdp=-1")
BASE = "BASE"  # stands for a directory with the config of the published base model
TRAINING = ("--programs=train", "--config.data.batch_size=8", "--config.training.accumulation=1")
TRAINING += ("--config.task.max_target_length=1024",)
# One document, cut over all chips.
LONG = ("--programs=train", "--config.data.batch_size=1", "--config.training.accumulation=1")
LONG += ("--config.task.max_target_length=1024", "--config.model.remat=True", "--tries=0")
LONG += ("--config.mesh.preset=fsdp+sequence", "--config.mesh.batch=1", "--config.mesh.sequence=-1")
LONG += ("--config.data.source_lengths=4194304",)
SUMMARIES = (f"--model={BASE}", "--dtype=bfloat16", "--max_new_tokens=512")
# Name -> arguments of longsum plan.
CASES = {
    "c4_v5e": (C4, "--device=v5e:16x16", *FSDP, "--config.training.accumulation=1"),
    "c4_v5p": (C4, "--device=v5p:2x2x1", *FSDP, "--programs=train"),
    "c4_h200": (C4, "--device=h200:1x8", *FSDP),
    "c4_16k_h200": (C4, "--device=h200", *TRAINING, "--config.task.max_source_length=16384"),
    "c4_32k_h200": (C4, "--device=h200", *TRAINING, "--config.task.max_source_length=32768"),
    "c4_tiny_v5e": (f"{C4}:tiny", "--device=v5e:2x2"),
    "c4_small_v5e": (f"{C4}:small", "--device=v5e", "--programs=train"),
    "c4_4m_v5p": (C4, "--device=v5p:4x4x4", *LONG, "--config.task.max_source_length=4194304"),
    "summaries_v5e": (*SUMMARIES, "--device=v5e", "--input_length=16384", "--tries=0"),
    "summaries_v5p": (*SUMMARIES, "--device=v5p", "--input_length=16384", "--tries=0"),
    "summaries_4m_v5p": (*SUMMARIES, "--device=v5p", "--input_length=4194304", "--tries=0"),
    "summaries_h200": (*SUMMARIES, "--device=h200", "--input_length=16384,131072,1048576"),
    "summaries_a100": (*SUMMARIES, "--device=a100-40", "--input_length=16384", "--batch_size=1,8"),
}
Row = dict[str, Any]


def write_base(directory: Path) -> None:
    """Writes the published base model's config where a training run would have it."""
    from longsum_jax.checkpoints.huggingface import write_model
    from longsum_jax.inference.loading import TRAINING_MODEL
    from longsum_jax.models.locost import PRESETS
    from longsum_jax.models.registry import get_family

    write_model(directory / TRAINING_MODEL, get_family("locost"), PRESETS["base"], None, {})


def rows_of(case: str, report: dict[str, Any]) -> Iterator[Row]:
    """Yields a row for every program of a case, for every trial, and for every longest document."""
    shared = {"case": case, "device": report["device"]}
    shared |= {"devices_of": f"{report['num_devices']} x {report['title']}"}
    shared |= {"device_gb": report["device_memory_bytes"] / 1e9}
    for program in report["programs"]:
        memory = {f"{name}_gb": size / 1e9 for name, size in program["memory_bytes"].items()}
        row = shared | {"program": program["program"]} | memory
        row |= {name: program[name] for name in ("batch_size", "length") if name in program}
        if "operations" in program:
            sent = sum(traffic["sent"] for traffic in program["collectives"].values())
            row |= {"tflop": sum(program["operations"].values()) / 1e12, "sent_gb": sent / 1e9}
            row |= {"moved_gb": program["moved_bytes"] / 1e9, "bound": program["bound"]}
            row |= {"least_ms": 1e3 * max(program["roofline_seconds"].values())}
            row |= {"collectives": _counts(program["collectives"])}
        yield row | {"fits": program["fits"], "compile_seconds": program["compile_seconds"]}
    for name, trials in report.get("trials", {}).items():
        for trial in trials:
            changes = ", ".join(f"{key}={value}" for key, value in trial["changes"].items())
            total = trial["total_bytes"] and trial["total_bytes"] / 1e9
            tried = {"tried": changes, "total_gb": total, "fits": trial["fits"]}
            yield shared | {"program": name} | tried
    for found in report.get("longest", []):
        yield shared | {"program": "longest document"} | found


def _counts(collectives: dict[str, Any]) -> str:
    found = [f"{traffic['count']:,.0f} {kind}" for kind, traffic in sorted(collectives.items())]
    return ", ".join(found) or "none"


def plan(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Runs longsum plan and returns its JSON."""
    with tempfile.TemporaryDirectory() as directory:
        base, out = Path(directory) / "base", Path(directory) / "plan.json"
        if f"--model={BASE}" in arguments:
            write_base(base)
        filled = [argument.replace(f"={BASE}", f"={base}") for argument in arguments]
        command = [sys.executable, "-m", "longsum_jax", "plan", *filled, f"--out={out}"]
        subprocess.run(command, check=True)
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES), help="default: all")
    parser.add_argument("--out", required=True, help="JSON report to write or continue")
    args = parser.parse_args()
    out = Path(args.out)
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    for case in args.cases.split(","):
        if any(row["case"] == case for row in rows):
            continue
        found = list(rows_of(case, plan(CASES[case])))
        print_table(found)
        rows += found
        write_report(out, rows)


if __name__ == "__main__":
    main()
