"""Training segment by segment by command: from scratch, on from a checkpoint, from a model without
memories."""

import dataclasses
import json
import shutil

import flax.traverse_util
import jax
import numpy as np
import pytest

from longsum_jax.commands import evaluate, summarize, train
from longsum_jax.commands import prepare as prepare_command
from longsum_jax.data.examples import segments
from longsum_jax.errors import InputError
from longsum_jax.experiment import experiment as steps
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import (
    check_run,
    make_experiment,
    make_store,
    write_model_directory,
)
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.inference.auxiliary import auxiliary_functions
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer

SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}
SMALL = ",".join(f"model.{name}={size}" for name, size in SIZES.items())
TINY = (
    f"configs/awesome.py:tiny,variant=attn+txt,{SMALL},model.vocab_size=400,task.max_parts=4,"
    "data.batch_size=8"
)


def run(workdir, *overrides):
    given = (
        "training.checkpoint_every=1",
        "training.keep_latest=3",
        "evaluation.examples=1",
        "evaluation.max_new_tokens=4",
        *overrides,
    )
    return train.main(
        [
            f"--config={TINY}",
            f"--workdir={workdir}",
            *(f"--config.{override}" for override in given),
        ]
    )


def losses(workdir):
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, drawn_start):
    """Three steps and an evaluation at once."""
    path = tmp_path_factory.mktemp("segments") / "run"
    assert run(path, "training.steps=3") == 0
    return path


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_never_stopped(workdir, tmp_path, monkeypatch):
    """From the second checkpoint of the whole run, as a process that is killed leaves it."""
    shutil.copytree(workdir, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "3")
    monkeypatch.setattr(steps, "make_evaluator", lambda experiment: None)  # the whole run's is seen
    assert run(tmp_path / "run", "training.steps=3") == 0
    whole, parts = load(workdir, which="latest"), load(tmp_path / "run", which="latest")
    jax.tree.map(np.testing.assert_array_equal, whole.params, parts.params)
    assert losses(workdir) == losses(tmp_path / "run")
    assert len(losses(workdir)) == 3
    with pytest.raises(
        InputError,
        match=r"holds another run, differing in model\.memory_size \(16 there, 32 here\)",
    ):
        run(tmp_path / "run", "model.memory_size=32")


@pytest.mark.slow
def test_commands_read_segment_by_segment(workdir, tmp_path, capsys):
    rows = [
        {
            "id": str(i),
            "document": "One thing is said. Then another. " * (i + 6),
            "summary": "Said.",
        }
        for i in range(2)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "text.txt").write_text(rows[1]["document"])
    flags = [f"--model={workdir}", "--max_new_tokens=4"]
    evaluate.main([*flags, f"--data={tmp_path / 'rows.jsonl'}", f"--out={tmp_path / 'out'}"])
    predicted = [
        json.loads(line)
        for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    ]
    assert all(row["read_tokens"] == row["document_tokens"] > 64 for row in predicted)
    capsys.readouterr()
    summarize.main([*flags, str(tmp_path / "text.txt")])
    assert capsys.readouterr().out.strip() == predicted[1]["prediction"].strip()


@pytest.mark.slow
def test_a_model_without_memories_is_a_start(tmp_path, draw_params):
    sizes = {
        "vocab_size": 300,
        "d_model": 16,
        "encoder_layers": 3,
        "decoder_layers": 3,
        "encoder_ffn_dim": 16,
    }
    sizes |= {"decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    family = get_family("bart")
    config = family.config(sizes)
    params = draw_params(family.init_params(config))
    Model(family, config, params, load_tokenizer("bytes", vocab_size=300)).save(tmp_path / "plain")
    expected = family.config(
        sizes | {"memory": "attentive", "memory_layers": "last1", "salient_vectors": 4}
    )
    start = WarmStart(str(tmp_path / "plain"), family, expected)
    assert {name.split("/")[2] for name in start.fresh} == {
        "memory",
        "memory_norm",
        "salient_maps_0",
    }
    result = flax.traverse_util.flatten_dict(start.params, sep="/")
    for name, value in flax.traverse_util.flatten_dict(params, sep="/").items():
        if "/layers/" not in name:
            np.testing.assert_array_equal(result[name], value)
        else:
            groups = [
                result[name.replace("/layers/", f"/layers_{part}/")] for part in ("0_1", "2_2")
            ]
            np.testing.assert_array_equal(np.concatenate(groups), value)
    other = family.config(sizes | {"memory": "attentive", "memory_size": 8})
    Model(family, other, WarmStart(str(tmp_path / "plain"), family, other).params).save(
        tmp_path / "memory"
    )
    with pytest.raises(InputError, match=r"differs from config\.model in decoder/layers/memory"):
        WarmStart(
            str(tmp_path / "memory"),
            family,
            family.config(sizes | {"memory": "attentive", "memory_size": 16}),
        )


def checked_and_prepared(config, workdir):
    run = run_config(config)
    check_run(run)
    return make_experiment(run, workdir)


@pytest.mark.slow
def test_a_run_takes_its_extractor_along(tmp_path, draw_params):
    family = get_family("bert")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"num_hidden_layers": 1, "vocab_size": 300, "head": "extraction"}
    config = dataclasses.replace(family.presets["tiny"], **sizes)
    extractor = Model(family, config, draw_params(family.init_params(config)))
    extractor.tokenizer = load_tokenizer("bytes", vocab_size=300)
    extractor.save(tmp_path / "extractor")
    rows = [{"document": f"One thing is {word}. " * 20, "summary": "Said."} for word in ("a", "b")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = {"tokenizer.path": "bytes", "task.source": f"json:{tmp_path / 'rows.jsonl'}"}
    names = ("extractor", "sentence_encoder")
    overrides |= {f"task.segments.{name}": str(tmp_path / "extractor") for name in names}
    experiment = checked_and_prepared(read_config(TINY, overrides), tmp_path / "run")
    example = make_store(experiment)[0]
    assert len(example["segment_lengths"]) > 1
    _check_that_they_leave_their_device(experiment.auxiliary)
    write_model_directory(experiment)
    model = tmp_path / "run" / "model"
    described = json.loads((model / "config.json").read_text())
    options = described["task_specific_params"]["summarization"]["segments"]
    for name in names:
        assert options[name] == name
        assert load(model / name).fingerprint == extractor.fingerprint


def test_prepared_segments_are_those_that_the_run_would_make(tmp_path, monkeypatch):
    prepare_command.main(
        [
            *("--task=embedded", "--objective=summarize_segments", "--tokenizer=bytes"),
            *("--vocab_size=300", "--max_source_length=64", "--max_target_length=16"),
            *("--max_parts=4", "--min_tokens=24", "--max_tokens=32", "--train_tokens=4096"),
            *("--salient=text", f"--out={tmp_path / 'out'}", "--quiet"),
        ]
    )
    given = {"tokenizer.path": "bytes", "model.vocab_size": "300"}
    prepared = given | {"data.reader": "prepared", "data.prepared": str(tmp_path / "out")}
    expected = make_store(checked_and_prepared(read_config(TINY, given), tmp_path / "run"))
    with monkeypatch.context() as patch:  # a run reads them, and cuts no document again
        patch.setattr(segments, "read_segment_inputs", None)
        with pytest.raises(TypeError, match="not callable"):
            make_store(checked_and_prepared(read_config(TINY, given), tmp_path / "run"))
        result = make_store(checked_and_prepared(read_config(TINY, prepared), tmp_path / "run"))
    assert len(result) == len(expected)
    jax.tree.map(np.testing.assert_array_equal, dict(result[5]), dict(expected[5]))
    other = prepared | {"task.segments.min_tokens": "20"}
    with pytest.raises(InputError, match=r"segments\.min_tokens \(24 there, 20 here\); prepare it"):
        make_store(checked_and_prepared(read_config(TINY, other), tmp_path / "run"))


def _check_that_they_leave_their_device(auxiliary):
    functions, sentences = auxiliary_functions(auxiliary), ["One.", "Another one."]
    uses = {
        auxiliary.extractor: lambda: functions.extract(sentences, None),
        auxiliary.sentence_encoder: lambda: functions.encode_sentences(sentences),
    }
    for model, use in uses.items():

        def kinds(model=model):
            return {type(leaf) for leaf in jax.tree.leaves(model().params)}

        assert kinds() == {np.ndarray}  # after the examples have been made
        result = use()
        assert np.ndarray not in kinds()
        functions.release()
        assert kinds() == {np.ndarray}
        np.testing.assert_array_equal(use(), result)
        functions.release()


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            "model.salient_vectors=8",
            'config.task.segments.salient is "text", config.model.salient_vectors 8;',
        ),
        (
            "task.max_source_length=600",
            "config.task.max_source_length (or a bucket of data.source_lengths) is 600, but",
        ),
        (
            "model.memory_layers=last0",
            'config.model: memory_layers is "last0"; give "firstN", "lastN", "all" or the',
        ),
    ],
)
def test_configs_that_make_no_run(override, problem, tmp_path):
    key, _, value = override.partition("=")
    with pytest.raises(InputError) as caught:
        checked_and_prepared(read_config(TINY, {key: value}), tmp_path)
    assert str(caught.value).startswith(problem)
