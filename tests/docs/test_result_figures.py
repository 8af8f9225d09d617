"""Figures that only pages of results have."""

import importlib
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def panels(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("result_pages.panels")


def probe_row(model, task, length, mean_by_distance):
    mean = sum(mean_by_distance) / len(mean_by_distance)
    row = {"model": model, "task": task, "length": length, "mean": mean, "interval": 0.1}
    return row | {"mean_by_distance": mean_by_distance}


def test_probes_have_a_line_and_a_row_of_cells_for_every_model(panels):
    rows = [
        probe_row("s4d", "needle", 512, [1.0, 0.5]),
        probe_row("s4d", "needle", 2048, [0.25, 0.75]),
        probe_row("full", "needle", 2048, [0.0, 0.5]),
        probe_row("full", "recall", 512, [0.0, 0.0]),
    ]
    figure = panels.probes_figure(rows, 7.0)
    needle, needle_cells, recall, _, _ = figure.axes
    lines = [container.lines[0] for container in needle.containers]
    assert [list(line.get_xdata()) for line in lines] == [[512, 2048], [2048]]
    assert all(bar.get_linewidths()[0] > 0 for c in needle.containers for bar in c.lines[2])
    assert len(needle.get_xticks(minor=True)) == 0
    assert [list(line.get_ydata()) for line in lines] == [[0.75, 0.5], [0.25]]
    assert needle.get_ylabel() == "needle: right answers"
    assert recall.get_ylabel() == "recall: right answers"
    [image] = needle_cells.images
    expected = [[1.0, 0.5, 0.25, 0.75], [np.nan, np.nan, 0.0, 0.5]]
    np.testing.assert_array_equal(image.get_array().filled(np.nan), expected)
    assert [label.get_text() for label in needle_cells.get_yticklabels()] == ["s4d", "full"]
    assert [label.get_text() for label in needle_cells.get_xticklabels()] == ["512", "2K"]


def test_points_have_a_name_each_and_panels_their_own_scale(panels):
    fast = panels.Panel("fast", "s", "ROUGE", {"ours": (0.1, 30.0), "theirs": (1.0, 20.0)}, "log")
    short = panels.Panel("short", "share", "ROUGE", {"all": (1.0, 25.0)})
    first, second = panels.points_figure([fast, short], (6, 3)).axes
    assert [list(line.get_xydata()[0]) for line in first.lines] == [[0.1, 30.0], [1.0, 20.0]]
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["ours", "theirs"]
    assert (first.get_xscale(), second.get_xscale()) == ("log", "linear")
    assert (second.get_xlabel(), second.get_ylabel()) == ("share", "ROUGE")
