import dataclasses
import sys

import pytest

from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config, set_value, split_overrides
from longsum_jax.layers.attention.full import FullAttention
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS
from longsum_jax.schema import Size

CONFIG = """
MODES = ("base", "other")

def get_config(mode):
    data = {"rows": 8, "rate": 0.1, "lengths": (1, 2), "on": True, "name": "a", "cap": None}
    return {"mode": mode, "data": data}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.py"
    path.write_text(CONFIG)
    return path


def write(tmp_path, text):
    path = tmp_path / "config.py"
    path.write_text(text)
    return path


def test_modes_and_overrides_in_the_argument(config):
    assert read_config(f"{config}", {})["mode"] == "base"
    assert read_config(f"{config}:other", {})["mode"] == "other"
    result = read_config(f"{config}:other,data.rows=4,data.name=x=y", {"data.rows": "16"})
    assert (result["mode"], result["data"]["rows"], result["data"]["name"]) == ("other", 16, "x=y")
    result = read_config(f"{config}:data.rows=4", {})
    assert (result["mode"], result["data"]["rows"]) == ("base", 4)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_commas_in_quotes_and_brackets_belong_to_the_value(config, quote):
    text = f"other,data.name={quote}a,b=c.jsonl{quote},data.lengths=(64,128),data.rows=4"
    data = read_config(f"{config}:{text}", {})["data"]
    assert (data["name"], data["lengths"], data["rows"]) == ("a,b=c.jsonl", (64, 128), 4)
    plain = read_config(f"{config}:data.name=o'neil.jsonl,data.rows=4", {})["data"]
    assert (plain["name"], plain["rows"]) == ("o'neil.jsonl", 4)
    with pytest.raises(InputError, match=r'"b\.jsonl" is not key=value; .* key="a,b"'):
        read_config(f"{config}:data.name=a,b.jsonl", {})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("rows", "16", 16),
        ("rows", "-1", -1),
        ("rate", "3e-4", 3e-4),
        ("rate", "2", 2.0),
        ("lengths", "(64,128)", (64, 128)),
        ("lengths", "64,128", (64, 128)),
        ("lengths", "[64]", (64,)),
        ("lengths", "64", (64,)),
        ("lengths", "()", ()),
        ("lengths", "rouge,meteor", ("rouge", "meteor")),
        ("on", "false", False),
        ("on", "True", True),
        ("on", "0", False),
        ("name", "12", "12"),
        ("name", "", ""),
        ("name", "None", "None"),
        ("cap", "64", 64),
        ("cap", "json:{split}.jsonl", "json:{split}.jsonl"),
        ("cap", "{[name]}", "{[name]}"),
        ("cap", "{[1]}", "{[1]}"),
        ("cap", "true", True),
        ("cap", "none", None),
        ("rows", "None", None),
        ("rows", "none", None),
        ("on", "none", None),
        ("lengths", "none", ("none",)),
    ],
)
def test_values_are_read_as_their_types(config, key, text, value):
    result = read_config(str(config), {f"data.{key}": text})["data"][key]
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        (
            "data.row",
            "1",
            'config.data: unknown key "row"; did you mean "rows"? '
            "known: cap, lengths, name, on, rate, rows",
        ),
        ("dat.rows", "1", 'config: unknown key "dat"; did you mean "data"? known: data, mode'),
        (
            "data",
            "1",
            "config.data is a section with the keys rows, rate, lengths, on, name, cap; "
            "set one of them",
        ),
        ("mode.x", "1", 'config.mode is a value; it has no key "x"'),
        ("data.rows", "1.5", 'config.data.rows: "1.5" is not a whole number; give one such as 8'),
        ("data.rows", "many", 'config.data.rows: "many" is not a whole number; give one such as 8'),
        ("data.rows", "True", 'config.data.rows: "True" is not a whole number; give one such as 8'),
        ("data.rate", "fast", 'config.data.rate: "fast" is not a number; give one such as 0.1'),
        ("data.on", "maybe", 'config.data.on: "maybe" is neither true nor false'),
    ],
)
def test_overrides_that_do_not_fit(config, key, text, problem):
    with pytest.raises(InputError) as caught:
        read_config(str(config), {key: text})
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("mode", "text", "value"),
    [("number", "epoch", "epoch"), ("word", "50", 50), ("word", "epoch", "epoch")],
)
def test_evaluations_may_come_once_an_epoch_or_every_so_many_steps(tmp_path, mode, text, value):
    written = """
def get_config(mode):
    return {"training": {"eval_every": {"number": 500, "word": "epoch"}[mode]}}
"""
    path = write(tmp_path, written)
    key = "training.eval_every"
    assert read_config(f"{path}:{mode}", {key: text})["training"]["eval_every"] == value
    with pytest.raises(InputError, match=r'"epcoh" is not a whole number; did you mean "epoch"'):
        read_config(f"{path}:{mode}", {key: "epcoh"})


def test_a_word_may_stand_for_true_and_false():
    key = "evaluation.early_stopping"
    values = {"never": "never", "false": False, "true": True, "True": True, "none": None}
    for old in (True, False, "never", None):
        config = {"evaluation": {"early_stopping": old}}
        for text, value in values.items():
            set_value(config, key, text)
            assert config["evaluation"]["early_stopping"] is value
    for old in (True, "never"):
        config = {"evaluation": {"early_stopping": old}}
        with pytest.raises(InputError, match='"ever" is neither true nor false'):
            set_value(config, key, "ever")


def test_a_config_is_a_python_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(CONFIG)
    with pytest.raises(
        InputError, match=r"config\.json is not a Python file; give one that ends in"
    ):
        read_config(str(path), {})


def test_names_may_be_listed_where_none_is_the_default():
    config = {"task": {"labels": None, "prefix": None}}
    set_value(config, "task.labels", "good,bad")
    set_value(config, "task.prefix", "good,bad")
    assert config["task"] == {"labels": ("good", "bad"), "prefix": "good,bad"}
    set_value(config, "task.labels", "None")
    assert config["task"]["labels"] is None


def test_flags_are_split_from_overrides():
    argv = ["--config=c.py", "--config.a.b=1=2", "--workdir", "w", "--config.c", "-3"]
    assert split_overrides(argv) == (["--config=c.py", "--workdir", "w"], {"a.b": "1=2", "c": "-3"})
    with pytest.raises(
        InputError, match=r"--config\.a: the value is missing; write --config\.a=VALUE"
    ):
        split_overrides(["--config.a"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def get_config(", r"cannot be run as a config \(SyntaxError: .*\); fix the file"),
        (
            "import no_such_module",
            r"cannot be run as a config \(ModuleNotFoundError: No module named 'no_such_module'\)",
        ),
        ("x = 1", r"defines no get_config\(mode\)"),
        (
            "def get_config(mode):\n    return {}['x']",
            r"cannot be run as a config \(KeyError: 'x'\)",
        ),
        ("def get_config(mode):\n    return 3", r"cannot be run as a config \(TypeError: .*\)"),
        (
            "from longsum_jax.models.registry import preset\npreset('locost', 'bas')",
            r'unknown locost preset "bas"; did you mean "base',
        ),
    ],
)
def test_files_that_are_no_configs(tmp_path, text, problem):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=problem) as caught:
        read_config(str(path), {})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        (":othr", r'config\.py: unknown mode "othr"; did you mean "other"\? known: base, other'),
        (":base,data.rows", r'"data\.rows" is not key=value'),
    ],
)
def test_arguments_that_do_not_fit(config, argument, problem):
    with pytest.raises(InputError, match=problem):
        read_config(f"{config}{argument}", {})


def test_arguments_that_the_file_declares(tmp_path):
    text = """
ARGUMENTS = ("model", "data")
def get_config(mode, model="none", data="here"):
    return {"mode": mode, "model": {"name": model}, "task": {"source": data, "rows": 1}}
MODES = ("base", "other")
"""
    path = write(tmp_path, text)
    result = read_config(
        f"{path}:other,data=json:x=y.jsonl,model=DIR,task.rows=2", {"task.rows": "3"}
    )
    assert result == {
        "mode": "other",
        "model": {"name": "DIR"},
        "task": {"source": "json:x=y.jsonl", "rows": 3},
    }
    assert read_config(f"{path}:model=DIR", {})["model"]["name"] == "DIR"
    assert read_config(str(path), {})["task"]["source"] == "here"
    with pytest.raises(InputError) as caught:
        read_config(f"{path}:datta=FILE", {})
    assert str(caught.value) == (
        f'{path}: "datta" is neither an argument (model, data) nor a section of its config; '
        'did you mean "data"? known: data, mode, model, task'
    )


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_missing_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"--config={name}: no such file, neither here nor in "):
        read_config(name, {})


def test_the_name_of_a_shipped_config_is_suggested():
    with pytest.raises(InputError, match=r'did you mean "configs/quickstart.py"\? known: configs/'):
        read_config("quickstart", {})
    with pytest.raises(InputError, match="known: ") as caught:
        read_config("configs/zzzz.py", {})
    assert "common.py" not in str(caught.value)  # which is no config


def test_found_beside_the_package_from_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_config("configs/quickstart.py:tiny", {})["model"]["family"] == "locost"


def test_files_of_one_directory_share_common(tmp_path, monkeypatch):
    other = type(sys)("common")
    monkeypatch.setitem(sys.modules, "common", other)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "common.py").write_text(f"NAME = {name!r}")
        text = "import common\ndef get_config(mode):\n    return {'name': common.NAME}"
        path = write(tmp_path / name, text)
        assert read_config(str(path), {}) == {"name": name}
    assert sys.modules["common"] is other
    assert str(tmp_path / "a") not in sys.path


def test_set_value_replaces_in_place():
    config = {"a": {"b": {"c": 1}}}
    set_value(config, "a.b.c", "2")
    assert config == {"a": {"b": {"c": 2}}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DilatedOptions(EncoderAttentionOptions):
    dilation: Size = 8


class DilatedAttention(FullAttention):
    Options = DilatedOptions


def test_options_of_attentions_of_other_packages_are_keys(monkeypatch):
    monkeypatch.setitem(ENCODER_ATTENTIONS, "dilated", DilatedAttention)
    option = {"model.dilation": "3"}
    spec = "configs/quickstart.py:tiny"
    run = run_config(read_config(spec, option | {"model.encoder_attention": "dilated"}))
    assert run.model.attention == DilatedOptions(dilation=3)
    with pytest.raises(InputError, match='unknown key "dilation"'):
        read_config(spec, option)
