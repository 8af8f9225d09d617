"""Which module may import what; see the wings of the design."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "longsum_jax"
NUMBERS = ("ops", "layers", "models", "decoding")
TEXT = ("text", "data", "metrics")
BLOCKED = (
    "tensorflow",
    "tensorflow_datasets",
    "seqio",
    "ml_collections",
    "torch",
    "transformers",
    "rouge_score",
    "grain",
    "matplotlib",
)
NEEDS_SEQIO = "longsum_jax.data.seqio_tasks"  # what seqio's own commands import

SCRIPT = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
for name in {modules}:
    importlib.import_module(name)
"""


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_files(*wings):
    files = sorted(path for wing in wings for path in (PACKAGE / wing).rglob("*.py"))
    assert len(files) >= len(wings)
    return files


def imported_modules(path):
    """Full names of all modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wings_of(path):
    """Parts of longsum_jax that a file imports."""
    names = (name.split(".") for name in imported_modules(path))
    return {name[1] for name in names if name[0] == "longsum_jax" and len(name) > 1}


def test_every_module_imports_without_the_optional_packages():
    modules = [module_name(path) for path in sorted(PACKAGE.rglob("*.py"))]
    modules.remove(NEEDS_SEQIO)
    script = SCRIPT.format(blocked=set(BLOCKED), modules=modules)
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", python_files(*NUMBERS), ids=module_name)
def test_numbers_import_jax_flax_and_numpy_only(path):
    roots = {name.split(".")[0] for name in imported_modules(path)} - set(sys.stdlib_module_names)
    assert roots <= {"jax", "flax", "numpy", "longsum_jax"}


@pytest.mark.parametrize("path", python_files("ops"), ids=module_name)
def test_operations_know_no_flax_and_no_other_part(path):
    assert not any(name.split(".")[0] == "flax" for name in imported_modules(path))
    assert wings_of(path) <= {"ops", "typing", "errors"}


@pytest.mark.parametrize("path", python_files(*NUMBERS, *TEXT), ids=module_name)
def test_numbers_and_text_do_not_touch(path):
    wing = path.relative_to(PACKAGE).parts[0]
    other = TEXT if wing in NUMBERS else NUMBERS
    assert not wings_of(path) & {*other, "training", "checkpoints", "pipeline", "registry"}


@pytest.mark.parametrize(
    ("lower", "upper"), [("ops", "layers"), ("layers", "models"), ("text", "data")]
)
def test_imports_run_downwards(lower, upper):
    for path in python_files(lower):
        assert upper not in wings_of(path), path


@pytest.mark.parametrize("path", python_files(*TEXT), ids=module_name)
def test_text_imports_heavy_packages_inside_functions_alone(path):
    if module_name(path) == NEEDS_SEQIO:
        return
    for node in ast.parse(path.read_text()).body:
        names = [alias.name for alias in getattr(node, "names", ())] + [
            getattr(node, "module", None) or ""
        ]
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not {name.split(".")[0] for name in names} & set(BLOCKED)
