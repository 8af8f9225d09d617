import json
from dataclasses import replace

import jax
import pytest

from longsum_jax.commands import train
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import default_sections, run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import count_held_out, make_experiment
from longsum_jax.models.registry import preset
from longsum_jax.training.loop import FitResult
from longsum_jax.training.state import TrainState


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"document": "The cat sat. It slept long. A dog came.", "summary": "A cat."}
    path.write_text("".join(json.dumps(row | {"id": str(i)}) + "\n" for i in range(20)))
    return path


@pytest.fixture
def experiment(tmp_path):
    """Makes the experiment of a tiny model over a task; nothing is compiled."""

    def make(**task):
        config = default_sections() | {"model": preset("locost", "tiny", vocab_size=300)}
        config["task"] = {"name": "summaries", "max_source_length": 64, **task}
        config["tokenizer"] |= {"path": "bytes"}
        config["evaluation"] |= {"split": "validation", "examples": 2}
        return make_experiment(run_config(config), tmp_path / "run")

    return make


class Evaluator:
    """Counts the evaluations of a run, and remembers the mesh of the last."""

    def __init__(self):
        self.count, self.mesh = 0, None

    def at(self, step, params):
        self.count += 1
        self.mesh = jax.sharding.get_abstract_mesh()


def test_every_process_evaluates_a_run_that_was_complete(experiment, rows, monkeypatch, capsys):
    """Arrays lie on the devices of all of them."""
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    evaluator, state = Evaluator(), TrainState(0, {}, {}, 0, 0)
    result = FitResult(state, 5, "steps", 0)
    train._report(experiment(source=f"json:{rows}"), evaluator, result)
    assert evaluator.count == 1
    assert "batch" in evaluator.mesh.axis_names
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("stopped_by", "flags", "code"),
    [
        ("SIGTERM", [], 0),
        ("SIGTERM", ["--stopped_exit_code=75"], 75),
        ("SIGINT", ["--stopped_exit_code=75"], 75),
        ("steps", ["--stopped_exit_code=75"], 0),
        ("data", ["--stopped_exit_code=75"], 0),
    ],
)
def test_exit_codes(monkeypatch, tmp_path, stopped_by, flags, code):
    result = FitResult(TrainState(0, {}, {}, 0, 0), 5, stopped_by, 0)
    monkeypatch.setattr(train, "_train", lambda *_: result)
    flags = ["--config=configs/quickstart.py:tiny", f"--workdir={tmp_path / 'run'}", *flags]
    assert train.main(flags) == code


def test_a_run_is_described_with_the_micro_batches_of_its_config(monkeypatch, tmp_path):
    runs = []

    def fit(*, options, run, **_):
        runs.append((options.accumulation, run["training"]["accumulation"]))
        raise InputError("nothing is trained here")

    monkeypatch.setattr("longsum_jax.training.loop.fit", fit)
    config = "configs/locost_c4.py:tiny,tokenizer.path=bytes,evaluation.examples=0"
    sizes = ["--config.data.batch_size=1", "--config.training.accumulation=2"]
    with pytest.raises(InputError, match="nothing is trained"):
        train.main([f"--config={config}", f"--workdir={tmp_path}", *sizes])
    assert runs == [(1, 2)]


@pytest.mark.parametrize("task", [{}, {"held_out": 0.2}])
def test_an_evaluation_on_documents_that_are_trained_on_is_said(experiment, rows, capsys, task):
    made = experiment(source=f"json:{rows}", **task)
    train._announce(made, made.setup.run, "20 examples", 0)
    said = 'the evaluation ("validation") reads the documents that are trained on; give task.held'
    assert (said in capsys.readouterr().err) == (not task)


def test_a_run_that_has_more_steps_says_only_that(experiment, rows, capsys):
    made = experiment(source=f"json:{rows}")
    steps = made.setup.run.training.steps
    train._announce(made, made.setup.run, "20 examples", steps + 1)
    said = f"the run already has {steps + 1:,} steps; raise training.steps to continue it\n"
    assert capsys.readouterr().err == said
    # limited by its epochs
    longer = replace(made.setup.run, training=replace(made.setup.run.training, steps=9))
    limited = made._replace(setup=replace(made.setup, run=longer))
    train._announce(limited, made.setup.run, "20 examples", steps + 1)
    assert "raise data.epochs to continue it" in capsys.readouterr().err


def test_held_out_documents_are_counted_whatever_the_splits_are_called(rows):
    splits = {"train": "train", "test": "test"}
    task = get_task("summaries", source=f"json:{rows}", held_out=0.3, splits=splits)
    assert 0 < count_held_out(task) < 20


def test_choices_of_the_config_for_answers():
    assert read_config("configs/answer.py:choices,choices=6", {})["task"]["max_parts"] == 6
    with pytest.raises(InputError, match="choices is five; give how many there are at most"):
        read_config("configs/answer.py:choices,choices=five", {})
