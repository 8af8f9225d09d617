"""Runs that are killed, stopped and moved, and files that are damaged: what is lost, and what is
silently different.

    python studies/reliability.py --minutes=25 --out=reliability.json
        [--sections=kill,signal,commands,elastic,damage,disk] [--trials=N] [--seed=0]

Every trial is drawn from --seed, its case and its number, which repeats it but for the clock: where
a signal comes within a moment is up to the machine. Cases take turns, so that all have trials when
the minutes are over. With the same --out the next start goes on where the last one was.

    kill      `longsum train` ends by SIGKILL and continues: losses, gradient norms, ids of examples
              and the final state are bit for bit those of a run that was never killed. "In saves"
              counts kills after which the directory of a checkpoint was there, half written.
    signal    SIGTERM and SIGINT: exit code 0, what the run says, the checkpoint and its sums; then
              as above.
    commands  other commands end by SIGKILL and are started again: they leave the same as where
              nothing ended them, but for times.
    elastic   hosts, devices and processes change.
    damage    single bits are flipped and files cut short.
    disk      commands whose disk is full, broken or slow from a random call on; needs a C compiler
              and Linux.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
from common import print_table, rows_before, write_report
from reliability_commands import command_cases
from reliability_damage import damage_cases
from reliability_disk import disk_cases
from reliability_elastic import elastic_cases
from reliability_kills import Wholes, kill_cases, signal_cases
from reliability_trials import Case, Row, run_trials

SECTIONS = ("kill", "signal", "commands", "elastic", "damage", "disk")
# Those without a run that nothing ended.
ON_FILES = {"commands": command_cases, "damage": damage_cases, "disk": disk_cases}


def make_cases(sections: list[str], folder: Path, trials: int | None) -> list[Case]:
    """Returns the cases of some sections, whose files go into a folder."""
    wholes = Wholes(folder / "runs")
    cases = []
    for section in sections:
        if section in ON_FILES:
            cases += ON_FILES[section](folder / section)
        else:
            make = {"kill": kill_cases, "signal": signal_cases, "elastic": elastic_cases}[section]
            cases += make(wholes)
    for case in cases:
        case.wanted = case.wanted if trials is None else trials
    return cases


def print_tables(rows: list[Row]) -> None:
    """Prints a table for each section, then what has failed."""
    for section in dict.fromkeys(row["section"] for row in rows):
        print(f"\n{section}")
        print_table([_shown(row) for row in rows if row["section"] == section])
    for row in rows:
        for failure in row["failures"]:
            print(f"{row['what']}, {failure}")


def _shown(row: Row) -> dict[str, Any]:
    result = {name: value for name, value in row.items() if name not in ("section", "failures")}
    return result | {"failed": len(row["failures"])}


def main() -> None:
    """Prints the tables and writes a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--trials", type=int, help="of each case; default: as many as it has")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    sections = args.sections.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"--sections: {', '.join(unknown)} is none of {', '.join(SECTIONS)}")
    rows = rows_before(args.out, seed=args.seed)

    def keep() -> None:
        if args.out:
            date = time.strftime("%Y-%m-%d")
            write_report(args.out, rows, seed=args.seed, date=date)

    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases(sections, Path(folder), args.trials)
        run_trials(cases, rows, args.seed, time.monotonic() + 60 * args.minutes, keep)
    print_tables(rows)


if __name__ == "__main__":
    main()
