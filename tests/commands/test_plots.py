import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import longsum_jax
from longsum_jax.analysis import figures as plotting
from longsum_jax.commands import plots
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


def png_size(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


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


def by_layer(params, layers=(0, 1)):
    """`params` of each layer by its index."""
    return {layer: {name: value[layer] for name, value in params.items()} for layer in layers}


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
    found = plotting.kernels(by_layer(params, (1, 0)), 40, discretization="none")
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
    edges, share = plotting.memory_histogram(memory, bins=2)
    np.testing.assert_allclose(edges, [1, 10, 100])
    np.testing.assert_allclose(share, [[75, 25], [0, 100]])


def test_histogram_of_equal_modes():
    edges, share = plotting.memory_histogram(np.full((1, 6), 7.0), bins=4)
    assert edges[0] < 7 < edges[-1]
    assert share.sum() == share.max() == 100


def test_curves_of_a_run(tmp_path):
    run = plotting.read_run(write_run(tmp_path / "run", end='{"step": 40, "lo'))
    np.testing.assert_array_equal(run.training["loss"].steps, [10, 20, 30])
    np.testing.assert_array_equal(run.training["loss"].values, [4.0, np.nan, 2.0])
    np.testing.assert_array_equal(run.training["learning_rate"].values, [0.1, 0.2, 0.05])
    assert run.evaluation["mean_rouge"] == (np.array([20]), np.array([12.5]))
    assert run.name.endswith("run")


def test_curves_draws_every_run(tmp_path, workdir):
    other = write_run(tmp_path / "other", [{"step": 10, "loss": 3.0, "learning_rate": 0.3}])
    figure = plotting.curves_figure(
        [plotting.read_run(path) for path in (workdir, other)], (7, 2.4)
    )
    loss, rate, rouge = figure.axes
    assert [line.get_ydata()[0] for line in loss.lines] == [4.0, 3.0]
    assert [line.get_ydata()[0] for line in rate.lines] == [0.1, 0.3]
    assert [line.get_ydata()[0] for line in rouge.lines] == [
        12.5,
        30.0,
    ]  # the model's and the lead baseline's
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [workdir, other]


def test_curves_command_writes_the_size_asked_for(tmp_path, workdir, capsys):
    plots.main(
        ["curves", workdir, f"--out={tmp_path / 'c.png'}", "--width=5", "--height=2", "--dpi=100"]
    )
    assert png_size(tmp_path / "c.png") == (500, 200)
    assert "5 x 2 inches" in capsys.readouterr().out


def study_rows():
    cells = (("full", "full", 5.0), ("full", "hepos", 5.5), ("lsh", "hepos", 6.0))
    shared = {"seed": 0, "mean_rouge": 12.0, "tokens_per_second": 900}
    return [
        {"encoder": encoder, "cross": cross, "bits": bits, **shared}
        for encoder, cross, bits in cells
    ]


def test_a_study_has_a_line_for_each_encoder_and_a_colour_for_each_cross_attention(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in study_rows()) + '{"encoder": "cut sh')
    figure = plotting.study_figure(plotting.read_study(path), (7, 2))
    bits, rouge, speed = figure.axes
    assert [list(line.get_xdata()) for line in bits.lines] == [[5.0], [5.5, 6.0]]
    assert [[round(y) for y in line.get_ydata()] for line in bits.lines] == [[0], [0, 1]]
    assert [label.get_text() for label in bits.get_yticklabels()] == ["full", "lsh"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["full", "hepos"]
    assert {ax.get_xlabel() for ax in (rouge, speed)} == {"mean ROUGE (0 to 100)", "tokens/s"}
    plots.main(["study", str(path), f"--out={tmp_path / 's.png'}", "--dpi=50"])
    assert png_size(tmp_path / "s.png") == (350, 70)  # 0.8 inches and 0.3 for each of two encoders


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"results\.jsonl: cannot be read \(No such file or directory\); give results"),
        ('{"encoder": 1', r"results\.jsonl: holds no row yet"),
        ('{"encoder": "full"}\n', r"results\.jsonl:1: not a row of a sweep; delete the line"),
        ("3\n", r"results\.jsonl:1: not a row of a sweep"),
    ],
)
def test_what_is_no_study(tmp_path, content, message):
    path = tmp_path / "results.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        plots.main(["study", str(path), f"--out={tmp_path / 's.png'}"])


def test_bigrams_draws_every_data_set(tmp_path, capsys):
    path, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    rows = [("a b c d e f g h i j", "i j"), ("a b c d e f g h i j", "a b, i j")]
    for file in (path, other):
        file.write_text("".join(json.dumps({"document": d, "summary": s}) + "\n" for d, s in rows))
    plots.main(
        ["bigrams", str(path), str(other), f"--out={tmp_path / 'b.png'}", "--width=4", "--dpi=50"]
    )
    assert png_size(tmp_path / "b.png") == (200, 130)
    curve = ": 0.0 25.0 25.0 25.0 25.0 25.0 25.0 25.0 25.0 100.0 %"
    assert capsys.readouterr().out.splitlines()[:2] == [f"{path}{curve}", f"{other}{curve}"]
    figure = plotting.bigrams_figure({"one": np.array([0.25, 1.0])}, (4, 2))
    (drawn,) = figure.axes[0].lines
    assert np.array(drawn.get_xydata()).tolist() == [[0, 0], [50, 25], [100, 100]]


def test_kernels_command_on_a_model(tmp_path, small_model):
    plots.main(
        ["kernels", str(small_model), f"--out={tmp_path / 'k.png'}", "--length=64", "--dpi=50"]
    )
    assert png_size(tmp_path / "k.png") == (350, 95)  # 0.9 inches and one for the layer
    plots.main(
        [
            "kernels",
            str(small_model),
            f"--out={tmp_path / 'k.pdf'}",
            "--length=64",
            "--layers=1",
            "--height=2",
        ]
    )
    assert (tmp_path / "k.pdf").read_bytes().startswith(b"%PDF")


def test_kernels_figure_has_labelled_axes():
    axes = plotting.kernels_figure(plotting.kernels(by_layer(ssm_params(True)), 16), (7, 3)).axes
    assert {ax.get_xlabel() for ax in axes} >= {"memory (tokens)", "lag (tokens)", "|kernel|"}
    assert {ax.get_ylabel() for ax in axes} >= {
        "layer 1\nmodes (%)",
        "layer 2\nmodes (%)",
        "channel",
    }
    np.testing.assert_array_equal(
        axes[1].images[0].get_array(),
        plotting.kernels(by_layer(ssm_params(True)), 16).magnitude[0, 0],
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"metrics\.jsonl: cannot be read \(No such file or directory\); give the --workdir"),
        ("", r"metrics\.jsonl: holds no step yet"),
        ('{"step": 1, "loss": 2.0}\n{broken\n', r"metrics\.jsonl:2: not valid JSON"),
        ('{"loss": 2.0}\n', r'metrics\.jsonl:1: not a line of metrics, which have a "step"'),
        ("[1]\n", r"metrics\.jsonl:1: not a line of metrics"),
    ],
)
def test_what_is_no_run(tmp_path, content, message):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(InputError, match=message):
        plots.main(["curves", str(tmp_path), f"--out={tmp_path / 'c.png'}"])
    assert not (tmp_path / "c.png").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out=picture.jpg"], 'the ending ".jpg" is none of .png, .pdf, .svg'),
        (["--out=/nowhere/c.png"], "there is no directory /nowhere"),
        (["--width=0"], r"--width=0\.0 must be positive"),
        (["--dpi=-1"], "--dpi=-1 must be positive"),
        (["--length=1"], "--length=1 must lie between 2 and 1048576"),
        (["--layers=2"], "there is no layer 2; the model has layers 1 to 1"),
    ],
)
def test_what_cannot_be_drawn(tmp_path, small_model, more, message):
    with pytest.raises(InputError, match=message):
        plots.main(["kernels", str(small_model), f"--out={tmp_path / 'k.png'}", *more])
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_directory(tmp_path, workdir):
    (tmp_path / "c.png").mkdir()
    with pytest.raises(InputError, match=r"c\.png: cannot be written \(Is a directory\)"):
        plots.main(["curves", workdir, f"--out={tmp_path / 'c.png'}"])


def test_a_model_without_state_space_layers(tmp_path, monkeypatch):
    model = SimpleNamespace(
        config=SimpleNamespace(encoder_attention="full"),
        family=SimpleNamespace(name="lsg"),
        params={"encoder": {"layers": {"self_attention": {"q": np.zeros((2, 3))}}}},
    )
    monkeypatch.setattr(longsum_jax, "load", lambda path: model, raising=False)
    with pytest.raises(InputError, match='m: a model of family "lsg" has no state-space layers'):
        plots.main(["kernels", "m", f"--out={tmp_path / 'k.png'}"])


@pytest.mark.parametrize(
    ("attention", "groups", "drawn"),
    [("s4d,full*2,s4d*2", (1, 2, 2), (1, 4, 5)), ("s4d", (1, 2), (1, 2, 3))],
    ids=["hybrid", "memory in some layers"],
)
def test_kernels_of_layers_that_are_not_all_alike(tmp_path, monkeypatch, attention, groups, drawn):
    """Stacks of several groups, whose parameters are not all under "layers"."""
    encoder, first = {}, 0
    for size in groups:
        layers = set(range(first + 1, first + size + 1))
        params = ssm_params(True, layers=size) if layers & set(drawn) else {"q": np.ones((size, 2))}
        encoder[f"layers_{first}_{first + size - 1}"] = {"self_attention": params}
        first += size
    config = SimpleNamespace(encoder_attention=attention, ssm_discretization="zoh")
    model = SimpleNamespace(
        config=config, family=SimpleNamespace(name="t5"), params={"encoder": encoder}
    )
    monkeypatch.setattr(longsum_jax, "load", lambda path: model, raising=False)
    figures = []
    draw = plotting.kernels_figure
    monkeypatch.setattr(
        plotting, "kernels_figure", lambda found, size: figures.append(found) or draw(found, size)
    )
    command = ["kernels", "m", f"--out={tmp_path / 'k.png'}", "--length=16"]
    plots.main(command)
    (found,) = figures
    assert found.layers == drawn
    last = by_layer(ssm_params(True, layers=groups[-1]), (groups[-1] - 1,))
    wanted = plotting.kernels(last, 16).magnitude[0]
    np.testing.assert_allclose(found.magnitude[-1], wanted, rtol=1e-6)
    if attention != "s4d":
        with pytest.raises(
            InputError, match="layer 2 is no state-space layer; those of the model are 1, 4, 5"
        ):
            plots.main([*command, "--layers=2"])


def test_kernels_that_are_not_finite():
    params = ssm_params(True)
    params["C"][0, 0, 0, 0, 0] = np.nan
    with pytest.raises(InputError, match="zero or not finite"):
        plotting.kernels(by_layer(params), 8)


def test_without_matplotlib(tmp_path, workdir, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        InputError, match=r'plots need matplotlib: pip install "longsum_jax\[plots\]"'
    ):
        plots.main(["curves", workdir, f"--out={tmp_path / 'c.png'}"])


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as end:
        plots.main(["--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    for text in (
        "examples:",
        "plots curves",
        "plots kernels",
        "plots bigrams",
        "plots study",
        "1/e",
    ):
        assert text in said


def test_layers_that_are_no_numbers(capsys):
    with pytest.raises(SystemExit) as end:
        plots.main(["kernels", "m", "--out=k.png", "--layers=1,x"])
    assert end.value.code == 2
    assert '"1,x" is not a list of numbers such as 1,6,12' in capsys.readouterr().err
