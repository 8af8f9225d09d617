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
