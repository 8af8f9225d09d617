import dataclasses
from types import SimpleNamespace

import flax.traverse_util
import jax
import numpy as np
import pytest

from longsum_jax.data.preparation import write_prepared
from longsum_jax.errors import InputError
from longsum_jax.evaluation.classification import classification_scores
from longsum_jax.experiment.experiment import make_lora
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.models.registry import get_family
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.bytes import ByteTokenizer
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.training.loop import LoopOptions

SINGLE = [
    {"id": f"d{i}", "text": f"A review {i}.", "label": label}
    for i, label in enumerate(("bad", "good", "good"))
]
SEVERAL = [
    {"id": f"d{i}", "text": f"{i}", "label": label}
    for i, label in enumerate((["x"], [], ["x", "z", "y"]))
]


@pytest.fixture(scope="module")
def params_of(draw_params):
    return lambda experiment: draw_params(experiment.family.init_params(experiment.config))


def slow_logits(experiment, params):
    """Every document by itself, without padding."""
    module = experiment.family.module_class(experiment.config)
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, ids >= 0))
    return np.concatenate([apply(example["input_ids"][None]) for example in experiment.store])


@pytest.mark.slow
def test_one_label_each(params_of, experiment, write_rows):
    experiment = experiment("labels", write_rows(SINGLE), data={"batch_size": 4, "shuffle": "none"})
    config = experiment.config
    assert (config.head, config.num_labels, config.id2label) == (
        "classification",
        2,
        ("bad", "good"),
    )
    assert config.problem_type == "single_label_classification"
    batch = next(experiment.batches())
    assert batch["labels"].tolist() == [0, 1, 1, -100]
    params = params_of(experiment)
    logits = slow_logits(experiment, params)
    loss_sum, _ = class_cross_entropy(logits, np.array([0, 1, 1]))

    out = jax.jit(experiment.loss_fn())(params, batch, jax.random.key(0))
    np.testing.assert_allclose(out.loss_sum, loss_sum, rtol=1e-5)
    assert out.weight == 3
    assert out.metrics["right_documents"] == (logits.argmax(-1) == [0, 1, 1]).sum()

    scores, rows = experiment.objective.evaluate(params)
    selected = np.eye(2, dtype=bool)[logits.argmax(-1)]
    expected = classification_scores(selected, np.eye(2, dtype=bool)[[0, 1, 1]])
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    assert scores["negative_loss"] == pytest.approx(-float(loss_sum) / 3, rel=1e-5)
    assert scores["majority_accuracy"] == pytest.approx(200 / 3)
    assert [row["label"] for row in rows] == ["bad", "good", "good"]
    assert [row["prediction"] for row in rows] == [config.id2label[k] for k in logits.argmax(-1)]
    assert sum(rows[0]["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert "3 documents, labels bad, good" in experiment.objective.report(
        experiment.evaluation_at(0, params)
    )


@pytest.mark.slow
def test_the_second_of_two_texts_has_another_type(params_of, experiment, write_rows):
    rows = [
        {"id": "a", "document": "It rained.", "claim": "Rain.", "label": "CORRECT"},
        {"id": "b", "document": "It snowed a lot.", "claim": "Rain.", "label": "INCORRECT"},
    ]
    sections = {"data": {"batch_size": 3, "shuffle": "none"}, "evaluation": {"examples": 2}}
    experiment = experiment("pairs", write_rows(rows), **sections)
    experiment.tokenizer.second_type = 1  # as BERT's
    params = params_of(experiment)
    module = experiment.family.module_class(experiment.config)

    @jax.jit
    def apply(ids, types):
        return module.apply({"params": params}, ids, ids >= 0, token_type_ids=types)

    def read_alone(types):
        rows = [example["input_ids"][None] for example in experiment.store]
        return np.concatenate([apply(ids, types(ids)) for ids in rows])

    # Behind the end of the document, id 1.
    logits = read_alone(lambda ids: (np.cumsum(ids == 1, axis=1) - (ids == 1) > 0).astype(int))
    assert not np.allclose(logits, read_alone(np.zeros_like), atol=1e-3)
    batch = next(experiment.batches())
    out = jax.jit(experiment.loss_fn())(params, batch, jax.random.key(0))
    loss_sum, _ = class_cross_entropy(logits, np.array([0, 1]))
    np.testing.assert_allclose(out.loss_sum, loss_sum, rtol=1e-5)
    scores, _ = experiment.objective.evaluate(params)
    assert scores["negative_loss"] == pytest.approx(-float(loss_sum) / 2, rel=1e-5)


@pytest.mark.slow
def test_several_labels(params_of, experiment, write_rows):
    experiment = experiment(
        "labels", write_rows(SEVERAL), data={"batch_size": 4, "shuffle": "none"}
    )
    assert experiment.config.problem_type == "multi_label_classification"
    batch = next(experiment.batches())
    wanted = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1]])
    assert batch["labels"].tolist() == [*wanted.tolist(), [-100] * 3]
    assert batch["labels"].dtype == np.float32
    params = params_of(experiment)
    logits = slow_logits(experiment, params)

    out = jax.jit(experiment.loss_fn())(params, batch, jax.random.key(0))
    p = 1 / (1 + np.exp(-logits))
    expected = -np.where(wanted, np.log(p), np.log(1 - p)).mean(-1).sum()
    np.testing.assert_allclose(out.loss_sum, expected, rtol=1e-5)
    assert (out.weight, out.metrics["right_documents"]) == (3, ((p >= 0.5) == wanted).all(-1).sum())

    scores, rows = experiment.objective.evaluate(params)
    result = classification_scores(p >= 0.5, wanted, multi_label=True)
    assert {name: scores[name] for name in result} == pytest.approx(result)
    assert [row["label"] for row in rows] == [["x"], [], ["x", "y", "z"]]
    np.testing.assert_allclose([list(row["scores"].values()) for row in rows], p, atol=1e-5)


def test_a_model_that_wrote_learns_to_label(experiment, write_rows, tmp_path):
    """All of a BART is kept but the bias of its vocabulary; its decoder reads the text."""
    family = get_family("bart")
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1) | {"vocab_size": 300}
    config = dataclasses.replace(family.presets["tiny"], **sizes, pad_token_id=0, eos_token_id=1)
    shapes = family.parameter_shapes(config)
    flat = {path: np.full(shape, 0.1, np.float32) for path, shape in shapes.items()}
    params = flax.traverse_util.unflatten_dict(flat, sep="/")
    Model(family, config, params, load_tokenizer("bytes", vocab_size=300)).save(tmp_path / "bart")

    sections = {"data": {"batch_size": 4, "shuffle": "none"}, "init_from": str(tmp_path / "bart")}
    sections["model"] = {"family": "bart"} | config.flat()
    experiment = experiment("labels", write_rows(SINGLE), **sections)
    start, labelled = experiment.experiment.start, family.parameter_shapes(experiment.config)
    names = {f"head/{name}/{part}" for name in ("dense", "out") for part in ("kernel", "bias")}
    assert set(start.fresh) == names
    assert shapes.keys() - labelled.keys() == {"final_logits_bias"}
    assert labelled["head/out/kernel"] == (64, 2)
    tree = {path: np.zeros(shape, np.float32) for path, shape in labelled.items()}
    params = flax.traverse_util.unflatten_dict(tree, sep="/")
    batch, key = next(experiment.batches()), jax.random.key(0)
    out = jax.eval_shape(experiment.loss_fn(), params, batch, key)
    assert out.loss_sum.shape == out.weight.shape == ()


def test_names_of_the_model_come_first(experiment, write_rows):
    model = {"num_labels": 3, "id2label": ("good", "bad", "other")}
    run = experiment("labels", write_rows(SINGLE), model=model)
    assert run.config.id2label == ("good", "bad", "other")
    assert [example["labels"].tolist() for example in run.store] == [[1], [0], [0]]
    model |= {"id2label": ("a", "b", "c")}
    with pytest.raises(
        InputError, match=r"label 'bad' is not a label of the task; .*known: a, b, c"
    ):
        experiment("labels", write_rows(SINGLE), model=model)


def test_an_evaluation_without_held_out_documents_says_so(experiment, write_rows):
    task = {"held_out": 1e-9}
    run = experiment("labels", write_rows(SINGLE), task=task, evaluation={"split": "validation"})
    with pytest.raises(
        InputError, match=r"no documents to evaluate on; raise task\.held_out=1e-09"
    ):
        run.objective.read_evaluation()


def test_names_of_prepared_data_are_those_of_the_config(experiment, write_rows, tmp_path):
    run = experiment("labels", write_rows(SINGLE))
    setup, prepared = run.experiment.setup, tmp_path / "prepared"
    write_prepared(prepared, setup.task, setup.tokenizer, "train", 1, progress=False)
    data = {"reader": "prepared", "prepared": str(prepared)}

    def named(*labels):
        task = {"labels": labels, "max_source_length": 24}
        task |= {"name": "labels", "source": setup.task.source}
        return experiment("labels", write_rows(SINGLE), data=data, task=task)

    assert named().config.id2label == named("bad", "good").config.id2label == ("bad", "good")
    with pytest.raises(InputError, match="the labels bad, good, the config or its model has good"):
        named("good", "bad")


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"model": {"family": "locost"}}, None),
        (
            {"training": {"best_metric": "mean_rouge"}},
            'config.training.best_metric: evaluation gives no "mean_rouge"; ',
        ),
        (
            {"data": {"source_lengths": (64, 1024)}},
            r"config.task.max_source_length \(or a bucket of data.source_lengths\) is",
        ),
    ],
)
def test_configs_that_do_not_fit(
    experiment, encoder_config, write_rows, tmp_path, sections, problem
):
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.experiment import check_run
    from longsum_jax.models.registry import preset

    config = encoder_config("labels", write_rows(SINGLE), **(sections if problem else {}))
    if problem is None:
        config["model"] = preset("locost", "tiny")
        problem = (
            'config.task.objective "classify" trains the head "classification", but '
            'config.model.family "locost" has language_model; change either'
        )
    with pytest.raises(InputError, match=problem):
        check_run(run_config(config))


def test_a_memory_that_nothing_fills_is_refused():
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.config_files import read_config
    from longsum_jax.experiment.experiment import check_run

    for variant in ("attentive", "kv"):
        task = {"task.objective": "summarize"}
        config = read_config(f"configs/awesome.py:tiny,variant={variant}", task)
        with pytest.raises(InputError, match="has a memory, which"):
            check_run(run_config(config))


def test_a_head_of_labels_in_another_order_is_drawn_anew(tmp_path, draw_params):
    family, tokenizer = get_family("bert"), ByteTokenizer(2)
    config = dataclasses.replace(
        family.presets["tiny"],
        vocab_size=tokenizer.vocab_size,
        head="classification",
        num_labels=2,
        id2label=("bad", "good"),
    )
    params = draw_params(family.init_params(config))
    Model(family, config, params, tokenizer, {}, {}).save(tmp_path / "model")
    assert WarmStart(str(tmp_path / "model"), family, config).fresh == []
    other = dataclasses.replace(config, id2label=("good", "bad"))
    start = WarmStart(str(tmp_path / "model"), family, other)
    assert "head/out/kernel" in start.fresh
    assert all(name.startswith("head/") for name in start.fresh)

    run = SimpleNamespace(training=LoopOptions(steps=1, train="lora"), init_from="model")
    with pytest.raises(InputError, match=r"model has no head/.* for this task; give a run that"):
        make_lora(SimpleNamespace(run=run), start)
