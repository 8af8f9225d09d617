"""What README and docs name exists: modules, files, links, config keys, flags, results."""

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
GENERATED = ("docs/api/generated", "docs/_build", "docs/jupyter_execute")
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
            result = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(result, part) and part not in getattr(result, "__annotations__", {}):
                return False
            result = getattr(result, part, None)
        return True
    return False


def matches(pattern, names=()):
    """Yields (page, match) of a pattern in texts: in all pages without ``names``."""
    for name in names or pages():
        for match in re.findall(pattern, text_of(name)):
            yield name, match


def test_modules_and_names_resolve():
    dotted = matches(r"\blongsum_jax(?:\.[A-Za-z_]\w*)+")
    assert [(page, name) for page, name in dotted if not resolves(name)] == []


def test_imports_in_sentences():
    """`from longsum_jax.room import A, B` in running text names what the room gives."""
    for page, (module, names) in matches(r"`from (longsum_jax[\w.]*) import ([\w, ]+)`"):
        for name in names.split(", "):
            assert resolves(f"{module}.{name}"), f"{page}: {module}.{name}"


def test_files_exist():
    pattern = r"(?<![\w/.-])((?:configs|benchmarks|studies|docs|launch|notebooks|tests)/[\w/.-]*\w)"
    missing = [(page, path) for page, path in matches(pattern) if not exists(path)]
    assert [x for x in missing if not is_generated(x[1]) and "_build" not in x[1]] == []


def exists(path):
    """Tells whether a file is there; a page of a toctree is named without its ending."""
    return (ROOT / path).exists() or (ROOT / f"{path}.ipynb").exists()


def test_rooms_hold_the_files_that_are_named():
    """Paths such as `ops/attention/lsg.py` are below the package."""
    rooms = "|".join(p.name for p in (ROOT / "longsum_jax").iterdir() if p.is_dir())
    for page, path in matches(rf"`((?:{rooms})/[\w/]+\.py)`"):
        assert (ROOT / "longsum_jax" / path).exists(), f"{page}: {path}"


def test_relative_links():
    for page, link in matches(r"\]\(([^)\s]+)\)"):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        name = target.relative_to(ROOT).as_posix()
        assert is_generated(name) or target.exists(), f"{page}: {link}"
        if anchor and name.startswith("docs/") and name.endswith(".md"):
            assert anchor in anchors(name), f"{page}: {link}"


@cache
def anchors(name):
    """Returns the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text_of(name), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


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


def test_config_keys():
    pattern = rf"`(?:--config\.)?((?:{'|'.join(SECTIONS)})\.[\w.]+)(?:\s?=[^`]*)?`"
    for page, key in matches(pattern):
        if not key.endswith((".md", ".py", ".safetensors")):
            assert key in known_keys(), f"{page}: {key}"


class NothingRunsError(Exception):
    """Raised where a command has read its flags."""


def parse_only(parser, argv):
    _, unknown = parser.parse_known_args(argv)
    assert unknown == [], argv
    raise NothingRunsError


def test_commands_have_the_flags_that_they_need(monkeypatch):
    from longsum_jax.commands import COMMANDS

    monkeypatch.setattr("argparse.ArgumentParser.parse_args", parse_only)
    pattern = r"^ *(?:longsum (\w+)|python -m longsum_jax\.(train)) (.*)$"
    for name in pages() + configs():
        text = re.sub(r"\\\n\s*", " ", text_of(name))
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


def test_configs_have_the_modes_that_are_named():
    """`FILE:mode,key=value` names a mode or argument of the config file."""
    for page, (file, rest) in matches(r"--config=(configs/\w+\.py)(?::(\S+))?"):
        source = text_of(file)
        mode = rest.partition(",")[0]
        if mode and "=" not in mode and mode.isidentifier():
            assert f'"{mode}"' in source, f"{page}: {file}:{mode}"
        for key in re.findall(r"(?:^|,)(\w+)=", rest):
            assert f'"{key}"' in source, f"{page}: {file} takes no {key}"


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


def test_lines_of_code_fit_on_a_page():
    for page in (x for x in pages() if x.startswith(OF_USERS)):
        inside = False
        for number, line in enumerate(text_of(page).splitlines(), 1):
            if line.lstrip().startswith("```"):
                inside = not inside
            assert not inside or len(line) <= 88, f"{page}:{number}: {line}"


def test_lengths_of_readme_and_notes():
    assert len(text_of("README.md").splitlines()) <= 150
    assert len(text_of("BUILD_NOTES.md").splitlines()) <= 250


def load(name):
    """Imports a script of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return load("make_results")


def test_every_file_of_results_has_tables_on_one_page(make_results):
    marks = [name for page in make_results.PAGES for name in make_results.MARKS.findall(read(page))]
    assert len(marks) == len(set(marks))
    assert set(marks) == set(make_results.TABLES)
    assert {path.stem for path in make_results.FILES.glob("*.json")} <= set(marks)


def test_tables_of_results_are_current(make_results):
    for page in make_results.PAGES:
        assert make_results.refresh(read(page)) == read(page), "run python docs/make_results.py"


def read(path):
    return path.read_text(encoding="utf-8")


def test_tables_select_average_and_turn_rows(make_results):
    tables = importlib.import_module("result_pages.tables")
    rows = [
        {"model": name, "tokens": tokens, "seed": seed, "seconds": seconds, "fits": True}
        for name, tokens, seed, seconds in (("b", 20, 0, 1.0), ("b", 20, 1, 2.0), ("a", 1000, 0, 3))
    ] + [{"model": "none"}]
    table = tables.Table(
        {"model": "model", "fits": "fits", "note": "note"},
        "Times",
        where={"seconds": "present", "note": "absent", "model": ["a", "b"]},
        mean=("model", "tokens"),
        sort=("model",),
        across="tokens",
        cells={"{}, s": "seconds:.2f", "{}, seeds": "count"},
    )
    assert tables.render(table, rows) == [
        *("Times:", "", "| model | fits | 20, s | 20, seeds | 1,000, s | 1,000, seeds |"),
        "|---|---|---|---|---|---|",
        "| a | yes |  |  | 3.00 | 1 |",
        *("| b | yes | 1.50 | 2 |  |  |", ""),
    ]
    assert [tables.show({"x": x}, "x:sig") for x in (12345.6, 0.012345)] == ["12,346", "0.0123"]
    with pytest.raises(ValueError, match="no row for the table with the columns model"):
        tables.render(table, [])


def test_modes_with_equal_plans_share_a_row(make_results):
    def plan(case, device, total_gb, **changes):
        sizes = {"documents": 8, "tokens": 512, "accumulation": 1, "least_ms": 2.0}
        return sizes | {"case": case, "device": device, "total_gb": total_gb} | changes

    rows = [
        plan("lsg:a", "old", 3.0),
        *(plan(f"lsg:{mode}", "new", 9 if mode == "c" else 1) for mode in "abc"),
        plan("lsg:d", "new", 1.0, tokens=1024),
        plan("hepos:a", "new", 1.0),
        plan("lsg:b", "old", 4.0),
    ]
    result = make_results.rows.equal_plans(rows, "new")
    assert [(row["case"], row["device"], row["total_gb"]) for row in result] == [
        ("lsg:a, b", "old", 4),
        ("lsg:a, b", "new", 1),
        ("lsg:c", "new", 9),
        ("lsg:d", "new", 1),
        ("hepos:a", "new", 1),
    ]


def test_the_figure_of_quality_and_cost_shows_means_over_data_sets(make_results):
    first, second, third = make_results.FIGURES["quality"](make_results.read).axes
    rows = make_results.read("extractive_peers")["rows"]
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
    retained = {path.name for path in (ROOT / "benchmarks/results").glob("*.json")}
    assert {name for name in retained if not any(fnmatch(name, x) for x in listed)} == set()
    assert [x for x in listed if not any(fnmatch(name, x) for name in retained)] == []


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
    result = {module.name for module in pkgutil.iter_modules(longsum_jax.__path__) if module.ispkg}
    assert set(rooms) <= result
    namespaces = set(longsum_jax.__all__) & result
    assert namespaces <= set(rooms)


# Families of benchmarks/parity.py by the beginning of a row of README's table.
MODELS_OF_ROW = {
    "T5 1.0": "t5 t5_v1_1 ul2 mt5 umt5",
    "LongT5": "longt5",
    "T5Gemma,": "t5gemma t5gemma2",
    "BART": "bart mbart barthez",
    "PEGASUS (": "pegasus pegasus_tables",
    "PEGASUS-X": "pegasus_x",
    "LED": "led",
    "BigBird-PEGASUS": "bigbird_pegasus",
    "BERT2BERT": "bert2bert longformer2roberta electra2electra",
    "BERT,": "bert roberta xlm_roberta camembert mpnet distilbert electra albert",
    "ModernBERT": "modernbert",
    "DeBERTaV3": "deberta",
    "Longformer": "longformer big_bird",
}


def test_errors_of_families_in_the_readme_are_measured():
    readme = (ROOT / "README.md").read_text()
    rows = json.loads((ROOT / "benchmarks" / "results" / "parity.json").read_text())["rows"]
    variant = re.compile("_(local|global|wide|windows|labels|states)$")
    for start, names in MODELS_OF_ROW.items():
        errors = [
            max(row["states_error"], row.get("logits_error", 0))
            for row in rows
            if variant.sub("", row["family"]) in names.split()
        ]
        (line,) = [line for line in readme.splitlines() if line.startswith(f"| {start}")]
        assert float(line.split("|")[-2]) == float(f"{max(errors):.0e}"), start
