"""Refreshes the tables of results in docs/results, docs/papers and docs/design, and the figures.

    python docs/make_results.py

A page has its text, and marks where a file of benchmarks/results belongs:

    <!-- tables: encode -->
    tables of benchmarks/results/encode.json, and a line with machine, versions and command
    <!-- end -->

This script rewrites what stands between such marks. ``result_pages/tables.toml`` specifies the
tables of every file, and tables of several files, with which a page begins if it has no figure. A
test compares the pages with the files.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from result_pages import rows
from result_pages.figures import FIGURES
from result_pages.tables import read_tables, render

from longsum_jax.analysis import figures

DOCS = Path(__file__).resolve().parent
FILES = DOCS.parent / "benchmarks" / "results"
PAGES = (
    *sorted((DOCS / "results").glob("*.md")),
    DOCS / "papers/lsg.md",
    DOCS / "papers/hepos.md",
    DOCS / "design/ssm.md",
)

TABLES = read_tables(DOCS / "result_pages" / "tables.toml", vars(rows))
MARKS = re.compile(r"<!-- tables: (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)
SETTINGS = ("size", "dtype", "batch", "new_tokens", "beams", "summary", "layers", "budget_gib")
PACKAGES = ("jax", "torch", "transformers")
LONGEST_NOTE = 450  # characters; the file has longer ones
LONGEST_COMMAND = 160


def read(name: str) -> dict[str, Any]:
    """Returns a file of results."""
    result: dict[str, Any] = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))
    return result


def refresh(text: str) -> str:
    """Returns a page with current tables."""
    headings = re.findall(r"^#+ (.*)$", text.lower(), re.MULTILINE)
    return MARKS.sub(lambda mark: "\n".join(_block(mark[1], mark[1] not in headings)), text)


def _block(name: str, has_anchor: bool) -> list[str]:
    """Returns the marks of a result or a summary of several, and the lines between them.

    Args:
        name: name of the file or the summary.
        has_anchor: whether the name becomes an anchor; the page has it if it is a heading.
    """
    lines = []
    if (FILES / f"{name}.json").exists():
        result = read(name)
        lines += [f'<a id="{name}"></a>', ""] if has_anchor else []
        for table in TABLES[name]:
            lines += render(table, result["rows"])
        lines += [_origin(name, result), ""]
    else:
        for table in TABLES[name]:
            lines += render(table, read)
    return [f"<!-- tables: {name} -->", "", *lines, "<!-- end -->", ""]


def _origin(name: str, result: Mapping[str, Any]) -> str:
    """Returns one line: file, machines, versions, settings, note and command."""
    machines = result["machines"].values() if "machines" in result else [result["machine"]]
    parts = [f"[{name}.json](../../benchmarks/results/{name}.json)", *map(_machine, machines)]
    settings = [f"{key} {result[key]}" for key in SETTINGS if result.get(key) is not None]
    if settings:
        parts.append(", ".join(settings))
    parts += [result[key] for key in ("start", "date") if key in result]
    note = result.get("note", "")
    parts += [note] if 0 < len(note) <= LONGEST_NOTE else []
    return f"{'; '.join(parts)}. {_command(result['command'])}"


def _machine(machine: Mapping[str, Any]) -> str:
    packages = machine["packages"]
    versions = [f"{name} {packages[name]}" for name in PACKAGES if name in packages]
    wide = any(name.startswith("avx512") for name in machine.get("instruction_sets", ()))
    cpu = f"{machine['cpu']} with AVX-512" if wide else machine["cpu"]
    accelerators = sorted({device for device in machine["devices"] if device != "cpu"})
    cores = f"{machine['cores']} core{'s' * (machine['cores'] > 1)}"
    parts = [cpu, cores, f"{machine['memory_gib']} GiB", *accelerators]
    return ", ".join([*parts, f"Python {machine['python']}", *versions])


def _command(text: str) -> str:
    """Returns the command, or the scripts if there are many commands or a long one."""
    commands = [part.strip() for part in re.split(r";|&&|(?<!\\)\n", text) if part.strip()]
    if len(commands) == 1 and len(text) <= LONGEST_COMMAND:
        return f"`{text.strip()}`"
    scripts = dict.fromkeys(re.findall(r"\b(?:benchmarks|studies)/\w+\.py", text))
    return f"Commands in the file: {', '.join(f'`{script}`' for script in scripts)}"


def main() -> None:
    for page in PAGES:
        page.write_text(refresh(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, draw in FIGURES.items():
        figures.save(draw(read), DOCS / "results" / f"{name}.png", 200)
    print(f"{len(PAGES)} pages, {len(FIGURES)} figures", file=sys.stderr)


if __name__ == "__main__":
    main()
