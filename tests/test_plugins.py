"""Plugins named by an environment variable or by entry points."""

import sys
from importlib.metadata import EntryPoint

import pytest

from longsum_jax import plugins
from longsum_jax.errors import InputError

SOURCE = """
from longsum_jax.evaluation.registry import METRICS

METRICS["plugged"] = object
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that registers a metric "plugged"."""
    from longsum_jax.evaluation.registry import METRICS

    (tmp_path / "plugged_metric.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    monkeypatch.delenv(plugins.VARIABLE, raising=False)
    yield "plugged_metric"
    METRICS.pop("plugged", None)
    sys.modules.pop("plugged_metric", None)


def is_registered():
    from longsum_jax.evaluation.registry import METRICS

    return "plugged" in METRICS


def test_without_plugins_nothing_is_imported(module):
    plugins.load_plugins()
    assert not is_registered()


def test_the_variable_names_modules(module, monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, f"json, {module}")
    plugins.load_plugins()
    assert is_registered()


def test_entry_points_name_modules(module, monkeypatch):
    entry = EntryPoint("mine", module, plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    plugins.load_plugins()
    assert is_registered()


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (None, r'names the plugin "plugged_metric", whose import fails \(ModuleNotFoundError'),
        ("1 / 0", r"whose import fails \(ZeroDivisionError: division by zero\); install it"),
    ],
)
def test_a_plugin_that_fails_is_one_sentence(module, tmp_path, monkeypatch, source, problem):
    path = tmp_path / "plugged_metric.py"
    path.unlink() if source is None else path.write_text(source)
    monkeypatch.setenv(plugins.VARIABLE, module)
    with pytest.raises(InputError, match=problem):
        plugins.load_plugins()
