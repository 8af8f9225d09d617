"""The numbers of figures, and what is drawn of them."""

import json
import os

import numpy as np
import pytest

from longsum_jax.analysis import figures
from longsum_jax.errors import InputError

LINES = (
    {"step": 10, "loss": 4.0, "learning_rate": 0.1},
    {"step": 20, "loss": None, "learning_rate": 0.2},
    {"step": 20, "eval": {"mean_rouge": 12.5, "lead_mean_rouge": 30.0}},
    {"step": 30, "loss": 2.0, "learning_rate": 0.05},
)


def write_run(workdir, lines=LINES, end=""):
    workdir.mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (workdir / "metrics.jsonl").write_text(text + end)
    return str(workdir)


@pytest.fixture
def workdir(tmp_path):
    return write_run(tmp_path / "run")


def ssm_params(shared, *, layers=2, channels=5, modes=3):
    """Random parameters of scanned layers as `S4D` names and shapes them."""
    rng = np.random.default_rng(0)
    sets = () if shared else (2,)
    return {
        "log_dt": rng.uniform(-5, -2, (layers, *sets, channels)).astype(np.float32),
        "inv_A_real": rng.uniform(-2, 0, (layers, *sets, channels, modes)).astype(np.float32),
        "A_imag": rng.uniform(0, 9, (layers, *sets, channels, modes)).astype(np.float32),
        "B": rng.normal(size=(layers, *sets, channels, modes, 2)).astype(np.float32),
        "C": rng.normal(size=(layers, 2, channels, modes, 2)).astype(np.float32),
    }


def layer_of(params, layer):
    return {name: value[layer] for name, value in params.items()}


def one_channel(params, layer, direction, channel, length):
    """Memory [M] and kernel [L] of one channel, from the definition: 2 Re sum_m B C exp(l dt A)."""
    shared = params["log_dt"].ndim == 2
    log_dt, inv_A_real, A_imag, B = (
        np.float64((params[name][layer] if shared else params[name][layer][direction])[channel])
        for name in ("log_dt", "inv_A_real", "A_imag", "B")
    )
    C = np.float64(params["C"][layer, direction, channel])
    dt, A = np.exp(log_dt), -np.exp(inv_A_real) + 1j * A_imag
    BC = (B[:, 0] + 1j * B[:, 1]) * (C[:, 0] + 1j * C[:, 1])
    kernel = [2 * (BC * np.exp(lag * dt * A)).sum().real for lag in range(length)]
    return 1 / (dt * np.exp(inv_A_real)), np.array(kernel)


@pytest.mark.parametrize("shared", [True, False])
def test_kernels_are_those_of_the_definition_from_fast_to_slow_decay(shared):
    params = ssm_params(shared)
    layers = {layer: layer_of(params, layer) for layer in (1, 0)}
    found = figures.kernels(layers, 40, discretization="none")
    assert found.layers == (2, 1)
    assert found.memory.shape == (2, 1 if shared else 2, 5, 3)
    assert found.magnitude.shape == (2, 2, 5, 40)
    for place, layer in enumerate((1, 0)):
        for direction in range(2):
            channels = [one_channel(params, layer, direction, channel, 40) for channel in range(5)]
            channels.sort(key=lambda channel: -(1 / channel[0]).mean())
            memory, kernel = (np.stack(part) for part in zip(*channels, strict=True))
            np.testing.assert_allclose(
                found.memory[place, 0 if shared else direction], memory, rtol=1e-5
            )
            np.testing.assert_allclose(found.magnitude[place, direction], np.abs(kernel), atol=2e-5)


def test_histogram_of_memory():
    memory = np.array([[1.0, 2.0, 3.0, 50.0], [100.0, 100.0, 100.0, 20.0]])
    edges, share = figures.memory_histogram(memory, bins=2)
    np.testing.assert_allclose(edges, [1, 10, 100])
    np.testing.assert_allclose(share, [[75, 25], [0, 100]])


def test_histogram_of_equal_modes():
    edges, share = figures.memory_histogram(np.full((1, 6), 7.0), bins=4)
    assert edges[0] < 7 < edges[-1]
    assert share.sum() == share.max() == 100


def test_curves_of_a_run(tmp_path):
    run = figures.read_run(write_run(tmp_path / "run", end='{"step": 40, "lo'))
    np.testing.assert_array_equal(run.training["loss"].steps, [10, 20, 30])
    np.testing.assert_array_equal(run.training["loss"].values, [4.0, np.nan, 2.0])
    np.testing.assert_array_equal(run.training["learning_rate"].values, [0.1, 0.2, 0.05])
    assert run.evaluation["mean_rouge"] == (np.array([20]), np.array([12.5]))
    assert run.name.endswith("run")


def test_curves_draws_every_run(tmp_path, workdir):
    other = write_run(tmp_path / "other", [{"step": 10, "loss": 3.0, "learning_rate": 0.3}])
    figure = figures.curves_figure([figures.read_run(path) for path in (workdir, other)], (7, 2.4))
    loss, rate, rouge = figure.axes
    assert [line.get_ydata()[0] for line in loss.lines] == [4.0, 3.0]
    assert [line.get_ydata()[0] for line in rate.lines] == [0.1, 0.3]
    assert [line.get_ydata()[0] for line in rouge.lines] == [
        12.5,
        30.0,
    ]  # the model's and the lead baseline's
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [workdir, other]


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (30.0, {"lead baseline": 30.0}),
        (20.0, {"lead baseline of {}": 30.0, "lead baseline of {}-2": 20.0}),
    ],
)
def test_runs_on_other_documents_have_their_own_baselines(tmp_path, score, expected):
    lines = [{"step": 20, "eval": {"mean_rouge": 12.5, "lead_mean_rouge": score}}]
    paths = write_run(tmp_path / "run"), write_run(tmp_path / "run-2", [LINES[0], *lines])
    figure = figures.curves_figure([figures.read_run(path) for path in paths], (7, 2.4))
    ax = figure.axes[2]
    drawn = {text.get_text(): text.xy[1] for text in ax.texts}
    assert drawn == {label.format(paths[0]): value for label, value in expected.items()}
    assert ax.get_ylim()[1] >= 1.15 * max(expected.values())


def test_kernels_figure_has_labelled_axes():
    params = ssm_params(True)
    found = figures.kernels({layer: layer_of(params, layer) for layer in (0, 1)}, 16)
    axes = figures.kernels_figure(found, (7, 3)).axes
    assert {ax.get_xlabel() for ax in axes} >= {"memory (tokens)", "lag (tokens)", "|kernel|"}
    assert {ax.get_ylabel() for ax in axes} >= {
        "layer 1\nmodes (%)",
        "layer 2\nmodes (%)",
        "channel",
    }
    np.testing.assert_array_equal(axes[1].images[0].get_array(), found.magnitude[0, 0])


def test_kernels_that_are_not_finite():
    params = ssm_params(True)
    params["C"][0, 0, 0, 0, 0] = np.nan
    with pytest.raises(InputError, match="zero or not finite"):
        figures.kernels({0: layer_of(params, 0)}, 8)


def test_metrics_of_a_pipe_or_of_no_text_are_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl:1"):
        figures.read_run(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="a directory, pipe or device"):
        figures.read_run(tmp_path)
    with pytest.raises(InputError, match="a directory, pipe or device"):
        figures.read_sweep(path)


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
    assert [list(line.get_ydata()) for line in lines] == [[0.75, 0.5], [0.25]]
    assert needle.get_ylabel() == "needle: right answers"
    assert recall.get_ylabel() == "recall: right answers"
    [image] = needle_cells.images
    expected = [[1.0, 0.5, 0.25, 0.75], [np.nan, np.nan, 0.0, 0.5]]
    np.testing.assert_array_equal(image.get_array().filled(np.nan), expected)
    assert [label.get_text() for label in needle_cells.get_yticklabels()] == ["s4d", "full"]
    assert [label.get_text() for label in needle_cells.get_xticklabels()] == ["512", "2,048"]
