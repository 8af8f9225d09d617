"""Preference training: the loss beside torch, the reference computed once, runs that go on."""

import json
import shutil

import jax
import numpy as np
import pytest

from longsum_jax.commands import train
from longsum_jax.data.examples.base import Counts
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import default_sections, run_config
from longsum_jax.experiment.experiment import check_run, make_experiment, make_loss, make_store
from longsum_jax.experiment.objectives import preferences
from longsum_jax.experiment.objectives.preferences import ReferencedExamples, add_reference
from longsum_jax.models.registry import preset
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer

SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 64,
    "dropout": 0.0,
    "vocab_size": 300,
}
ROWS = [
    {
        "id": str(i),
        "document": f"The cat number {i} sat on the mat. " * (1 + i % 2),
        "summary": f"Cat {i} sat.",
        "rejected": f"A dog {7 * i} flew off.",
    }
    for i in range(7)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture(scope="module")
def start(tmp_path_factory, draw_params):
    """Saves a tiny BART; ``start(seed)`` is its directory."""
    made = {}

    def save(seed=0):
        if seed not in made:
            config = default_sections() | {"model": preset("bart", "tiny", **SIZES)}
            config |= {"task": {"name": "summaries"}, "training": {"steps": 1}}
            run = run_config(config)
            params = draw_params(run.family.init_params(run.model), seed=seed)
            made[seed] = tmp_path_factory.mktemp("start") / "model"
            tokenizer = load_tokenizer("bytes", vocab_size=300)
            Model(run.family, run.model, params, tokenizer).save(made[seed])
        return made[seed]

    return save


@pytest.fixture
def config(data, start):
    """The nested config of a run; ``sections`` replace some values."""

    def make(**sections):
        values = default_sections() | {"model": preset("bart", "tiny", **SIZES)}
        values["task"] = {"name": "preferences", "source": f"json:{data}"}
        values["task"] |= {"max_source_length": 48, "max_target_length": 16}
        values["init_from"] = str(start())
        values["loss"] |= {"beta": 0.5}
        values["data"] |= {"batch_size": 4, "source_lengths": (40, 48)}
        values["optimizer"] |= {"name": "adamw", "learning_rate": 1e-2}
        values["training"] |= {"steps": 3, "log_every": 1, "progress": False, "keep_latest": 3}
        values["training"] |= {"checkpoint_every": 1, "best_metric": "mean_rouge"}
        for section, value in sections.items():
            values[section] = values[section] | value if isinstance(value, dict) else value
        return values

    return make


def train_run(config, workdir, monkeypatch):
    """Trains by the command, as a config file with these values does."""
    from longsum_jax.experiment import config_files

    monkeypatch.setattr(config_files, "read_config", lambda *_: config)
    assert train.main(["--config=config.py", f"--workdir={workdir}"]) == 0
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "loss" in line]


def pieces(config, workdir):
    run = run_config(config)
    check_run(run)
    experiment = make_experiment(run, workdir)
    return experiment, make_store(experiment)


def numbers(store, length, rows):
    """The ids, masks and labels of examples, padded by hand."""
    ids = np.full((rows, length), 1, np.int64)
    labels = np.full((2, rows, 16), -100, np.int64)
    mask = np.zeros((rows, length), bool)
    for row, example in enumerate(store):
        ids[row, : len(example["input_ids"])] = example["input_ids"]
        mask[row, : len(example["input_ids"])] = True
        for kind, name in enumerate(("labels", "rejected")):
            labels[kind, row, : len(example[name])] = example[name]
    return ids, mask, labels


@pytest.mark.slow
def test_a_run_begins_at_its_reference_and_goes_on_bit_for_bit(
    config, start, tmp_path, monkeypatch
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    lines = train_run(config(), whole, monkeypatch)
    # The model is the reference in the first step: margins are 0, up to the sums of a batch.
    assert lines[0]["loss"] == pytest.approx(np.log(2), abs=1e-5)
    assert lines[0]["reward_margin"] == pytest.approx(0, abs=1e-4)
    assert lines[-1]["loss"] < 0.6
    assert lines[-1]["reward_margin"] > 0
    assert lines[-1]["right_pairs"] == lines[-1]["weight"]

    shutil.copytree(whole, parts)
    for step in ("2", "3"):
        shutil.rmtree(parts / "checkpoints" / step)
    before = (parts / "reference.json").read_bytes()
    assert [line["loss"] for line in train_run(config(), parts, monkeypatch)] == [
        line["loss"] for line in lines
    ]
    models = [load(path, which="latest") for path in (whole, parts)]
    jax.tree.map(np.testing.assert_array_equal, *(model.params for model in models))
    # The reference is that of the start, and not of the checkpoint.
    assert (parts / "reference.json").read_bytes() == before
    assert json.loads(before)["weights"] == load(start()).fingerprint != models[0].fingerprint

    # Accumulation splits the pairs of a batch, and changes nothing.
    halves = config(training={"accumulation": 2})
    for one, other in zip(lines, train_run(halves, tmp_path / "halves", monkeypatch), strict=True):
        for name in ("loss", "grad_norm", "reward_margin", "weight", "tokens"):
            assert other[name] == pytest.approx(one[name], rel=1e-3, abs=1e-3), name

    # Another reference, or none, is refused.
    shutil.rmtree(parts / "checkpoints" / "3")
    path = parts / "reference.json"
    other = json.loads(before) | {"weights": "0123456789abcdef"}
    path.write_text(json.dumps(other))
    with pytest.raises(InputError, match=r"reference\.json: the reference model has the weights "):
        train_run(config(), parts, monkeypatch)
    path.write_text(json.dumps(json.loads(before) | {"examples": "00"}))
    with pytest.raises(
        InputError, match=r"the examples have the hash .*, but the run started with"
    ):
        train_run(config(), parts, monkeypatch)
    path.write_text("{}")
    with pytest.raises(InputError, match=r"reference\.json is damaged \('log_probs'\)"):
        train_run(config(), parts, monkeypatch)
    path.unlink()
    with pytest.raises(InputError, match=r"reference\.json: cannot be read"):
        train_run(config(), parts, monkeypatch)


@pytest.mark.slow
def test_the_reference_is_computed_once_and_in_any_batch(config, start, tmp_path, monkeypatch):
    experiment, store = pieces(config(), tmp_path / "run")
    assert isinstance(store, ReferencedExamples)
    assert "reference" not in store[0]
    (tmp_path / "run").mkdir()
    add_reference(experiment.objective, store, "weights", experiment.start.params)
    model = load(start())
    ids, mask, labels = numbers(store, 48, len(ROWS))
    for kind, targets in enumerate(labels):
        result = np.asarray(model.log_probs(ids, mask, np.maximum(targets, 0)))
        expected = np.where(targets >= 0, result, 0).sum(1)
        np.testing.assert_allclose(store.log_probs[:, kind], expected, rtol=1e-5)
    np.testing.assert_array_equal(store[3]["reference"], store.log_probs[3])

    def refuse(*_):
        raise AssertionError("computed again")

    # A run that ended before its first checkpoint reads what is there, exactly.
    _, again = pieces(config(), tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(preferences, "_compute", refuse)
        add_reference(experiment.objective, again, "weights", None)
        np.testing.assert_array_equal(again.log_probs, store.log_probs)
        with pytest.raises(AssertionError, match="computed again"):  # of another start
            add_reference(experiment.objective, again, "others", None)

    broken = jax.tree.map(lambda x: x * np.nan, experiment.start.params)
    with pytest.raises(InputError, match=r'a summary of "0" the log-probability \[nan, nan\]'):
        add_reference(experiment.objective, again, "broken", broken)


def test_without_a_reference_no_step_is_finite(config, tmp_path):
    """So that nobody trains against log-probabilities of 0."""
    from longsum_jax.data.padding import pad_batch

    experiment, store = pieces(config(), tmp_path / "run")
    options = experiment.objective.batch_options()
    batch = pad_batch([store[0]], rows=2, source_length=48, **options)
    assert np.isnan(batch["reference"]).tolist() == [[True, True], [False, False]]
    assert batch["rejected"].shape == batch["labels"].shape == (2, 16)


def test_identical_pairs_have_no_weight_and_are_counted(config, tmp_path, start):
    path = tmp_path / "rows.jsonl"
    same = ROWS[1] | {"rejected": ROWS[1]["summary"]}
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROWS[0], same)))
    values = config(task={"source": f"json:{path}"})
    experiment, store = pieces(values, tmp_path / "run")
    assert store.counts.identical_pairs == 1
    assert "1 pair of identical summaries without weight" in train._describe_size(experiment, store)
    path.write_text(json.dumps(same) + "\n")
    with pytest.raises(InputError, match="the summaries of each of 1 pair are identical in their"):
        pieces(values, tmp_path / "run")


def test_what_does_not_fit_is_refused(config, tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {name: value for name, value in ROWS[0].items() if name != "rejected"}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match='document "0" has no "rejected"; give each document a'):
        pieces(config(task={"source": f"json:{path}"}), tmp_path / "run")
    with pytest.raises(InputError, match=r'config\.data\.reader is "stream", but the reference'):
        check_run(run_config(config(data={"reader": "stream", "shuffle": "none"})))
    with pytest.raises(InputError, match=r'config\.loss\.beta is 0, with which the objective "pre'):
        run_config(config(loss={"beta": 0.0}))
    with pytest.raises(InputError, match=r"config\.loss\.beta=0\.5 has no effect on the objective"):
        run_config(config(task={"name": "summaries"}))
    with pytest.raises(InputError, match=r"config\.loss\.label_smoothing=0\.1 has no effect on"):
        run_config(config(loss={"label_smoothing": 0.1}))
    bert = config(model=preset("bert", "tiny"))
    bert["model"] = preset("bert", "tiny")
    with pytest.raises(InputError, match='"prefer" trains the head "language_model", but config'):
        check_run(run_config(bert))


def test_fields_may_have_other_names(config, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"text": r["document"], "good": r["summary"], "bad": r["rejected"]} for r in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"document_key": "text", "summary_key": "good", "rejected_key": "bad"}
    _, store = pieces(config(task={"source": f"json:{path}", **keys}), tmp_path / "run")
    _, other = pieces(config(), tmp_path / "run")
    for one, two in zip(store, other, strict=True):
        for name in ("input_ids", "labels", "rejected"):
            np.testing.assert_array_equal(one[name], two[name])
    assert isinstance(store.counts, Counts)


@pytest.mark.slow
def test_loss_and_gradients_do_not_depend_on_padding_or_equal_pairs(config, tmp_path, start):
    """A pair whose summaries are equal adds nothing, and neither do empty rows."""
    from longsum_jax.data.padding import pad_batch

    experiment, store = pieces(config(), tmp_path / "run")
    store.log_probs = np.random.default_rng(0).normal(-40, 5, (len(ROWS), 2)).astype(np.float32)
    equal = store[2] | {"rejected": store[2]["labels"]}
    options = experiment.objective.batch_options()
    loss_fn = make_loss(experiment)

    @jax.jit
    def gradient(params, batch):
        def loss(params):
            out = loss_fn(params, batch, jax.random.key(0))
            return out.loss_sum, out

        return jax.grad(loss, has_aux=True)(params)

    params = experiment.start.params
    plain = pad_batch([store[0], store[1]], rows=2, source_length=48, **options)
    more = pad_batch([store[0], equal, store[1]], rows=4, source_length=48, **options)
    (grads, out), (more_grads, more_out) = gradient(params, plain), gradient(params, more)
    assert out.weight == more_out.weight == 2
    np.testing.assert_allclose(more_out.loss_sum, out.loss_sum, rtol=1e-5)
    for name in ("reward_margin", "right_pairs"):
        np.testing.assert_allclose(more_out.metrics[name], out.metrics[name], rtol=1e-5)
    for one, two in zip(jax.tree.leaves(grads), jax.tree.leaves(more_grads), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
