"""What is drawn of runs, kernels and probes."""

import numpy as np
import pytest

from longsum_jax.analysis import figures, kernels, records


def test_curves_draws_every_run(write_run):
    workdir = write_run("run")
    other = write_run("other", [{"step": 10, "loss": 3.0, "learning_rate": 0.3}])
    figure = figures.curves_figure([records.read_run(path) for path in (workdir, other)], (7, 2.4))
    loss, rate, rouge = figure.axes
    assert [line.get_ydata()[0] for line in loss.lines] == [4.0, 3.0]
    assert [line.get_ydata()[0] for line in rate.lines] == [0.1, 0.3]
    assert [line.get_ydata()[0] for line in rouge.lines] == [
        12.5,
        30.0,
    ]  # the model's and the lead baseline's
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [workdir, other]


def test_more_runs_than_colors_differ_in_the_style_of_their_lines(write_run):
    runs = [records.read_run(write_run(f"run{i}")) for i in range(len(figures.COLORS) + 1)]
    lines = figures.curves_figure(runs, (7, 2.4)).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(runs)


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (30.0, {"lead baseline": 30.0}),
        (20.0, {"lead baseline of {}": 30.0, "lead baseline of {}-2": 20.0}),
    ],
)
def test_runs_on_other_documents_have_their_own_baselines(write_run, score, expected):
    lines = [{"step": 20, "eval": {"mean_rouge": 12.5, "lead_mean_rouge": score}}]
    paths = write_run("run"), write_run("run-2", [{"step": 10, "loss": 4.0}, *lines])
    figure = figures.curves_figure([records.read_run(path) for path in paths], (7, 2.4))
    ax = figure.axes[2]
    drawn = {text.get_text(): text.xy[1] for text in ax.texts}
    assert drawn == {label.format(paths[0]): value for label, value in expected.items()}
    assert ax.get_ylim()[1] >= 1.15 * max(expected.values())


def test_kernels_figure_has_labelled_axes(ssm_layers):
    result = kernels.kernels(ssm_layers(True), 16)
    axes = figures.kernels_figure(result, (7, 3)).axes
    assert {ax.get_xlabel() for ax in axes} >= {"memory (tokens)", "lag (tokens)", "|kernel|"}
    assert {ax.get_ylabel() for ax in axes} >= {
        "layer 1\nmodes (%)",
        "layer 2\nmodes (%)",
        "channel",
    }
    np.testing.assert_array_equal(axes[1].images[0].get_array(), result.magnitude[0, 0])


def probe_row(model, task, length, mean_by_distance):
    mean = sum(mean_by_distance) / len(mean_by_distance)
    row = {"model": model, "task": task, "length": length, "mean": mean, "interval": 0.1}
    return row | {"mean_by_distance": mean_by_distance}


def test_probes_have_a_line_and_a_row_of_cells_for_every_model():
    rows = [
        probe_row("s4d", "needle", 512, [1.0, 0.5]),
        probe_row("s4d", "needle", 2048, [0.25, 0.75]),
        probe_row("full", "needle", 2048, [0.0, 0.5]),
        probe_row("full", "recall", 512, [0.0, 0.0]),
    ]
    figure = figures.probes_figure(rows, 7.0)
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


def test_points_have_a_name_each_and_panels_their_own_scale():
    fast = figures.Panel("fast", "s", "ROUGE", {"ours": (0.1, 30.0), "theirs": (1.0, 20.0)}, "log")
    short = figures.Panel("short", "share", "ROUGE", {"all": (1.0, 25.0)})
    first, second = figures.points_figure([fast, short], (6, 3)).axes
    assert [list(line.get_xydata()[0]) for line in first.lines] == [[0.1, 30.0], [1.0, 20.0]]
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["ours", "theirs"]
    assert (first.get_xscale(), second.get_xscale()) == ("log", "linear")
    assert (second.get_xlabel(), second.get_ylabel()) == ("share", "ROUGE")
