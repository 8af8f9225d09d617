"""Writes docs/results: one page of tables for every file of benchmarks/results, and their list.

    python docs/make_results.py

Every number on these pages comes from a JSON file that a script of benchmarks/ or studies/ wrote.
Text of ``result_pages`` describes a table and never repeats a number. The pages are kept in the
repository, so that they are read where its source is; a test compares them with the files.
"""

import json
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from result_pages import (
    attention,
    cost,
    devices,
    faithful,
    probes,
    quality,
    serving,
    speed,
    summaries,
    trained,
    trust,
)
from result_pages.tables import Column, Page, Row

from longsum_jax.analysis import figures

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "results"

SETTINGS = ("size", "dtype", "batch", "new_tokens", "beams", "summary", "layers", "budget_gib")

SUBJECTS: Mapping[str, Mapping[str, Page]] = {
    "Summaries without training": summaries.PAGES,
    "Small models on real text": {**quality.PAGES, **trained.PAGES},
    "Small models on generated tasks": probes.PAGES,
    "Metrics and sources": faithful.PAGES,
    "Time": speed.PAGES,
    "The server": serving.PAGES,
    "Memory and devices": devices.PAGES,
    "Operations of encoders": attention.PAGES,
    "Exactness and reliability": trust.PAGES,
}
PAGES_BY_FILE = {name: page for pages in SUBJECTS.values() for name, page in pages.items()}

INDEX = """# Results

These pages are generated from `benchmarks/results/*.json` by `docs/make_results.py`; nothing is
typed by hand. Each page names its machine, versions and command. Results that no script can
reproduce are not included.

How to read them:

- A speed-up is a ratio within one run: the alternatives alternate in one process. Ratios differ
  between processors (AMD and Intel, with and without accelerators), so check the machine of a
  page before you quote it.
- Memory of compiled programs depends on the machine that compiled them. CPU programs contain
  float32 copies of bfloat16 arrays.
- Studies of quality use small models. They compare variants with each other, not with published
  numbers.

```{toctree}
:hidden:
:glob:
*
```
"""


def write_pages(out: Path = PAGES) -> list[Path]:
    """Writes one page per file of results and the list of them; returns the paths of the pages.

    Raises:
        SystemExit: a file of results that no page describes.
    """
    paths = sorted(RESULTS.glob("*.json"))
    if unknown := [path.name for path in paths if path.stem not in PAGES_BY_FILE]:
        raise SystemExit(f"docs/result_pages describes no page for {', '.join(unknown)}")
    written = []
    for path in paths:
        result = json.loads(path.read_text(encoding="utf-8"))
        page = PAGES_BY_FILE[path.stem]
        target = out / f"{path.stem}.md"
        if page.picture is not None:
            figures.save(page.picture(result["rows"]), target.with_suffix(".png"), 200)
        text = render(page, result, path.name)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    for stale in set(out.glob("*.md")) - {*written, out / "index.md"}:
        stale.unlink()
    (out / "index.md").write_text(_index({path.stem for path in paths}), encoding="utf-8")
    figures.save(cost.draw(), out / "quality_and_cost.png", 200)
    return written


def _index(names: Set[str]) -> str:
    """Returns the list of the pages that there are, by subject."""
    lines = []
    for subject, pages in SUBJECTS.items():
        links = [f"- [{pages[name].title}]({name}.md)" for name in pages if name in names]
        if links:
            lines += ["", f"## {subject}", "", *links]
    return INDEX + "\n".join(lines) + "\n"


def render(page: Page, result: Mapping[str, Any], name: str) -> str:
    """Returns one page as Markdown."""
    lines = [f"# {page.title}", ""]
    if page.picture is not None:
        lines += [f"![{page.title}]({Path(name).stem}.png)", ""]
    lines += [page.advice, "", page.text, "", *_origin(result, name)]
    for table in page.tables:
        rows = table.rows(result["rows"])
        if not rows:
            continue
        columns = [
            column
            for column in (*table.columns, *table.more_columns(result["rows"]))
            if any(row.get(column.key) is not None for row in rows)
        ]
        if table.heading:
            lines += [f"## {table.heading}", ""]
        lines += ["| " + " | ".join(column.heading for column in columns) + " |"]
        lines += ["|" + "---|" * len(columns)]
        for row in rows:
            cells = [_cell(column, row) for column in columns]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(column: Column, row: Row) -> str:
    value = row.get(column.key)
    return "" if value is None else column.show(value)


def _origin(result: Mapping[str, Any], name: str) -> list[str]:
    """Returns lines that say where the numbers come from."""
    found = result["machines"].values() if "machines" in result else [result["machine"]]
    lines = [_machine(machine) for machine in found]
    settings = [f"{key} {result[key]}" for key in SETTINGS if result.get(key) is not None]
    if settings:
        lines.append(f"- Settings: {', '.join(settings)}")
    lines += [
        f"- {key.capitalize()}: {result[key]}"
        for key in ("start", "note", "date", "seed")
        if key in result
    ]
    lines += [f"- File: `benchmarks/results/{name}`, written by", ""]
    commands = [command.strip() for command in result["command"].split(";")]
    return [*lines, "```bash", *commands, "```", ""]


def _machine(machine: Mapping[str, Any]) -> str:
    packages = machine["packages"]
    shown = ("jax", "torch", "transformers")
    versions = ", ".join(f"{name} {packages[name]}" for name in shown if name in packages)
    wide = any(name.startswith("avx512") for name in machine.get("instruction_sets", ()))
    cpu = f"{machine['cpu']} with AVX-512" if wide else machine["cpu"]
    hardware = f"{cpu}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    accelerators = sorted({device for device in machine["devices"] if device != "cpu"})
    if accelerators:
        hardware += ", " + ", ".join(accelerators)
    return f"- Machine: {hardware}; Python {machine['python']}, {versions}"


if __name__ == "__main__":
    print(f"{len(write_pages())} pages in {PAGES}", file=sys.stderr)
