"""A wheel, installed beside the core dependencies alone, works from an empty directory."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGES = ("longsum_jax", "longsum_plan")
SOURCES = (*PACKAGES, "configs", "setup.py", "pyproject.toml", "README.md", "LICENSE")

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that ``pip wheel .`` makes of a copy of the sources."""
    source = tmp_path_factory.mktemp("source")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=ignore)
        else:
            shutil.copy(path, source / name)
    out = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    [path] = out.glob("*.whl")
    return path


def core_distributions(wheel):
    """Names of all packages that the wheel needs without any extra, and those that they need."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    waiting = re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)
    # (requirement, extras of the package that asks for it)
    waiting = [(Requirement(line), {""}) for line in waiting]
    result = {}
    while waiting:
        requirement, extras = waiting.pop()
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        expected = {"", *requirement.extras}
        extras_of_package = result.setdefault(requirement.name.lower(), set())
        if expected <= extras_of_package:
            continue
        extras_of_package |= expected
        needs = metadata.requires(requirement.name) or ()
        waiting += [(Requirement(line), expected) for line in needs]
    return set(result)


def link_distribution(name, target):
    """Links the files of an installed package into the directory ``target``."""
    distribution = metadata.distribution(name)
    roots = {Path(file).parts[0] for file in distribution.files if ".." not in Path(file).parts}
    for root in roots - {"__pycache__"}:
        link, source = target / root, Path(distribution.locate_file(root))
        if link.exists():  # a namespace that several packages share
            shutil.copytree(source, link, dirs_exist_ok=True, symlinks=True)
        elif source.is_dir() and not (source / "__init__.py").exists() and "." not in root:
            shutil.copytree(source, link)
        else:
            link.symlink_to(source)


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of a fresh environment with the wheel and its core dependencies."""
    directory = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    for name in core_distributions(wheel):
        link_distribution(name, site)
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture
def empty(tmp_path):
    """Options of a process that runs in an empty directory and finds nothing of the checkout."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {"cwd": tmp_path, "env": environment | {"JAX_PLATFORMS": "cpu"}}


def test_wheel_holds_package_configs_and_type_marker(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    configs = {f"longsum_jax/configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}
    assert configs <= names
    assert {"longsum_jax/py.typed", "longsum_jax/__main__.py", "longsum_plan/py.typed"} <= names
    scripts = {path.name for path in (ROOT / "longsum_jax/evaluation").glob("*.js")}
    ranking = {path.name for path in (ROOT / "longsum_jax" / "ranking").iterdir() if path.is_file()}
    assert {f"longsum_jax/ranking/{name}" for name in ranking} <= names
    assert "longsum_jax/experimental/judging/sheet.html" in names
    assert "longsum_jax/experimental/README.md" in names
    pages = {"report.html", "report.css", "published.json", *scripts}
    assert {f"longsum_jax/evaluation/{page}" for page in pages} <= names
    for package in PACKAGES:
        modules = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
        assert modules <= names
    folders = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert folders == set(PACKAGES)


# All in one process.
HELP = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        importlib.import_module(f"longsum_jax.commands.{name}").main(["--help"])
"""


def test_commands_help(python, empty):
    text = run(python.with_name("longsum"), "--help", **empty)
    assert text == run(python, "-m", "longsum_jax", "--help", **empty)
    commands = re.findall(r"^  (\w+) ", text, re.MULTILINE)
    assert {"train", "summarize", "evaluate", "convert", "prepare"} <= set(commands)
    helps = run(python, "-c", HELP, *commands, **empty)
    assert re.findall(r"^usage: longsum (\w+)", helps, re.MULTILINE) == commands


def test_no_optional_package_is_there(python, empty):
    script = "import importlib.util as u; print(*filter(u.find_spec, {names}))"
    names = ("tensorflow", "seqio", "torch", "transformers", "grain", "tokenizers", "matplotlib")
    assert run(python, "-c", script.format(names=names), **empty).split() == []


@pytest.mark.weekly  # .ci/run takes these steps from a wheel every day
def test_quickstart_trains_and_summarizes(python, empty, tiny_run):
    train = (python, "-m", "longsum_jax.train", f"--config={tiny_run}", "--workdir=run")
    assert "steps done" in run(*train, **empty)
    (empty["cwd"] / "text.txt").write_text("A first sentence. A second one follows it. " * 8)
    summarize = (python.with_name("longsum"), "summarize", "--model=run", "text.txt")
    assert run(*summarize, "--max_new_tokens=4", **empty)
    # The same text again: its programs have been compiled.
    read = "longsum_jax.load('run').summarize(open('text.txt').read(), max_new_tokens=4)"
    assert run(python, "-c", f"import longsum_jax; print(repr({read}))", **empty).startswith("[")


def test_copied_config_runs_elsewhere(python, empty):
    shutil.copy(ROOT / "configs" / "quickstart.py", empty["cwd"] / "mine.py")
    script = (
        "from longsum_jax.experiment.config_files import read_config; "
        "print(sorted(read_config('mine.py:tiny', {})))"
    )
    assert "'model'" in run(python, "-c", script, **empty)
