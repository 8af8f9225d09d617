"""What README and docs name exists: modules, files, links, config keys, flags, pages of results."""

import dataclasses
import importlib
import importlib.util
import json
import pkgutil
import re
import shlex
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("docs/results", "docs/api/generated", "docs/_build", "docs/jupyter_execute")
SECTIONS = ("task", "model", "data", "training", "evaluation", "optimizer", "mesh", "loss", "mlm")


def pages():
    """Returns all texts that users read, generated pages left out."""
    names = ["README.md", "BUILD_NOTES.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md"]
    names += ["benchmarks/README.md", "studies/README.md", "launch/README.md"]
    docs = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md"))]
    written = [name for name in docs if not name.startswith(GENERATED) and not is_generated(name)]
    return names + written


def configs():
    """Returns the config files, whose docstrings hold commands."""
    return [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("configs/*.py"))]


def is_generated(name):
    """Tells whether the build writes this page."""
    folder, _, file = name.rpartition("/")
    return folder == "docs/api" and file != "index.md"


@cache
def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def resolves(name):
    """Tells whether a dotted name is a module or an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


@pytest.mark.parametrize("name", pages())
def test_modules_and_names_resolve(name):
    named = set(re.findall(r"\blongsum_jax(?:\.[A-Za-z_]\w*)+", text_of(name)))
    assert [found for found in sorted(named) if not resolves(found)] == []


@pytest.mark.parametrize("name", pages())
def test_files_exist(name):
    pattern = r"(?<![\w/.-])((?:configs|benchmarks|studies|docs|launch|notebooks|tests)/[\w/.-]*\w)"
    named = set(re.findall(pattern, text_of(name)))
    missing = [path for path in sorted(named) if not exists(path)]
    assert [path for path in missing if not is_generated(path) and "_build" not in path] == []


def exists(path):
    """Tells whether a file is there; a page of a toctree is named without its ending."""
    return (ROOT / path).exists() or (ROOT / f"{path}.ipynb").exists()


def test_rooms_hold_the_files_that_are_named():
    """Paths such as `ops/attention/lsg.py` are below the package."""
    rooms = "|".join(p.name for p in (ROOT / "longsum_jax").iterdir() if p.is_dir())
    for name in pages():
        for path in re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", text_of(name)):
            assert (ROOT / "longsum_jax" / path).exists(), f"{name}: {path}"


@pytest.mark.parametrize("name", pages())
def test_relative_links(name):
    missing = []
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", text_of(name)):
        if "://" in link:
            continue
        target = (ROOT / name).parent.joinpath(link).resolve().relative_to(ROOT).as_posix()
        if not is_generated(target) and not (ROOT / target).exists():
            missing.append(link)
    assert missing == []


@cache
def known_keys():
    """Returns the keys of every section of a run's config; of models, those of all families."""
    from longsum_jax.experiment.config_files import read_config
    from longsum_jax.models.registry import FAMILIES
    from longsum_jax.text.gap_sentences import GapSentenceOptions
    from longsum_jax.text.segment_inputs import SegmentInputOptions

    config = read_config("configs/finetune.py", {})
    keys = {f"{section}.{key}" for section in SECTIONS for key in config[section]}
    for family in FAMILIES.values():
        keys |= {f"model.{key}" for key in family.config_class.flat_defaults()}
    nested = {"segments": SegmentInputOptions, "gap_sentences": GapSentenceOptions}
    for name, options in nested.items():
        keys |= {f"task.{name}.{field.name}" for field in dataclasses.fields(options)}
    return keys | {"task.segments", "task.claims", "task.cloze"}  # of their own configs alone


@pytest.mark.parametrize("name", pages())
def test_config_keys(name):
    pattern = rf"`(?:--config\.)?((?:{'|'.join(SECTIONS)})\.[\w.]+)(?:\s?=[^`]*)?`"
    named = {
        key
        for key in re.findall(pattern, text_of(name))
        if not key.endswith((".md", ".py", ".safetensors"))
    }
    assert sorted(named - known_keys()) == []


class NothingRunsError(Exception):
    """Raised where a command has read its flags."""


def parse_only(parser, argv):
    _, unknown = parser.parse_known_args(argv)
    assert unknown == []
    raise NothingRunsError


@pytest.mark.parametrize("name", pages() + configs())
def test_commands_have_the_flags_that_they_need(name, monkeypatch):
    from longsum_jax.commands import COMMANDS

    monkeypatch.setattr("argparse.ArgumentParser.parse_args", parse_only)
    text = re.sub(r"\\\n\s*", " ", text_of(name))
    pattern = r"^ *(?:longsum (\w+)|python -m longsum_jax\.(train)) (.*)$"
    for command, train, rest in re.findall(pattern, text, re.MULTILINE):
        command = command or train
        assert command in COMMANDS, f"{name}: longsum {command}"
        argv = shlex.split(rest.partition(" > ")[0], comments=True)
        with pytest.raises(NothingRunsError):
            importlib.import_module(f"longsum_jax.commands.{command}").main(argv)


def test_recipes_of_data_sets():
    """Every data set of the papers is one command, whose task or suite exists."""
    from longsum_jax.data.tasks import get_task
    from longsum_jax.evaluation.scrolls import SUITES

    table = text_of("docs/guide/evaluate.md").partition("### Commands for common data sets")[2]
    rows = re.findall(r"^\| (\w+) \| `(longsum .*?)`", table, re.MULTILINE)
    assert {name for name, _ in rows} == {
        "GovReport",
        "SummScreenFD",
        "QMSum",
        "BookSum",
        "SQuALITY",
    }
    for _, command in rows:
        for flag, value in re.findall(r"--(task|scrolls|zero_scrolls)=(\w+)", command):
            assert get_task(value) if flag == "task" else value in SUITES[flag]


@pytest.mark.parametrize("name", pages())
def test_configs_have_the_modes_that_are_named(name):
    """`FILE:mode,key=value` names a mode or argument of the config file."""
    for file, rest in re.findall(r"--config=(configs/\w+\.py)(?::(\S+))?", text_of(name)):
        source = text_of(file)
        mode = rest.partition(",")[0]
        if mode and "=" not in mode and mode.isidentifier():
            assert f'"{mode}"' in source, f"{name}: {file}:{mode}"
        for key in re.findall(r"(?:^|,)(\w+)=", rest):
            assert f'"{key}"' in source, f"{name}: {file} takes no {key}"


def test_ranks_of_rooms():
    """The table of design/architecture.md is that of tests/test_layering.py."""
    source = text_of("tests/test_layering.py")
    block = re.search(r"^RANKS = \((.*?)^\)", source, re.MULTILINE | re.DOTALL)[1]
    ranks = [set(re.findall(r'"(\w+)"', line)) for line in block.strip().splitlines()]
    shown: list[set[str]] = []
    table = text_of("docs/design/architecture.md").partition("## ")[0]
    for number, rooms in re.findall(r"^\| (\d*) ?\| (`.+?) \|", table, re.MULTILINE):
        if number:
            assert int(number) == len(shown)
            shown.append(set())
        shown[-1] |= set(re.findall(r"`(\w+)`", rooms))
    assert shown == ranks


OF_USERS = ("README.md", "CONTRIBUTING.md", "docs/")


@pytest.mark.parametrize("name", [x for x in pages() if x.startswith(OF_USERS)])
def test_lines_of_code_fit_on_a_page(name):
    inside = False
    long_lines = []
    for number, line in enumerate(text_of(name).splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside and len(line) > 88:
            long_lines.append(f"{name}:{number}: {line}")
    assert long_lines == []


def test_lengths_of_readme_and_notes():
    assert len(text_of("README.md").splitlines()) <= 150
    assert len(text_of("BUILD_NOTES.md").splitlines()) <= 250


def load(name):
    """Imports a script of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_of_results_has_a_page_in_the_repository(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    written = load("make_results").write_pages(tmp_path)
    names = {path.stem for path in (ROOT / "benchmarks/results").glob("*.json")}
    assert {path.stem for path in written} == names
    pages = ROOT / "docs/results"
    kept = {path.name: path.read_text(encoding="utf-8") for path in pages.glob("*.md")}
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.md")}
    assert made == kept, "run python docs/make_results.py"
    for path in written:
        lines = path.read_text(encoding="utf-8").splitlines()
        tables = [line for line in lines if line.startswith("|")]
        assert len(tables) > 2, path.name
        assert any(line.startswith("- Machine:") for line in lines), path.name


def test_the_figure_of_quality_and_cost_shows_means_over_data_sets(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    first, second, third = importlib.import_module("result_pages.cost").draw().axes
    rows = json.loads(text_of("benchmarks/results/extractive_peers.json"))["rows"]
    names = list(dict.fromkeys(row["system"] for row in rows))
    for name, line in zip(names, first.lines, strict=True):
        of_it = [row for row in rows if row["system"] == name]
        for value, key in zip(line.get_xydata()[0], ("seconds", "mean_rouge"), strict=True):
            assert value == pytest.approx(sum(row[key] for row in of_it) / len(of_it))
    names = {text.get_text() for text in second.get_legend().get_texts()}
    assert names == {"direct", "extract", "segments", "hierarchical", "refine"}
    assert "LOCOST x Hepos" in {text.get_text() for text in third.get_legend().get_texts()}


def test_every_file_of_results_is_in_the_list_of_benchmarks_or_studies():
    lists = text_of("benchmarks/README.md") + text_of("studies/README.md")
    rows = [x for x in lists.splitlines() if x.startswith("| ")]
    listed = [name for row in rows for name in re.findall(r"`([\w*]+\.json)`", row.split("|")[-2])]
    kept = {path.name for path in (ROOT / "benchmarks/results").glob("*.json")}
    assert {name for name in kept if not any(fnmatch(name, x) for x in listed)} == set()
    assert [x for x in listed if not any(fnmatch(name, x) for name in kept)] == []


def test_tidy_docstrings():
    tidy = load("docstrings").tidy
    assert tidy(["A * b, x_ and ``c*``."]) == ["A \\* b, x\\_ and ``c*``.", ""]
    drawing = ["Text.", "", "    [ a * b ]", "", "More."]
    assert tidy(drawing) == ["Text.", "", "", "::", "", "    [ a * b ]", "", "", "More.", ""]
    section = ["Args:", "    x: [B, *],", "            more.", "", "End."]
    expected = ["Args:", "    x: [B, \\*],", "        more.", "", "End.", ""]
    assert tidy(section) == expected
    results = ["Returns:", "    a: one,", "        or two.", "    b: three."]
    assert tidy(results) == ["Returns:", "    a: one,", "    or two.", "", "    b: three.", ""]
    assert tidy(["see ``a", "b`` here"]) == ["see", "``a b`` here", ""]
    assert tidy(["see `a", "b` here"]) == ["see", "``a b`` here", ""]


def test_api_pages_leave_out_members_of_flax():
    from longsum_jax.layers.attention.cross import HeposAttention
    from longsum_jax.layers.s4d import S4D

    is_foreign = load("docstrings").is_foreign
    for member in (S4D.setup, S4D.dtype, S4D.param):
        assert is_foreign(member, ["longsum_jax"])
    for member in (S4D.__call__, S4D.ssm, HeposAttention.prepare):
        assert not is_foreign(member, ["longsum_jax"])


def test_signatures_are_shortened():
    shorten = load("docstrings").shorten
    array = "~jaxtyping.Float[~jaxlib._jax.Array, 'b d'] | ~jaxtyping.Float[~numpy.ndarray, 'b d']"
    assert shorten(f"(x: {array})") == "(x: ~jaxtyping.Float[Array, 'b d'])"
    assert shorten("(n: Annotated[int, Range(low=0, high=9)] = 1)") == "(n: int = 1)"
    assert shorten("(f=<function relu at 0x7f>)") == "(f=relu)"


def test_api_pages_cover_every_public_room():
    import longsum_jax

    source = text_of("docs/conf.py")
    rooms = re.findall(r'^    "(\w+)": "', source, re.MULTILINE)
    found = {module.name for module in pkgutil.iter_modules(longsum_jax.__path__) if module.ispkg}
    assert set(rooms) <= found
    namespaces = set(longsum_jax.__all__) & found
    assert namespaces <= set(rooms)


@pytest.mark.parametrize("name", pages())
def test_imports_in_sentences(name):
    """`from longsum_jax.room import A, B` in running text names what the room gives."""
    for module, names in re.findall(r"`from (longsum_jax[\w.]*) import ([\w, ]+)`", text_of(name)):
        for found in names.split(", "):
            assert resolves(f"{module}.{found}"), f"{name}: {module}.{found}"
