"""The roads of docs/design/roads.md are short, and each is connected by imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/design/roads.md").read_text(encoding="utf-8")
ROADS = {
    section.partition("\n")[0]: re.findall(r"(?m)^\d+\. `([^`]+)`: ", section)
    for section in re.split(r"(?m)^## ", PAGE)[1:]
}


def module(path):
    return path.removesuffix(".py").replace("/", ".")


@pytest.mark.parametrize("road", ROADS)
def test_a_road_is_short_and_its_lines_are_as_told(road):
    paths = ROADS[road]
    lines = sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in paths)
    assert len(paths) <= 10
    assert lines <= 3000, f"{road}: {lines} lines; split a file, or leave one out of the road"
    link = road.lower().replace(" ", "-")
    files, told = re.search(rf"\(#{link}\) \| (\d+) \| about ([\d,]+) \|", PAGE).groups()
    assert int(files) == len(paths)
    assert abs(lines - int(told.replace(",", ""))) <= 150, f"{road}: {lines} lines"


@pytest.mark.parametrize("road", ROADS)
def test_a_road_is_connected(road):
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in ROADS[road]}
    reached = {ROADS[road][-1]}
    names = {path: module(path) for path in texts}
    # Imports in either direction connect two files: some roads begin with the parts.
    for _ in texts:
        reached |= {
            path
            for path in texts
            for other in reached
            if names[other] in texts[path] or names[path] in texts[other]
        }
    assert reached == set(texts), f"{road}: {sorted(set(texts) - reached)} stand apart"


RUN = ("experiment.experiment", "experiment.objectives.summarization")


@pytest.mark.parametrize(
    ("modules", "limit"),
    [
        (("inference.model",), 85),
        (RUN, 139),
        ((*RUN, "experiment.objectives.summary_evaluation"), 204),
    ],
    ids=["model", "run", "run with evaluations"],
)
def test_a_model_and_a_run_import_few_files(modules, limit):
    """In a process of its own, as the modules of other tests would count."""
    imports = ", ".join(f"longsum_jax.{name}" for name in modules)
    program = f"import sys, {imports}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    ).stdout
    files = {name for name in output.split() if name.startswith("longsum_jax")}
    assert len(files) <= limit
    if modules == RUN:
        others = ("readers", "ranking", "summarization", "inference", "conversion")
        rooms = {name.split(".")[1] for name in files if "." in name}
        assert not rooms & set(others)
