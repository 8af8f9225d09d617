import copy
import dataclasses
import json
import shutil
from types import SimpleNamespace

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from longsum_jax import checksums
from longsum_jax.checkpoints.huggingface import read_generation_config, read_summarization
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.experiment import experiment as steps
from longsum_jax.experiment.config import EvaluationOptions, default_sections, run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import (
    check_mesh,
    check_run,
    initial_params,
    make_batches,
    make_evaluator,
    make_experiment,
    make_loss,
    make_store,
    with_run_length,
    write_model_directory,
)
from longsum_jax.experiment.objectives import summary_evaluation
from longsum_jax.experiment.programs import run_programs
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.models.registry import get_family, preset
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.bytes import ByteTokenizer
from longsum_jax.tokenizers.loading import load_tokenizer


@pytest.fixture(scope="module")
def config(tiny_run):
    """Nested plain dictionaries, as from a config file."""
    return read_config(tiny_run, {})


def changed(config, section, **values):
    config = copy.deepcopy(config)
    config[section] |= values
    return config


def experiment_of(config, workdir):
    run = run_config(config)
    check_run(run)
    return make_experiment(run, workdir)


def batches_of(experiment):
    return make_batches(experiment, make_store(experiment))


def rows_of(path, count=6):
    lines = [
        {"document": f"The cat number {i} sat. It slept long. A dog came.", "summary": f"Cat {i}."}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_defaults_of_the_sections_make_an_experiment(tmp_path):
    config = default_sections() | {"model": preset("locost", "tiny"), "task": {"name": "embedded"}}
    run = run_config(config)
    check_run(run)
    assert run.data.batch_size == 8
    assert run.optimizer.name == "adamw"
    experiment_of(changed(config, "tokenizer", path="bytes"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_summaries_from_json_lines(config, tmp_path):
    rows_of(tmp_path / "train.jsonl")
    config = changed(
        config,
        "task",
        name="govreport",
        source=f"json:{tmp_path}/{{split}}.jsonl",
        gap_sentences=None,
    )
    config = changed(config, "data", batch_size=2, shuffle="none")
    experiment = experiment_of(changed(config, "tokenizer", path="bytes"), tmp_path / "run")
    batch = next(batches_of(experiment))
    assert batch["input_ids"].shape == (2, 64)
    labels = batch["labels"][1]
    assert experiment.setup.tokenizer.decode(labels[labels >= 0].tolist()) == "Cat 1."


def test_stream_gives_the_batches_of_the_list(config, tmp_path):
    config = changed(config, "tokenizer", path="bytes")
    result = []
    for reader in ("memory", "stream"):
        blocks = changed(config, "data", reader=reader, shuffle="block", shuffle_block=5)
        result.append(next(batches_of(experiment_of(blocks, tmp_path))))
    listed, streamed = result
    np.testing.assert_array_equal(listed["input_ids"], streamed["input_ids"])


@pytest.mark.slow
def test_epochs_end_a_run_and_its_schedule():
    """Seven batches an epoch; a stream does not know how many there are."""
    sections = {"data": {"epochs": 3}, "training": {"steps": 1000}}
    optimizer = {"schedule": "linear", "warmup_steps": 5}
    counted, streamed = (SimpleNamespace(batches_per_epoch=count) for count in (7, None))

    def length(batches, **changes):
        config = default_sections() | {"model": preset("t5", "tiny"), "task": {"name": "embedded"}}
        for name, values in (sections | {"optimizer": optimizer} | changes).items():
            config[name] = config[name] | values
        run = with_run_length(run_config(config), batches)
        return run.training.steps, run.optimizer.total_steps

    assert length(counted) == (21, 21)
    assert length(counted, training={"steps": 9}) == (9, 9)
    assert length(counted, data={"epochs": None}) == (1000, 1000)
    assert length(counted, optimizer=optimizer | {"total_steps": 50}) == (21, 50)
    assert length(counted, optimizer={}) == (21, None)
    assert length(streamed, optimizer={}) == (1000, None)
    with pytest.raises(InputError, match=r"total_steps is not set, and .* data\.epochs=3"):
        length(streamed)


def test_the_loss_of_a_run_knows_which_parameters_are_frozen(config, tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "with_frozen", lambda loss_fn, trained: trained)
    experiment = experiment_of(changed(config, "training", train="decoder"), tmp_path)
    assert make_loss(experiment) == "^decoder/"


@pytest.mark.slow
def test_loss_counts_tokens_and_right_guesses(config, trained, tmp_path):
    experiment, model = experiment_of(config, tmp_path), load(trained)
    batch = {
        "input_ids": np.array([[5, 6, 7, 1, 0], [8, 1, 0, 0, 0]]),
        "attention_mask": np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], bool),
        "labels": np.array([[9, 10, 1], [11, 1, -100]]),
    }
    out = jax.jit(make_loss(experiment))(model.params, batch, jax.random.key(1))
    logits = np.asarray(
        model.logits(batch["input_ids"], None, [[0, 9, 10], [0, 11, 1]]), np.float64
    )
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -sum(
        logits[b, t, batch["labels"][b, t]] for b, t in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))
    )
    np.testing.assert_allclose(out.loss_sum, expected, rtol=1e-5)
    assert (out.weight, out.metrics["tokens"]) == (5, 6 + 5)
    assert out.metrics["right_tokens"] == (logits.argmax(-1) == batch["labels"]).sum()


@pytest.mark.slow
def test_tokenizer_of_a_run_without_checkpoint_is_trained_anew(config, tmp_path):
    write_model_directory(experiment_of(config, tmp_path))
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {"config.json", "spiece.model"}
    other = experiment_of(changed(config, "model", vocab_size=400, d_ff=24), tmp_path)
    assert other.setup.tokenizer.num_pieces == 400
    write_model_directory(other)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["d_ff"] == 24


def test_texts_with_few_pieces_leave_rows_that_a_model_may_write(config, tmp_path):
    """Else a model that has learnt little ends its evaluation by an id without a token."""
    rows_of(tmp_path / "rows.jsonl")
    config = changed(config, "model", vocab_size=4000)
    source = f"json:{tmp_path}/rows.jsonl"
    config = changed(config, "task", source=source, document_key="document")
    tokenizer = experiment_of(config, tmp_path / "run").setup.tokenizer
    assert tokenizer.num_pieces < 1000
    assert tokenizer.vocab_size == 4000
    assert tokenizer.decode([3999, *tokenizer.encode("The cat sat.")]) == "The cat sat."
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path, vocab_size=4000).fingerprint == tokenizer.fingerprint


def test_start_from_a_trained_model(config, trained, tmp_path):
    experiment = experiment_of(config | {"init_from": str(trained)}, tmp_path / "other")
    model = load(trained)
    params = initial_params(experiment)
    assert jax.tree.all(jax.tree.map(np.array_equal, params, model.params))
    assert experiment.start.fresh == []
    assert experiment.setup.tokenizer.fingerprint == model.tokenizer.fingerprint


def test_start_from_another_model(config, trained, tmp_path):
    config = changed(config, "model", d_ff=24) | {"init_from": str(trained)}
    with pytest.raises(InputError) as caught:
        experiment_of(config, tmp_path / "other")
    assert str(caught.value) == (
        f"config.init_from: {trained} differs from config.model in "
        "decoder/layers/feed_forward/wi_0/kernel ((1, 16, 16) there, (1, 16, 24) here) and 5 more"
    )


def test_start_from_a_model_that_computes_otherwise(config, trained, tmp_path):
    config = changed(config, "model", feed_forward_proj="gated-silu") | {"init_from": str(trained)}
    problem = "computes with feed_forward_proj='gated-gelu', config.model with 'gated-silu'; give"
    with pytest.raises(InputError, match=problem):
        experiment_of(config, tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda c: c | {"optimiser": {}},
            'config: unknown section "optimiser"; did you mean "optimizer"?',
        ),
        (
            lambda c: {k: v for k, v in c.items() if k != "model"},
            'config: the section "model" is missing',
        ),
        (
            lambda c: changed(c, "data", batch=3),
            'config.data: unknown key "batch"; did you mean "batch_size"?',
        ),
        (
            lambda c: changed(c, "data", reader="steam"),
            'config.data.reader: "steam" is not allowed; did you mean "stream"?',
        ),
        (lambda c: changed(c, "data", reader="prepared"), "config.data.prepared is empty; "),
        (
            lambda c: changed(c, "data", reader="stream"),
            'config.data.shuffle is "all", which a stream cannot do; ',
        ),
        (
            lambda c: changed(c, "task", name="embeded"),
            'unknown task "embeded"; did you mean "embedded"?',
        ),
        (lambda c: changed(c, "model", d_state=7), "config.model: d_state is 7; it must be even"),
        (
            lambda c: changed(c, "training", steps="3"),
            "config.training.steps: expected int, got '3'",
        ),
        (
            lambda c: changed(c, "training", train="lora"),
            'config.training.train="lora" adapts a trained model; give one as config.init_from',
        ),
        (
            lambda c: changed(c, "lora", rank=4),
            'config.lora has no effect with config.training.train="all"',
        ),
        (
            lambda c: changed(
                changed(c, "training", early_stopping_patience=1), "evaluation", examples=0
            ),
            "config.training.early_stopping_patience=1 needs evaluations",
        ),
        (
            lambda c: changed(c, "mesh", preset="fdsp"),
            'config.mesh.preset: "fdsp" is not allowed; did you mean "fsdp',
        ),
    ],
)
def test_configs_that_make_no_experiment(config, tmp_path, change, problem):
    with pytest.raises(InputError) as caught:
        experiment_of(change(config), tmp_path)
    assert str(caught.value).startswith(problem)


FIRST_LOOKS = {
    "check_mesh": lambda config, workdir: check_mesh(run_config(config)),
    "batches": lambda config, workdir: batches_of(experiment_of(config, workdir)),
    "evaluator": lambda config, workdir: make_evaluator(experiment_of(config, workdir)),
}


@pytest.mark.parametrize(
    ("section", "values", "ask", "problem"),
    [
        (
            "mesh",
            {"batch": 3},
            "check_mesh",
            "mesh: batch=3 x fsdp=1 x tensor=1 x sequence=1 needs 3 devices,",
        ),
        (
            "training",
            {"accumulation": 3},
            "check_mesh",
            "batch_size: 4 rows do not divide into 3 micro-batch",
        ),
        (
            "tokenizer",
            {"path": "no/spiece.model"},
            "batches",
            "no/spiece.model: cannot read the tokenizer file (No such",
        ),
        (
            "task",
            {"source": "json:no/{split}.jsonl"},
            "batches",
            "no/train.jsonl: no such file; check the path, or give another as task.source",
        ),
        (
            "data",
            {"split": "trian"},
            "batches",
            'task "embedded" has no split "trian"; did you mean "train"?',
        ),
        (
            "data",
            {"reader": "prepared", "prepared": "no/where"},
            "batches",
            "no/where is not a prepared directory",
        ),
        (
            "evaluation",
            {"split": "test"},
            "evaluator",
            'task "embedded" has no split "test"; known: train, validation',
        ),
    ],
)
def test_what_the_first_look_finds(config, tmp_path, section, values, ask, problem):
    config = changed(config, section, **values)
    with pytest.raises(InputError) as caught:
        FIRST_LOOKS[ask](config, tmp_path)
    assert str(caught.value).startswith(problem)


def test_channels_that_do_not_divide_over_the_shards_of_a_text(config, monkeypatch):
    mesh = jax.sharding.AbstractMesh((1, 1, 1, 3), ("batch", "fsdp", "tensor", "sequence"))
    monkeypatch.setattr(
        "longsum_jax.experiment.experiment.make_mesh", lambda options, devices: mesh
    )
    with pytest.raises(
        InputError, match=r"d_model is 16, which does not divide over mesh.sequence=3; change"
    ):
        check_mesh(run_config(config))
    packed = config | {
        "model": config["model"] | {"encoder_attention": "full"},
        "data": config["data"] | {"pack": True},
    }
    with pytest.raises(InputError, match=r"data.pack does not work with mesh.sequence=3"):
        check_mesh(run_config(packed))


def test_prefix_and_generation_of_the_start_go_on(config, small_model, tmp_path):
    model = json.loads((small_model / "config.json").read_text())
    fields = {key: value for key, value in model.items() if key in config["model"]}
    config = changed(config, "model", **fields, family="locost") | {"init_from": str(small_model)}
    config = changed(config, "evaluation", max_new_tokens=None)
    config = changed(config, "task", prefix="summarize: ")
    write_model_directory(experiment_of(config, tmp_path / "run"))
    written = tmp_path / "run" / "model"
    assert read_summarization(written) == {"prefix": "summarize: "}
    assert read_generation_config(written)["max_new_tokens"] == 6


def test_what_evaluation_cannot_read_shows_before_training(config, tmp_path):
    config = changed(config, "evaluation", max_source_length=1)
    with pytest.raises(InputError, match="max_source_length=1 must be at least 2"):
        make_evaluator(experiment_of(config, tmp_path / "run"))


def test_lengths_are_those_of_the_run_not_of_the_start(config, small_model, tmp_path):
    """As BART and T5 have them: their options for summaries would go before all others."""
    start = tmp_path / "start"
    shutil.copytree(small_model, start)
    described = json.loads((start / "config.json").read_text())
    options = {"prefix": "tl;dr ", "max_length": 128, "min_length": 12, "num_beams": 4}
    described["task_specific_params"] = {"summarization": options}
    (start / "config.json").write_text(json.dumps(described))
    generation = json.loads((start / "generation_config.json").read_text())
    generation |= {"min_length": 56, "length_penalty": 2.0}
    (start / "generation_config.json").write_text(json.dumps(generation))
    checksums.write(start)

    fields = {key: value for key, value in described.items() if key in config["model"]}
    config = changed(config, "model", **fields, family="locost") | {"init_from": str(start)}
    config = changed(config, "task", prefix="tl;dr ")
    options = {"max_new_tokens": 512, "no_repeat_ngram_size": 3, "num_beams": 2}
    options |= {"min_new_tokens": 5, "early_stopping": True, "repetition_penalty": 1.5}
    config = changed(config, "evaluation", **options)
    experiment = experiment_of(config, tmp_path / "run")
    write_model_directory(experiment)
    written = tmp_path / "run" / "model"
    assert read_summarization(written) == {"prefix": "tl;dr "}
    generation_config = read_generation_config(written)
    assert generation_config["max_new_tokens"] == 512
    model = Model(
        experiment.setup.family,
        experiment.setup.config,
        None,
        experiment.setup.tokenizer,
        generation_config,
        read_summarization(written),
    )
    result = model.summary_options()
    assert {name: getattr(result, name) for name in options} == options
    assert result.length_penalty == 2.0  # the start's
    assert result == experiment.setup.make_model().summary_options()


def test_options_for_summaries_of_the_start_go_on(config, small_model, tmp_path):
    """As T5 has them: in config.json alone, before general ones."""
    start = tmp_path / "start"
    shutil.copytree(small_model, start)
    described = json.loads((start / "config.json").read_text())
    options = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "max_length": 200}
    described["task_specific_params"] = {"summarization": {"prefix": "tl;dr ", **options}}
    (start / "config.json").write_text(json.dumps(described))
    checksums.write(start)

    fields = {key: value for key, value in described.items() if key in config["model"]}
    config = changed(config, "model", **fields, family="locost") | {"init_from": str(start)}
    config = changed(
        config, "evaluation", max_new_tokens=None, num_beams=None, no_repeat_ngram_size=None
    )
    result = experiment_of(config, tmp_path / "run").setup.make_model().summary_options()
    assert result == load(start).summary_options()
    assert (result.num_beams, result.length_penalty, result.no_repeat_ngram_size) == (4, 2.0, 3)
    planned = [program for program in run_programs(run_config(config), jax.devices())]
    assert planned[-1].trips == result.max_new_tokens == 199


def with_checkpoint(experiment):
    """Writes the model directory of a run, and what stands for its first checkpoint."""
    write_model_directory(experiment)
    (experiment.setup.workdir / "checkpoints" / "1").mkdir(parents=True)


def test_a_run_goes_on_with_the_tokenizer_that_it_began_with(config, tiny_tokenizer, tmp_path):
    for name, tokenizer in (("tokenizer", tiny_tokenizer), ("other", ByteTokenizer(extra_ids=100))):
        tokenizer.save(tmp_path / name)
    config = changed(config, "model", vocab_size=1100)
    config = changed(config, "tokenizer", path=str(tmp_path / "tokenizer"))
    with_checkpoint(experiment_of(config, tmp_path / "run"))
    experiment_of(config, tmp_path / "run")
    other = changed(config, "tokenizer", path=str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"other, another tokenizer \(.*run/model, or another"):
        experiment_of(other, tmp_path / "run")


def test_a_run_goes_on_with_the_labels_that_it_began_with(tmp_path):
    def classifier(labels):
        rows = [{"document": f"text {i}", "label": label} for i, label in enumerate(labels)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = default_sections() | {"model": preset("bert", "tiny", vocab_size=300)}
        config["task"] = {"name": "labels", "source": f"json:{tmp_path / 'rows.jsonl'}"}
        config = changed(config, "tokenizer", path="bytes")
        return changed(config, "training", best_metric="accuracy")

    config = classifier(("bad", "good", "bad"))
    with_checkpoint(experiment_of(config, tmp_path / "run"))
    experiment_of(config, tmp_path / "run")
    with pytest.raises(InputError, match=r"labels are good, worst, but the run in .* bad, good"):
        experiment_of(classifier(("good", "worst", "worst")), tmp_path / "run")


def test_dropouts_are_those_of_the_start_unless_the_config_says_otherwise(
    config, small_model, tmp_path
):
    start = tmp_path / "start"
    shutil.copytree(small_model, start)
    described = json.loads((start / "config.json").read_text()) | {"dropout_rate": 0.3}
    (start / "config.json").write_text(json.dumps(described))
    checksums.write(start)
    fields = {key: value for key, value in described.items() if key in config["model"]}
    fields |= {"family": "locost", "dropout_rate": None}
    config = changed(config, "model", **fields)

    def rate(config, workdir="run"):
        return experiment_of(config, tmp_path / workdir).setup.config.dropout_rate

    assert rate(config | {"tokenizer": {"path": "bytes"}}) == 0.0  # the default
    config["init_from"] = str(start)
    assert rate(config) == 0.3
    assert rate(changed(config, "model", dropout_rate=0.1)) == 0.1
    # After the first checkpoint the start is not read any more.
    write_model_directory(experiment_of(config, tmp_path / "run"))
    (tmp_path / "run" / "checkpoints" / "1").mkdir(parents=True)
    shutil.rmtree(start)
    assert rate(config) == 0.3


def test_evaluation_generates_with_the_options_of_the_config(config, tmp_path, monkeypatch):
    rows_of(tmp_path / "train.jsonl")
    config = changed(
        config,
        "task",
        name="govreport",
        source=f"json:{tmp_path}/train.jsonl",
        gap_sentences=None,
    )
    options = {"max_new_tokens": 9, "min_new_tokens": 8, "num_beams": 2, "length_penalty": 2.0}
    config = changed(config, "evaluation", **options, early_stopping="never", seed=3)
    experiment = experiment_of(changed(config, "tokenizer", path="bytes"), tmp_path / "run")
    asked = []

    def predict(model, pairs, metrics, options):
        asked.append(options)
        raise InterruptedError

    monkeypatch.setattr(summary_evaluation, "predict", predict)
    with pytest.raises(InterruptedError):
        make_evaluator(experiment).at(0, None)
    [result] = asked
    assert result.seed == 3
    assert result.generation.items() >= (options | {"early_stopping": "never"}).items()


@pytest.mark.parametrize(("wanted", "tokens"), [(None, 64), (0, None), (128, 128)])
def test_evaluation_may_read_more_than_training(config, tmp_path, wanted, tokens):
    config = changed(config, "evaluation", max_source_length=wanted)
    config = changed(config, "task", max_source_length=64)
    experiment = experiment_of(changed(config, "tokenizer", path="bytes"), tmp_path / "run")
    assert experiment.objective.max_read_tokens == tokens


def test_every_option_of_generation_can_be_set(config):
    """But for ids that are the model's own, and the number of summaries of a document."""
    known = {field.name for field in dataclasses.fields(GenerationOptions)}
    left_out = {"decoder_start_token_id", "eos_token_id", "pad_token_id", "num_return_sequences"}
    ours = {field.name for field in dataclasses.fields(EvaluationOptions)}
    assert known - left_out <= ours
    options = {"suppress_tokens": (5, 6), "bad_words_ids": ((7, 8),), "forced_eos_token_id": 1}
    result = run_config(changed(config, "evaluation", **options)).evaluation.generation()
    assert result.items() >= options.items()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_source_length": -1}, "evaluation.max_source_length=-1 must be at least 0"),
        ({"num_beams": 0}, "config.evaluation: num_beams=0 must be at least 1"),
        ({"batch_size": 0}, "evaluation.batch_size=0 must be at least 1"),
        ({"examples": -4}, "evaluation.examples=-4 must be at least 0"),
        ({"length_penalty": float("nan")}, "evaluation.length_penalty=nan must be a finite"),
        ({"max_new_tokens": 4, "min_new_tokens": 5}, "min_new_tokens=5 must be at most"),
        ({"early_stopping": "ever"}, "early_stopping: .ever. is not allowed; did you mean .never."),
    ],
)
def test_options_of_generation_that_do_not_fit(config, options, problem):
    with pytest.raises(InputError, match=problem):
        run_config(changed(config, "evaluation", **options))


@pytest.mark.slow
def test_a_head_that_the_start_lacks_is_new(tmp_path, draw_params):
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    family = get_family("bert")
    values = {"vocab_size": 300, "head": "masked_lm", **sizes}
    config = family.config(values)
    params = draw_params(family.init_params(config))
    Model(family, config, params, load_tokenizer("bytes", vocab_size=300)).save(tmp_path / "masked")

    expected = family.config(values | {"head": "classification", "num_labels": 3})
    start = WarmStart(str(tmp_path / "masked"), family, expected, seed=7)
    names = family.parameter_shapes(expected)
    assert start.fresh == [name for name in names if name.startswith("head/")]
    result = flatten_dict(start.params, sep="/")
    assert {name: value.shape for name, value in result.items()} == names
    drawn = flatten_dict(nn.meta.unbox(family.init_params(expected)(jax.random.key(7))), sep="/")
    for name, value in flatten_dict(params, sep="/").items():
        if not name.startswith("head/"):
            np.testing.assert_array_equal(result[name], value)
    for name in start.fresh:
        np.testing.assert_allclose(result[name], drawn[name], atol=1e-6)

    # Another number of labels changes the output alone.
    Model(family, expected, start.params, load_tokenizer("bytes", vocab_size=300)).save(
        tmp_path / "labels"
    )
    five = WarmStart(str(tmp_path / "labels"), family, dataclasses.replace(expected, num_labels=5))
    assert five.fresh == ["head/out/bias", "head/out/kernel"]
    with pytest.raises(InputError, match=r"differs from config\.model in position_embeddings"):
        WarmStart(
            str(tmp_path / "masked"),
            family,
            dataclasses.replace(expected, max_position_embeddings=600),
        )
