"""The rooms of the package are in a strict order; imports run downwards, and in no circle.

The planner, a package of its own, is one room among them.

Imports inside functions count as all others do.
"""

import ast
import importlib
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import longsum_jax

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "longsum_jax"
PLANNER = ROOT / "longsum_plan"

# A module imports modules of its own room and of rooms that stand further up in this list.
RANKS = (
    {"errors", "typing", "configs", "lazy_classes"},
    {"schema", "files", "locks", "plugins", "progress", "extra"},
    {"atomic", "compressed", "remote"},
    {"checksums", "beam_pipeline"},
    {"ops", "tokenizers", "decoding", "training"},
    {"layers", "text", "longsum_plan"},
    {"models", "data", "ranking", "readers"},
    {"checkpoints", "conversion"},
    {"inference"},
    {"summarization"},
    {"evaluation"},
    {"experiment", "analysis"},
    {"serving"},
    {"experimental"},
    {"commands"},
)
RANK = {room: rank for rank, rooms in enumerate(RANKS) for room in rooms}
# What users import and start: these may import any room.
DOORS = ("longsum_jax", "longsum_jax.__main__", "longsum_jax.train")

ARRAY_ROOMS = ("ops", "layers", "models", "decoding")
ARRAY_PACKAGES = {"jax", "jaxtyping", "flax", "lazy_loader", "numpy", "longsum_jax"}
OPTIONAL = (
    "apache_beam",
    "tensorflow",
    "tensorflow_datasets",
    "seqio",
    "ml_collections",
    "torch",
    "transformers",
    "nltk",
    "grain",
    "array_record",
    "matplotlib",
    "tokenizers",
    "jinja2",
    "fsspec",
    "huggingface_hub",
    "tensorboardX",
    "pyarrow",
    "pypdfium2",
    "selectolax",
    "striprtf",
    "chardet",
    "backports",
    "starlette",
    "uvicorn",
    "python_multipart",
    "markdown_it",
    "wandb",
    "mlflow",
)
NEEDS_SEQIO = "longsum_jax.data.seqio_tasks"  # the module that seqio's own commands import
# The application of the extra "serve", which `longsum serve` imports.
NEED_STARLETTE = tuple(
    f"longsum_jax.serving.{name}"
    for name in ("app", "bodies", "chat", "events", "guard", "jobs", "served_models", "uploads")
)

NEEDS_UVICORN = "longsum_jax.serving.connections"  # the same

BLOCK_AND_IMPORT = """
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
    names = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


PATHS = sorted([*PACKAGE.rglob("*.py"), *PLANNER.rglob("*.py")])
FILES = {module_name(path): path for path in PATHS}


@cache
def imported_names(module):
    """Full names of everything that a module imports, inside functions too."""
    result = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            result |= {f"{node.module}.{alias.name}" for alias in node.names}
    return result


@cache
def imported_modules(module):
    """Modules of this package that a module imports."""
    result = set()
    for name in imported_names(module):
        while name and name not in FILES:
            name = name.rpartition(".")[0]
        if name and name != module:
            result.add(name)
    # A registry of lazy classes imports by name what it lists.
    package = module.rpartition(".")[0]
    listed = re.findall(r'f"\{_PACKAGE\}\.(\w+):', FILES[module].read_text())
    return result | {f"{package}.{name}" for name in listed}


FRONT_DOOR = {"longsum_jax", *(f"longsum_jax.{name}" for name in longsum_jax.__all__)}


def room_of(module):
    package, *names = module.split(".")
    return names[0] if package == "longsum_jax" else package


def modules_of(*rooms):
    result = [name for name in FILES if name not in DOORS and room_of(name) in rooms]
    assert len(result) >= len(rooms)
    return result


def test_every_room_has_a_rank():
    rooms = {room_of(name) for name in FILES if name not in DOORS}
    assert rooms == set(RANK)


def test_imports_run_downwards():
    for room in RANK:
        for module in modules_of(room):
            for other in imported_modules(module) - {"longsum_jax"}:
                lower = room_of(other) == room or RANK[room_of(other)] < RANK[room]
                assert lower, f"{module} imports {other}"


def test_rooms_take_nothing_but_the_version_from_the_front_door():
    for module in modules_of(*RANK):
        assert not (imported_names(module) & FRONT_DOOR) - {"longsum_jax.__version__"}, module


def test_no_import_circle():
    """Removes modules that import no remaining module until none is left; a circle would remain."""
    rest = {module: imported_modules(module) for module in FILES if module not in DOORS}
    while rest:
        leaves = {module for module, imports in rest.items() if not imports & rest.keys()}
        assert leaves, f"import circle among {sorted(rest)}"
        rest = {module: imports for module, imports in rest.items() if module not in leaves}


def test_array_rooms_import_array_packages_only():
    """Operations know no Flax, either."""
    for module in modules_of(*ARRAY_ROOMS):
        packages = {name.split(".")[0] for name in imported_names(module)}
        assert packages - set(sys.stdlib_module_names) <= ARRAY_PACKAGES, module
        assert room_of(module) != "ops" or "flax" not in packages, module


def test_the_planner_has_one_tie_to_the_library():
    """Programs are handed over to be lowered; errors and the memory of this machine are shared."""
    shared = {"longsum_jax.errors", "longsum_jax.ops.device_memory"}
    users = set()
    for module in FILES:
        imports = imported_modules(module)
        of_planner = {name for name in imports if name.startswith("longsum_plan")}
        if module.startswith("longsum_plan"):
            assert imports - of_planner <= shared, module
        elif of_planner:
            users.add(module)
    tie = {"inference.abstract", "experiment.programs", "experiment.operations"}
    tie |= {"commands.plan", "commands.faster_steps"}
    assert users == {f"longsum_jax.{name}" for name in tie}


def test_training_knows_no_data_set_and_no_model():
    for module in modules_of("training"):
        rooms = {room_of(name) for name in imported_modules(module) if name.count(".")}
        assert rooms <= {"training", *RANKS[0], *RANKS[1], *RANKS[2], *RANKS[3]}, module


def test_heavy_packages_are_imported_inside_functions():
    modules = modules_of("tokenizers", "text", "ranking", "data", "readers", "evaluation")
    for module in set(modules) - {NEEDS_SEQIO}:
        for node in ast.parse(FILES[module].read_text()).body:
            if isinstance(node, ast.Import):
                packages = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                packages = {node.module.split(".")[0]}
            else:
                continue
            assert not packages & set(OPTIONAL), module


def run_python(script):
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_module_imports_without_the_optional_packages():
    needs_extra = (NEEDS_SEQIO, *NEED_STARLETTE, NEEDS_UVICORN, "longsum_jax.__main__")
    modules = [name for name in FILES if name not in needs_extra]
    run_python(BLOCK_AND_IMPORT.format(blocked=set(OPTIONAL), modules=modules))


def test_front_door_is_light():
    """The bare import is quick because it imports none of the large packages, jax included."""
    script = "import sys, longsum_jax; dir(longsum_jax); print(*sys.modules)"
    loaded = {name.split(".")[0] for name in run_python(script).split()}
    assert not loaded & {*OPTIONAL, "jax", "flax", "numpy"}


HELP = """
import contextlib, io, importlib, sys
from longsum_jax.commands import COMMANDS
for name in COMMANDS:
    command = importlib.import_module(f"longsum_jax.commands.{name}")
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        command.main(["--help"])
    assert f"longsum {name}" in out.getvalue(), name
print(*sys.modules)
"""


def test_help_is_light():
    """The help of every command, metrics by name included, imports no jax."""
    loaded = {name.split(".")[0] for name in run_python(HELP).split()}
    assert not loaded & {*OPTIONAL, "jax", "flax"}


FRONT_NAMES = {"load", "pipeline", "summarize", "Model", "Summary", "InputError", "__version__"}
FRONT_ROOMS = {"ops", "layers", "models", "conversion", "tokenizers", "text", "ranking", "readers"}
FRONT_ROOMS |= {"data", "training", "evaluation"}


def test_front_door_shows_its_names():
    namespaces = {name for name in dir(longsum_jax) if f"longsum_jax.{name}" in FILES}
    assert namespaces == FRONT_ROOMS
    assert set(dir(longsum_jax)) - namespaces == FRONT_NAMES
    for name in dir(longsum_jax):
        assert getattr(longsum_jax, name) is not None
    for namespace in namespaces:
        room = getattr(longsum_jax, namespace)
        for name in dir(room):
            assert getattr(room, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        longsum_jax.no_such_name  # noqa: B018


def test_public_names_of_rooms_can_be_imported():
    rooms = {stub.parent.name for stub in PACKAGE.glob("*/__init__.pyi")}
    assert {"ops", "layers", "models", "text", "data", "decoding", "training"} <= rooms
    for room in rooms:
        module = importlib.import_module(f"longsum_jax.{room}")
        for name in module.__all__:
            assert getattr(module, name) is not None


def test_no_pattern_repeats_a_group_possessively():
    """Before Python 3.11.5, ``re`` matches such patterns wrongly."""
    possessive = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not possessive.search(node.value), f"{name}: {node.value}"
