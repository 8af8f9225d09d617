"""Writes the notebooks from their script: python notebooks/make.py

``first_steps.py`` is the source, in cells of the "percent" format. There is one notebook for each
accelerator, which differ in what they install.
"""

import json
import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE / "first_steps.py"
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


def notebook(text: str, accelerator: str) -> dict:
    """The content of an .ipynb file."""
    return {
        "cells": [_cell(i, kind, body, accelerator) for i, (kind, body) in enumerate(cells(text))],
        "metadata": {
            "accelerator": accelerator.upper(),
            "colab": {"provenance": []},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(index: int, kind: str, body: str, accelerator: str) -> dict:
    if kind != "code":
        body = _filled(re.sub("^# ?", "", body, flags=re.MULTILINE), accelerator)
    cell = {
        "cell_type": "markdown" if kind == "markdown" else "code",
        "id": f"cell-{index}",
        "metadata": {},
    }
    if kind != "markdown":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": body.splitlines(keepends=True)}


def _filled(body: str, accelerator: str) -> str:
    """Puts addresses and the jax package of an accelerator into a cell."""
    place = REPOSITORY.removeprefix("https://github.com/")
    colab = COLAB.format(place=place, name=f"first_steps_{accelerator}.ipynb")
    body = body.replace('"JAX"', f'"{JAX[accelerator]}"').replace("(COLAB)", f"({colab})")
    return body.replace("git+REPOSITORY", f"git+{REPOSITORY}")


def main() -> None:
    for accelerator in JAX:
        content = json.dumps(notebook(SCRIPT.read_text(), accelerator), indent=1)
        (HERE / f"first_steps_{accelerator}.ipynb").write_text(content + "\n")


if __name__ == "__main__":
    main()
