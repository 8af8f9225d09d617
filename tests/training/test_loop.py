import functools
import itertools
import json
import math
import os
import signal
import subprocess
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.dense import Linear, LowRank, low_rank_updates, normal
from longsum_jax.training import loop
from longsum_jax.training.checkpointing import read_meta, restore_params
from longsum_jax.training.loop import TRAINED, LoopOptions
from longsum_jax.training.loss import LossOutput, with_context, with_frozen
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.reporter import TrainingDiverged
from longsum_jax.training.step import CompilationWatch, make_train_step


def saved_steps(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def fit(toy):
    """Runs ``toy_fit``; runs with the same options share one compiled step."""
    model, steps = toy.ToyModel(), {}

    def make_step(loss_fn, optimizer, *, shardings, **options):
        key = (loss_fn, optimizer, *options.items())
        if key not in steps:
            steps[key] = make_train_step(loss_fn, optimizer, shardings=shardings, **options)
        return steps[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_train_step", make_step)
        yield functools.partial(
            toy.toy_fit,
            loss_fn=toy.make_loss(model),
            init=toy.make_init(model),
            optimizer=make_optimizer(OptimizerOptions("adamw", 0.05)),
        )


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """A run of nine steps, evaluated at 4, 8 and 9; the evaluation at 4 is the best."""
    workdir = tmp_path_factory.mktemp("whole")
    scores = {4: 0.5, 8: 0.2, 9: 0.3}
    run = {"model": {"embed": 8}, "training": {"steps": 9}}
    seen, evaluated = [], []

    def hook(step, state, metrics):
        seen.append((step, int(state.step), float(metrics["loss"])))

    def evaluation_hook(step, scores, position):
        assert toy.read_lines(workdir)[-1] == {"step": step, "eval": scores}
        evaluated.append((step, position))

    result = toy.toy_fit(
        workdir,
        evaluate=lambda params, step: {"mean_rouge": scores[step]},
        eval_every=4,
        run=run,
        model_name="toy",
        hooks=[hook],
        evaluation_hooks=[evaluation_hook],
        count_seconds=lambda compiled: 1e-4 * ("dot" in compiled.as_text()),
    )
    assert [step for step, _ in evaluated] == [4, 8, 9]
    assert evaluated[0][1] != evaluated[1][1]  # positions in the data
    return workdir, result, seen


@pytest.mark.slow
def test_run_of_all_steps(whole, toy):
    workdir, result, seen = whole
    assert (result.step, result.stopped_by, result.compilations) == (9, "steps", 1)
    losses = list(toy.losses(workdir).values())
    assert len(losses) == 9
    assert losses[-1] < 0.5 * losses[0]
    lines = toy.read_lines(workdir)
    assert seen == [(step, step, loss) for step, loss in toy.losses(workdir).items()]
    assert {
        "loss",
        "grad_norm",
        "param_norm",
        "learning_rate",
        "tokens_per_second",
        "skipped",
        "correct",
    } <= lines[0].keys()
    assert {"mfu", "seconds_left"} <= lines[1].keys()
    assert lines[-2]["seconds_left"] == 0
    assert [line for line in lines if "eval" in line] == [
        {"step": 4, "eval": {"mean_rouge": 0.5}},
        {"step": 8, "eval": {"mean_rouge": 0.2}},
        {"step": 9, "eval": {"mean_rouge": 0.3}},
    ]


class Buckets:
    """Batches of ``lengths``, one after the other."""

    def __init__(self, lengths):
        self.lengths = iter(lengths)

    def __next__(self):
        ids = np.ones((4, next(self.lengths)), np.int32)
        return {"ids": ids, "labels": ids}

    def state(self):
        return {}

    def restore(self, state):
        pass


@pytest.mark.slow
def test_a_steady_run_compiles_once_for_every_length(toy, tmp_path, capsys):
    compiled = []

    def count(event, seconds, fun_name="", **_):
        compiled.append(fun_name) if event.endswith("backend_compile_duration") else None

    lengths = [4, 6, 4, 6, 6, 8, 4, 8]
    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        result = toy.toy_fit(
            tmp_path, steps=len(lengths), batches=Buckets(lengths), checkpoint_every=0
        )
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert (result.step, result.compilations) == (8, 3)
    assert sum("step" in name for name in compiled) == 3, compiled
    assert "compiled again" not in capsys.readouterr().err


def test_a_step_that_is_compiled_again_is_told(capsys):
    class Step:
        compiled = 0

        def _cache_size(self):
            return self.compiled

    step = Step()
    watched, batch = CompilationWatch(step), {"x": np.ones((2, 3))}
    for number, step.compiled in enumerate((1, 1, 2, 2), 1):
        watched.check(number, batch)
    step.compiled = 3
    watched.check(5, {"x": np.ones((2, 4))})
    told = capsys.readouterr().err
    assert told.count("compiled again") == 1
    assert told.startswith("step 3 was compiled again")


def test_a_run_tells_of_steps_that_are_compiled_again(toy, tmp_path, monkeypatch, capsys):
    counts = itertools.count(1)
    monkeypatch.setattr(CompilationWatch, "compilations", property(lambda _: next(counts)))
    toy.toy_fit(tmp_path, steps=2, batches=Buckets([4, 4]), checkpoint_every=0)
    assert "step 2 was compiled again" in capsys.readouterr().err


def test_latest_and_best_checkpoints_are_kept(whole):
    workdir, result, _ = whole
    assert saved_steps(workdir) == [4, 9]
    about = read_meta(workdir, "best")
    assert (about["step"], about["model"], about["metrics"]) == (4, "toy", {"mean_rouge": 0.5})
    latest = restore_params(workdir, which="latest")
    jax.tree.map(np.testing.assert_array_equal, latest, jax.device_get(result.state.params))


def test_best_outlives_a_resume(fit, tmp_path, capsys):
    def evaluate(params, step):
        return {"mean_rouge": 1.0 / step}

    fit(tmp_path, steps=2, evaluate=evaluate)
    assert "resuming" not in capsys.readouterr().err
    fit(tmp_path, steps=6, evaluate=evaluate)
    assert "resuming from step 2 of 6\n" in capsys.readouterr().err
    assert saved_steps(tmp_path) == [2, 6]


@pytest.mark.slow
def test_longer_run_goes_on_as_if_never_stopped(toy, fit, whole, tmp_path):
    fit(tmp_path, steps=5)
    fit(tmp_path, steps=9)
    assert toy.losses(tmp_path) == toy.losses(whole[0])


def test_finished_run_started_again_does_nothing(toy, tmp_path, capsys):
    toy.toy_fit(tmp_path, steps=2)
    before = (tmp_path / "metrics.jsonl").read_text()
    result = toy.toy_fit(tmp_path, steps=2)
    assert (result.step, result.compilations) == (2, 0)
    assert "resuming" not in capsys.readouterr().err
    assert (tmp_path / "metrics.jsonl").read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_finishes_the_step_saves_and_returns(toy, fit, whole, tmp_path, name):
    def on_batch(number):
        if number == 5:
            os.kill(os.getpid(), getattr(signal, name))

    before = signal.getsignal(getattr(signal, name))
    result = fit(tmp_path, batches=toy.ToyBatches(on_batch=on_batch), checkpoint_every=100)
    assert (result.step, result.stopped_by) == (5, name)
    assert saved_steps(tmp_path) == [5]
    assert signal.getsignal(getattr(signal, name)) == before
    assert fit(tmp_path).stopped_by == "steps"
    assert toy.losses(tmp_path) == toy.losses(whole[0])


def test_signal_in_the_last_step_leaves_its_line_and_its_evaluation(toy, fit, tmp_path):
    def on_batch(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    options = {"steps": 3, "log_every": 2, "evaluate": lambda params, step: {"mean_rouge": 0.5}}
    result = fit(tmp_path, batches=toy.ToyBatches(on_batch=on_batch), **options)
    assert (result.step, result.stopped_by) == (3, "SIGTERM")
    assert list(toy.losses(tmp_path)) == [2, 3]
    assert read_meta(tmp_path)["metrics"] is None
    assert fit(tmp_path, **options).stopped_by == "steps"
    assert list(toy.losses(tmp_path)) == [2, 3]
    assert read_meta(tmp_path)["metrics"] == {"mean_rouge": 0.5}


def test_end_of_the_data_ends_the_run(toy, fit, tmp_path):
    result = fit(tmp_path, batches=toy.ToyBatches(epochs=1), checkpoint_every=100)
    assert (result.step, result.stopped_by) == (3, "data")
    assert saved_steps(tmp_path) == [3]


@pytest.mark.parametrize("checkpoint_every", [100, 3])
def test_end_of_the_data_is_evaluated_and_may_be_the_best(toy, fit, tmp_path, checkpoint_every):
    """Whether the last step has been saved before the data turn out to have ended, or not."""
    evaluated = []

    def evaluate(params, step):
        evaluated.append(step)
        return {"mean_rouge": 0.5}

    options = {"evaluate": evaluate, "checkpoint_every": checkpoint_every, "log_every": 2}
    fit(tmp_path, batches=toy.ToyBatches(epochs=1), **options)
    fit(tmp_path, batches=toy.ToyBatches(epochs=1), **options)  # complete: does nothing
    assert evaluated == [3]
    assert [(line["step"], line.get("eval")) for line in toy.read_lines(tmp_path)] == [
        (2, None),
        (3, None),
        (3, {"mean_rouge": 0.5}),
    ]
    about = read_meta(tmp_path, "best")
    assert (about["step"], about["metrics"]) == (3, {"mean_rouge": 0.5})


def test_a_run_killed_in_its_last_evaluation_is_evaluated_by_its_resume(toy, fit, tmp_path):
    def fail(params, step):
        raise KeyboardInterrupt

    options = {"eval_every": 0, "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, batches=toy.ToyBatches(epochs=1), evaluate=fail, **options)
    scores = {"mean_rouge": 0.5}
    options["evaluate"] = lambda params, step: scores
    fit(tmp_path, batches=toy.ToyBatches(epochs=1), **options)
    assert read_meta(tmp_path, "best")["metrics"] == scores


def test_a_run_killed_in_an_evaluation_repeats_it_before_it_goes_on(toy, fit, tmp_path):
    def evaluate(params, step):
        evaluated.append(step)
        if len(evaluated) == 2:
            raise KeyboardInterrupt
        return {"mean_rouge": 1.0 / step}

    evaluated = []
    options = {"eval_every": 2, "checkpoint_every": 0, "evaluate": evaluate, "steps": 5}
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, **options)
    assert saved_steps(tmp_path) == [2, 4]  # the checkpoint comes first
    fit(tmp_path, **options)
    assert evaluated == [2, 4, 4, 5]
    assert [line["step"] for line in toy.read_lines(tmp_path) if "eval" in line] == [2, 4, 5]
    assert saved_steps(tmp_path) == [2, 5]


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_every", [2, 3])
def test_evaluations_once_an_epoch(toy, fit, whole, tmp_path, checkpoint_every):
    """After each of three epochs of three steps; a resume neither repeats nor forgets one."""
    evaluated = []

    def evaluate(params, step):
        evaluated.append(step)
        return {"mean_rouge": 1.0 / step}

    options = {
        "evaluate": evaluate,
        "eval_every": "epoch",
        "checkpoint_every": checkpoint_every,
        "batches": toy.ToyBatches(epochs=3),
    }
    fit(tmp_path, steps=3, **options)
    assert evaluated == [3]
    options["batches"] = toy.ToyBatches(epochs=3)
    fit(tmp_path, steps=20, **options)
    assert evaluated == [3, 6, 9]
    assert saved_steps(tmp_path) == [3, 9]
    assert toy.losses(tmp_path) == toy.losses(whole[0])
    assert read_meta(tmp_path, "best")["step"] == 3


def test_without_an_evaluation_nothing_is_saved_for_it(fit, tmp_path):
    fit(tmp_path, steps=4, eval_every=1, checkpoint_every=0, keep_latest=9)
    assert saved_steps(tmp_path) == [4]


def test_epochs_that_are_not_counted_are_named(fit, tmp_path):
    options = {"eval_every": "epoch", "evaluate": lambda params, step: {"mean_rouge": 0.5}}
    with pytest.raises(InputError, match='eval_every: "epoch", but these batches do not count'):
        fit(tmp_path, batches=Buckets([4]), **options)


@pytest.mark.slow
def test_metrics_after_the_checkpoint_are_cut(toy, fit, whole, tmp_path):
    fit(tmp_path, steps=4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss": 99.0}\n{"step": 6, "lo')
    fit(tmp_path, steps=9)
    assert toy.losses(tmp_path) == toy.losses(whole[0])


def test_given_parameters_replace_the_initialisation(toy, fit, whole, tmp_path):
    given = jax.device_get(jax.jit(toy.make_init(toy.ToyModel()))(jax.random.key(99)))
    fit(tmp_path / "a", steps=2, initial_params=given)
    assert toy.losses(tmp_path / "a")[1] != toy.losses(whole[0])[1]
    del given["Dense_0"]["bias"]
    given["extra"] = np.zeros(3)
    with pytest.raises(InputError, match=r"initial_params: .* missing Dense_0/bias; extra extra"):
        fit(tmp_path / "b", steps=2, initial_params=given)


def failing_loss(params, batch, rng):
    """The batch says what it costs."""
    return LossOutput((params["w"] * batch["x"]).sum(), jnp.float32(1))


class Costs:
    """Hands out single numbers."""

    def __init__(self, costs):
        self.costs, self.position = costs, 0

    def __next__(self):
        self.position += 1
        return {"x": np.full((1, 1), self.costs[self.position - 1], np.float32)}

    def state(self):
        return {"position": self.position}

    def restore(self, state):
        self.position = state["position"]


COST_OPTIMIZER = optax.sgd(0.1)


def fit_costs(toy, workdir, costs, **kwargs):
    return toy.toy_fit(
        workdir,
        steps=len(costs),
        batches=Costs(costs),
        loss_fn=failing_loss,
        init=lambda rng: {"w": jnp.ones(1)},
        optimizer=COST_OPTIMIZER,
        **kwargs,
    )


def test_bad_batches_are_skipped_and_counted(toy, tmp_path):
    result = fit_costs(toy, tmp_path, [1, np.nan, np.inf, 1, np.nan, 1], max_bad_steps=3)
    assert float(result.state.params["w"][0]) == pytest.approx(0.7)
    lines = toy.read_lines(tmp_path)
    assert [line["skipped"] for line in lines] == [0, 1, 2, 2, 3, 3]
    assert [line["loss"] is None for line in lines] == [False, True, True, False, True, False]


def test_too_many_bad_batches_end_the_run(toy, tmp_path):
    costs = [1, 1, np.nan, 1] + [np.nan] * 6
    with pytest.raises(TrainingDiverged, match="steps 5 to 7, 3 in a row"):
        fit_costs(toy, tmp_path, costs, max_bad_steps=3)
    step = saved_steps(tmp_path)[-1]
    assert step in (4, 6)
    assert restore_params(tmp_path)["w"][0] == pytest.approx(0.7)


def test_an_update_that_is_not_finite_is_never_saved(toy, tmp_path):
    def rate(count):
        return jnp.where(count == 3, jnp.inf, 0.1)

    options = {"eval_every": 1, "evaluate": lambda params, step: {"mean_rouge": step}}
    options |= {"optimizer": optax.sgd(rate), "checkpoint_every": 1}
    with pytest.raises(TrainingDiverged, match="update of step 4 left parameters that are not"):
        toy.toy_fit(tmp_path, steps=6, **options)
    assert saved_steps(tmp_path) == [3]
    assert np.isfinite(restore_params(tmp_path)["Dense_0"]["kernel"]).all()


@pytest.mark.parametrize("position", [{}, {"position": None}, []])
def test_a_damaged_position_in_the_data_is_one_sentence(toy, fit, tmp_path, position):
    fit(tmp_path, steps=2)
    step = tmp_path / "checkpoints" / "2"
    toy.forget_sums(step)
    (step / "data" / "metadata").write_text(json.dumps(position))
    with pytest.raises(InputError, match="position in the data"):
        fit(tmp_path, steps=4, batches=StrictBatches(toy))


class StrictBatches:
    """Batches that check where they are moved to."""

    def __init__(self, toy):
        self.batches = toy.ToyBatches()

    def __next__(self):
        return next(self.batches)

    def state(self):
        return self.batches.state()

    def restore(self, state):
        self.batches.position = int(state["position"])


def test_two_trainings_in_one_workdir(toy, fit, tmp_path):
    """The second process is told; the first one does not notice it."""
    script = (
        "import sys; from pathlib import Path; from longsum_jax.locks import locked\n"
        "from longsum_jax.errors import InputError\n"
        "try:\n    locked(Path(sys.argv[1]), 'trains', 'give another workdir').__enter__()\n"
        "except InputError as error:\n    sys.exit(str(error))"
    )

    def on_batch(number):
        if number == 2:
            command = [sys.executable, "-c", script, str(tmp_path)]
            second.append(subprocess.run(command, capture_output=True, text=True))

    second = []
    fit(tmp_path, steps=2, batches=toy.ToyBatches(on_batch=on_batch))
    assert f"another process trains there (process {os.getpid()} on " in second[0].stderr


def test_workdir_of_another_run_is_refused(toy, whole):
    workdir = whole[0]
    other = {"model": {"embed": 16, "new": "x"}, "training": {"steps": 10}}
    message = r'model.embed \(8 there, 16 here\), model.new \(absent there, "x" here\)'
    with pytest.raises(InputError, match=message) as error:
        toy.toy_fit(workdir, run=other)
    assert "steps" not in str(error.value)
    assert json.loads((workdir / "run.json").read_text())["model"] == {"embed": 8}


def test_checkpoint_of_another_model_is_refused(toy, whole):
    run = {"model": {"embed": 8}, "training": {"steps": 9}}
    message = r"misshapen Dense_1/kernel \(there \(16, 12\), wanted \(16, 13\)\), Embed_0/embedding"
    with pytest.raises(InputError, match=message):
        toy.toy_fit(whole[0], vocab=13, run=run)


def test_checkpoint_of_another_optimizer_is_refused(toy, whole):
    run = {"model": {"embed": 8}, "training": {"steps": 9}}
    with pytest.raises(InputError, match=r"training state do not fit .* extra opt_state/1/count"):
        toy.toy_fit(whole[0], optimizer=optax.sgd(0.1), run=run)


def test_workdir_without_checkpoints_is_taken_over(fit, tmp_path):
    (tmp_path / "run.json").write_text('{"model": 1}')
    fit(tmp_path, steps=1, run={"model": 2})
    assert json.loads((tmp_path / "run.json").read_text()) == {"model": 2}


def test_workdir_that_cannot_be_written(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/run: cannot write there"):
        toy.toy_fit(tmp_path / "file" / "run")


def test_unknown_best_metric_is_named(fit, tmp_path):
    with pytest.raises(
        InputError, match=r'best_metric: the evaluation gives no "mean_rouge"; did you mean "rouge"'
    ):
        fit(tmp_path, steps=1, evaluate=lambda params, step: {"rouge": 1.0})


def test_progress_line_and_table(fit, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fit(tmp_path, steps=2, progress=True)
    shown = capsys.readouterr().err
    assert "432 parameters, 1,728 bytes" in shown
    assert "step 2/2" in shown
    assert "tokens/s" in shown


def test_missing_tensorboard_is_named(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(InputError, match=r"training\.tensorboard: needs the package tensorboardX"):
        fit(tmp_path, steps=1, tensorboard=True)


@pytest.mark.parametrize("name", ["steps", "accumulation", "max_bad_steps", "keep_latest"])
def test_bad_loop_options_are_named(name):
    with pytest.raises(InputError, match=f"training.{name}=0 must be at least 1"):
        LoopOptions(**({"steps": 1} | {name: 0}))


def test_unknown_word_for_eval_every_is_named():
    with pytest.raises(InputError, match=r'training\.eval_every: "epochs" is not allowed; give a'):
        LoopOptions(steps=1, eval_every="epochs")


class AdaptedModel(nn.Module):
    """An embedding and a linear map, to which LoRA adds a product."""

    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(12, 8, embedding_init=nn.initializers.normal(0.3))(ids)
        return Linear((8, 12), ("embed", "vocab"), normal(0.3), name="map")(x)


def fit_lora(toy, workdir, **options):
    model = AdaptedModel()

    def loss_fn(params, batch, rng):
        logits = model.apply({"params": params}, batch["ids"], rngs={"dropout": rng})
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"].clip(0))
        mask = batch["labels"] >= 0
        return LossOutput((losses * mask).sum(), mask.sum().astype(jnp.float32))

    def init(key):
        params = model.init(key, jnp.zeros((1, 5), jnp.int32))["params"]
        params["map"]["lora_a"] = jax.random.normal(key, (8, 2))
        params["map"]["lora_b"] = jnp.zeros((2, 12))
        return params

    low_rank = LowRank(2.0, 0.5)
    options = LoopOptions(steps=1, train="lora").__dict__ | options
    adapted = with_context(loss_fn, lambda: low_rank_updates(low_rank))
    return toy.toy_fit(
        workdir,
        loss_fn=with_frozen(adapted, TRAINED["lora"]),
        init=init,
        optimizer=make_optimizer(OptimizerOptions("adamw", 0.05), trained=TRAINED["lora"]),
        **options | {"log_every": 1, "progress": False},
    )


@pytest.mark.slow
def test_lora_and_averages_resume_bit_for_bit(toy, tmp_path):
    options = {"ema_decay": 0.5, "checkpoint_every": 0}
    whole = fit_lora(toy, tmp_path / "whole", steps=4, **options)
    fit_lora(toy, tmp_path / "cut", steps=2, **options)
    cut = fit_lora(toy, tmp_path / "cut", steps=4, **options)
    assert toy.losses(tmp_path / "cut") == toy.losses(tmp_path / "whole")
    jax.tree.map(np.testing.assert_array_equal, cut.state, whole.state)
    # Checkpoints have the averages as parameters.
    saved = restore_params(tmp_path / "cut")
    jax.tree.map(np.testing.assert_array_equal, saved, whole.state.params)
    embedding = saved["Embed_0"]["embedding"]
    start = fit_lora(toy, tmp_path / "start", steps=1, **options).state.params
    np.testing.assert_array_equal(embedding, start["Embed_0"]["embedding"])
    assert (saved["map"]["lora_b"] != start["map"]["lora_b"]).any()
    # Only A and B have moments and averages: 8 x 2 and 2 x 12, three times.
    sizes = [leaf.size for leaf in jax.tree.leaves(whole.state.opt_state) if leaf.ndim]
    assert sorted(sizes) == [16] * 3 + [24] * 3


@pytest.mark.slow
def test_early_stopping_and_clipped_steps(fit, tmp_path, toy):
    scores = {1: 0.1, 2: 0.5, 3: 0.5, 4: 0.4, 5: 0.9}
    options = {
        "evaluate": lambda params, step: {"mean_rouge": scores[step]},
        "eval_every": 1,
        "early_stopping_patience": 2,
        "log_every": 2,
        "clip_norm": 1e-6,
    }
    assert fit(tmp_path, steps=2, **options).stopped_by == "steps"
    for _ in range(2):  # when started again, it does not go on
        result = fit(tmp_path, steps=9, **options)
        assert (result.step, result.stopped_by) == (4, "early_stopping")
    lines = toy.read_lines(tmp_path)
    assert [line["clipped"] for line in lines if "loss" in line] == [1.0, 1.0]
    assert fit(tmp_path, steps=5, **options | {"early_stopping_patience": 0}).step == 5


@pytest.mark.slow
def test_early_stopping_with_scores_that_are_not_numbers(fit, tmp_path):
    scores = {1: math.nan, 2: math.nan, 3: 0.5, 4: math.nan, 5: 0.2, 6: 0.9}
    options = {
        "evaluate": lambda params, step: {"mean_rouge": scores[step]},
        "eval_every": 1,
        "early_stopping_patience": 2,
    }
    assert fit(tmp_path / "cut", steps=2, **options).stopped_by == "steps"
    for workdir in ("cut", "whole"):  # in files, null stands for NaN
        result = fit(tmp_path / workdir, steps=9, **options)
        assert (result.step, result.stopped_by) == (5, "early_stopping")
