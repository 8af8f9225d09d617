"""Writes the notebooks from their scripts: python notebooks/make.py

The scripts have cells of the "percent" format. There is one notebook for each
accelerator, which differ in what they install.
"""

import json
import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
# Name of a script -> accelerators of its notebooks.
SCRIPTS = {"first_steps": ("gpu", "tpu"), "fine_tune": ("gpu",)}
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Source"]
COLAB = "https://colab.research.google.com/github/{place}/blob/main/notebooks/{name}"
JAX = {"gpu": "jax[cuda12]", "tpu": "jax[tpu]"}
_CELL = re.compile(r"^# %%(?: \[(\w+)\])?\n", re.MULTILINE)


def cells(text: str) -> list[tuple[str, str]]:
    """Kind ("code", "markdown" or "install") and content of every cell of a script."""
    _, *parts = _CELL.split(text)
    return [
        (kind or "code", body.strip("\n"))
        for kind, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def read_script(script: str) -> str:
    """Returns the text of a script."""
    return (HERE / f"{script}.py").read_text(encoding="utf-8")


def notebook(script: str, accelerator: str) -> dict:
    """Returns the content of an .ipynb file."""
    return {
        "cells": [
            _cell(index, kind, _filled(body, kind, script, accelerator))
            for index, (kind, body) in enumerate(cells(read_script(script)))
        ],
        "metadata": {
            "accelerator": accelerator.upper(),
            "colab": {"provenance": []},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(index: int, kind: str, body: str) -> dict:
    cell = {
        "cell_type": "markdown" if kind == "markdown" else "code",
        "id": f"cell-{index}",
        "metadata": {},
    }
    if kind != "markdown":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": body.splitlines(keepends=True)}


def _filled(body: str, kind: str, script: str, accelerator: str) -> str:
    """Puts addresses and the jax package of an accelerator into a cell of text."""
    if kind == "code":
        return body
    body = re.sub("^# ?", "", body, flags=re.MULTILINE)
    place = REPOSITORY.removeprefix("https://github.com/")
    colab = COLAB.format(place=place, name=f"{script}_{accelerator}.ipynb")
    body = body.replace('"JAX"', f'"{JAX[accelerator]}"').replace("(COLAB)", f"({colab})")
    return body.replace("git+REPOSITORY", f"git+{REPOSITORY}")


def main() -> None:
    for script, accelerators in SCRIPTS.items():
        for accelerator in accelerators:
            content = json.dumps(notebook(script, accelerator), indent=1)
            path = HERE / f"{script}_{accelerator}.ipynb"
            path.write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
