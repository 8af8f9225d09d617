import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from longsum_jax.analysis import figures, records
from longsum_jax.commands import plots
from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model


@pytest.fixture
def workdir(write_run):
    return write_run("run")


def png_size(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def test_curves_command_writes_the_size_asked_for(tmp_path, workdir, capsys):
    plots.main(
        ["curves", workdir, f"--out={tmp_path / 'c.png'}", "--width=5", "--height=2", "--dpi=100"]
    )
    assert png_size(tmp_path / "c.png") == (500, 200)
    assert "5 x 2 inches" in capsys.readouterr().out


STUDY_ROW = {"encoder": "full", "cross": "full", "bits": 5.0}
STUDY_ROW |= {"seed": 0, "mean_rouge": 12.0, "tokens_per_second": 900}


def study_rows():
    cells = (("full", "full", 5.0), ("full", "hepos", 5.5), ("lsh", "hepos", 6.0))
    shared = {"seed": 0, "mean_rouge": 12.0, "tokens_per_second": 900}
    return [
        {"encoder": encoder, "cross": cross, "bits": bits, **shared}
        for encoder, cross, bits in cells
    ]


def test_a_study_has_a_line_for_each_encoder_and_a_color_for_each_cross_attention(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in study_rows()) + '{"encoder": "cut sh')
    figure = figures.study_figure(records.read_study(path), (7, 2))
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
        ('{"encoder": "full"}\n', r"results\.jsonl:1: not a row of a study; delete the line"),
        ("3\n", r"results\.jsonl:1: not a row of a study"),
        (json.dumps(STUDY_ROW | {"encoder": ["full"]}) + "\n", "1: not a row of a study"),
        (json.dumps(STUDY_ROW | {"bits": "5"}) + "\n", "1: not a row of a study"),
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
    says, *lines = capsys.readouterr().out.splitlines()
    assert says.startswith("bigrams that summaries share with documents, in the first 10, 20, ...")
    assert lines[:2] == [f"{path}{curve}", f"{other}{curve}"]
    figure = figures.ngrams_figure({"one": np.array([0.25, 1.0])}, 2, (4, 2))
    (drawn,) = figure.axes[0].lines
    assert np.array(drawn.get_xydata()).tolist() == [[0, 0], [50, 25], [100, 100]]


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"metrics\.jsonl: cannot be read \(No such file or directory\); give the --workdir"),
        ("", r"metrics\.jsonl: holds no step yet"),
        ('{"step": 1, "loss": 2.0}\n{broken\n', r"metrics\.jsonl:2: not valid JSON"),
        ('{"loss": 2.0}\n', r'metrics\.jsonl:1: not a line of metrics, which have a "step"'),
        ("[1]\n", r"metrics\.jsonl:1: not a line of metrics"),
        (
            '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": "low"}\n',
            r"metrics\.jsonl: a value is not a number \(.*low.*\); correct or delete its line",
        ),
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
        (["--length=1"], "--length=1 must lie between 2 and 16777216"),
        (["--layers=2"], "there is no layer 2; the model has layers 1 to 1"),
    ],
)
def test_what_cannot_be_drawn(tmp_path, small_model, more, message):
    with pytest.raises(InputError, match=message):
        plots.main(["kernels", str(small_model), f"--out={tmp_path / 'k.png'}", *more])
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_directory(tmp_path, workdir):
    (tmp_path / "c.png").mkdir()
    with pytest.raises(InputError, match=r"c\.png is a directory; give a file"):
        plots.main(["curves", workdir, f"--out={tmp_path / 'c.png'}"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        ({"encoder_attention": "s4d,full,s4d"}, (1, 3)),
        ({"encoder_attention": "s4d", "memory": "attentive", "memory_layers": "last1"}, (1, 2, 3)),
    ],
)
def test_kernels_of_stacks_whose_layers_differ(tmp_path, draw_params, options, kernels):
    family = get_family("locost")
    sizes = {"d_model": 16, "d_state": 8, "d_kv": 8, "d_ff": 16, "num_heads": 2, "vocab_size": 64}
    config = family.config(sizes | {"num_layers": 3, "num_decoder_layers": 1} | options)
    params = draw_params(family.init_params(config))
    model = Model(family, config, params)
    args = SimpleNamespace(model="m", layers=None)
    assert tuple(plots._state_space_layers(model, args)) == tuple(i - 1 for i in kernels)
    model.save(tmp_path / "m")
    out = f"--out={tmp_path / 'k.png'}"
    plots.main(["kernels", str(tmp_path / "m"), out, "--length=16", "--dpi=50"])
    assert png_size(tmp_path / "k.png") == (350, round(50 * (0.9 + len(kernels))))
    if 2 not in kernels:
        message = "--layers: layer 2 has full attention; state-space layers are 1, 3"
        with pytest.raises(InputError, match=message):
            plots.main(["kernels", str(tmp_path / "m"), out, "--layers=2"])


def test_a_model_without_state_space_layers(tmp_path, monkeypatch):
    model = SimpleNamespace(
        config=SimpleNamespace(encoder_attention="full"), family=SimpleNamespace(name="lsg")
    )
    monkeypatch.setattr("longsum_jax.summarization.loading.load", lambda path: model)
    with pytest.raises(InputError, match='m: a model of family "lsg" has no state-space layers'):
        plots.main(["kernels", "m", f"--out={tmp_path / 'k.png'}"])


def test_without_matplotlib(tmp_path, workdir, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        InputError, match=r'plots need matplotlib: pip install "longsum_jax\[plots\]"'
    ):
        plots.main(["curves", workdir, f"--out={tmp_path / 'c.png'}"])


def test_layers_that_are_no_numbers():
    with pytest.raises(InputError, match=r'"1,x" is not a list of numbers such as 1,6,12'):
        plots.main(["kernels", "m", "--out=k.png", "--layers=1,x"])


@pytest.mark.parametrize("key", ["device_memory_bytes", "num_devices", "title"])
def test_plans_that_lack_a_key(tmp_path, key):
    path = tmp_path / "plan.json"
    programs = [{"program": "read", "memory_bytes": {"total": 5}}]
    plan = {"title": "TPU v5e", "num_devices": 1, "device_memory_bytes": None}
    path.write_text(json.dumps(plan | {"programs": programs}))
    records.read_plan(path)
    del plan[key]
    path.write_text(json.dumps(plan | {"programs": programs}))
    with pytest.raises(InputError, match=r"plan\.json: holds no plan; give the --out of longsum"):
        plots.main(["plan", str(path), f"--out={tmp_path / 'p.png'}"])
