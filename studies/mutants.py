"""Mutants: small changes of the package, each of which some test should notice.

    python studies/mutants.py --out=mutants.json [--sample=400] [--seconds=600] [--seed=0]
        [--limit=75] [--again] [--only=NAME,NAME] [--tests=FILE,FILE::TEST]
        [--equivalent=NAME --because=SENTENCE]

A mutant swaps a comparison, an operator or two arguments, changes a number by one, negates a
condition, or leaves out a statement (`mutants_changes.py`). The sample is drawn from all rooms of
the package in proportion to their lines, at least ten from each, and tried in a random order, so
that a part of it is a sample, too. Tests run in a copy of the working tree, in processes that are
forked after the heavy imports (`mutants_tests.py`): those that name the function of the mutant or
what calls it (`mutants_nearest.py`), those that mirror the file, then those that import it, until
the first one fails that passes without the mutant.

Started again, the script goes on with the next mutants, or with --again with the survivors. One
whose line was changed before it was tried is replaced by another one of its room.
Compiled programs are kept in a folder with the name of OUT and the suffix .programs.
Survivors are mutants that no test notices. Some change nothing ("x <= n" for "x < n" where they
are never equal): --equivalent notes one that somebody has looked at, and the reason.
"""

import argparse
import ast
import itertools
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401 (makes common importable)
import common
from mutants_changes import Mutant, mutants
from mutants_nearest import nearest_tests
from mutants_tests import PACKAGES, ROOT, Stage, Workshop, stages_of

_LEAST = 10  # mutants of a room
_KILLED = ("failed", "slow")
_SURVIVED = ("passed", "unfinished")


def files_by_room() -> dict[str, list[str]]:
    """Returns the files of all rooms, from the root of the repository.

    Rooms are the folders of the package, "longsum_jax" for its other files, and "longsum_plan".
    """
    rooms: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            rooms.setdefault(room_of(place), []).append(place)
    return rooms


def shares(lines: Mapping[str, int], total: int, least: int = _LEAST) -> dict[str, int]:
    """Returns a number of mutants for every room, in proportion to its lines.

    Args:
        lines: number of lines of every room.
        total: sum of the result, if it is large enough for ``least``.
        least: smallest number of a room.
    """
    small: set[str] = set()
    while True:
        rest = total - least * len(small)
        all_lines = sum(count for room, count in lines.items() if room not in small)
        exact = {room: rest * lines[room] / all_lines for room in lines if room not in small}
        below = {room for room, share in exact.items() if share < least}
        if not below:
            break
        small |= below
    result = dict.fromkeys(small, least) | {room: int(share) for room, share in exact.items()}
    by_remainder = sorted(exact, key=lambda room: exact[room] % 1, reverse=True)
    for room in by_remainder[: max(total - sum(result.values()), 0)]:
        result[room] += 1
    return {room: result[room] for room in lines}


def draw(total: int, seed: int) -> list[Mutant]:
    """Returns a sample of the mutants of all rooms, in a random order."""
    rooms = files_by_room()
    lines = {
        room: sum((ROOT / path).read_bytes().count(b"\n") for path in paths)
        for room, paths in rooms.items()
    }
    sample: list[Mutant] = []
    for room, number in shares(lines, total).items():
        sample += itertools.islice(_mutants_of(rooms[room], f"{seed} {room}"), number)
    random.Random(seed).shuffle(sample)
    return sample


def replace_gone(results: list[dict[str, Any]], seed: int) -> None:
    """Replaces mutants that were not tried and whose lines have changed, by others of their rooms.

    Args:
        results: results of all mutants, changed in place.
        seed: random seed of the new mutants.
    """
    names = {result["name"] for result in results}
    rooms = files_by_room()
    for index, result in enumerate(results):
        if result["outcome"] is None and not _is_current(result):
            room = room_of(result["place"])
            changes = _mutants_of(rooms[room], f"{seed} {room} again")
            other = next(mutant for mutant in changes if mutant.name not in names)
            names.add(other.name)
            results[index] = _result(other)


def _is_current(result: Mapping[str, Any]) -> bool:
    """Returns True if the line of a mutant is still there."""
    path = ROOT / result["place"].partition(":")[0]
    if not path.exists():
        return False
    changes = mutants(path.relative_to(ROOT).as_posix(), path.read_bytes())
    return any(mutant.name == result["name"] for mutant in changes)


def _mutants_of(paths: Sequence[str], seed: str) -> Iterator[Mutant]:
    """Yields the mutants of files in a random order."""
    sources = {path: (ROOT / path).read_bytes() for path in paths}
    changes = [mutant for path in paths for mutant in mutants(path, sources[path])]
    random.Random(seed).shuffle(changes)
    return (mutant for mutant in changes if mutant.is_python(sources[mutant.path]))


def room_of(place: str) -> str:
    """Returns the room of a file: a folder of the package, or a package."""
    parts = place.split("/")
    return parts[1] if len(parts) > 2 else parts[0]


def words_of(mutant: Mutant) -> list[str]:
    """Returns the names of the file, the functions and the classes that contain a mutant."""
    tree = ast.parse((ROOT / mutant.path).read_bytes())
    places = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, places) and node.lineno <= mutant.line <= node.end_lineno
    ]
    return [Path(mutant.path).stem.strip("_"), *names]


def rows_of(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns counts by room, and of all."""
    counts: dict[str, Counter] = {}
    for result in results:
        if result["outcome"] is None:
            continue
        count = counts.setdefault(room_of(result["place"]), Counter())
        if result["outcome"] in _KILLED:
            word = "killed_later" if "before" in result else "killed"
        else:
            word = "survived" if result["outcome"] in _SURVIVED else result["outcome"]
        count[word] += 1
        count["mutants"] += 1
    words = ("mutants", "killed", "killed_later", "equivalent", "survived")
    rooms = sorted(counts)
    counts["all"] = sum(counts.values(), Counter())
    rows = [{"room": room, **{word: counts[room][word] for word in words}} for room in rooms]
    rows.append({"room": "all", **{word: counts["all"][word] for word in words}})
    for row in rows:
        of = row["mutants"] - row["equivalent"]
        row["share_before"] = row["killed"] / of if of else None
        row["share"] = (row["killed"] + row["killed_later"]) / of if of else None
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=400, help="mutants of all rooms together")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of this start")
    parser.add_argument("--limit", type=float, default=75.0, help="seconds of a mutant's tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--only", default="", help="names of mutants, comma-separated")
    parser.add_argument("--tests", default="", help="tests to run instead, comma-separated")
    parser.add_argument("--equivalent", help="name of a survivor that changes nothing")
    parser.add_argument("--because", help="why it changes nothing, one sentence")
    args = parser.parse_args()
    if args.out.exists():
        report = json.loads(args.out.read_text(encoding="utf-8"))
        replace_gone(report["mutants"], args.seed)
    else:
        sample = [_result(mutant) for mutant in draw(args.sample, args.seed)]
        report = {"commit": _commit(), "mutants": sample}
    results = {result["name"]: result for result in report["mutants"]}
    if args.equivalent:
        results[args.equivalent] |= {"outcome": "equivalent", "because": args.because}
    else:
        with tempfile.TemporaryDirectory() as folder:
            shop = Workshop(Path(folder), args.out.with_suffix(".programs"))
            _try_all(args, shop, results, report)
    rows = rows_of(report["mutants"])
    common.print_table(rows)
    extra = {key: report[key] for key in ("commit", "note", "mutants") if key in report}
    common.write_report(args.out, rows, seed=args.seed, date=time.strftime("%Y-%m-%d"), **extra)


def _try_all(args: argparse.Namespace, shop: Workshop, results: dict, report: dict) -> None:
    """Tries mutants until there are no more, or the time is over."""
    end = time.monotonic() + args.seconds
    paths = {result["place"].partition(":")[0] for result in results.values()}
    current = {
        mutant.name: mutant
        for path in paths
        if (ROOT / path).exists()
        for mutant in mutants(path, (ROOT / path).read_bytes())
    }
    only = set(filter(None, args.only.split(",")))
    outcomes = _SURVIVED if args.again else (None,)
    for name, result in results.items():
        if time.monotonic() > end:
            break
        if name not in only if only else result["outcome"] not in outcomes:
            continue
        if name not in current:  # the line has changed since the mutant was tried
            print(f"gone {name} {result['place']}", flush=True)
            continue
        mutant = current[name]
        begin = time.monotonic()
        words = words_of(mutant)
        if args.tests:
            stages = [Stage(args.tests.split(","), "")]
        else:
            nearest = Stage(nearest_tests(mutant.path, mutant.line), "not slow")
            stages = [nearest, *stages_of(mutant.path, words)]
        outcome = shop.try_mutant(mutant, stages, words, args.limit)
        if result["outcome"] in _SURVIVED and outcome["outcome"] in _KILLED:
            result["before"] = result["outcome"]
        result |= outcome | {"seconds": round(time.monotonic() - begin, 1)}
        args.out.with_suffix(".new").write_text(json.dumps(report, indent=1) + "\n")
        args.out.with_suffix(".new").replace(args.out)
        change = f"{mutant.old[:200]!r} -> {mutant.new[:200]!r}"
        print(f"{outcome['outcome']:10} {result['seconds']:5} {name} {result['place']} {change}")
        print(f"           {outcome['tried']} {outcome['by']}", flush=True)


def _result(mutant: Mutant) -> dict[str, Any]:
    """Returns a mutant that was not tried."""
    change = {"kind": mutant.kind, "old": mutant.old, "new": mutant.new}
    place = f"{mutant.path}:{mutant.line}"
    return {"name": mutant.name, "place": place, **change, "outcome": None}


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout.strip()


if __name__ == "__main__":
    main()
