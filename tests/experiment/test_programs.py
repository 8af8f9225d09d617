import dataclasses

import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experiment import experiment as steps
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.programs import evaluation_length, run_programs
from longsum_jax.models.registry import get_family
from longsum_jax.training import mesh

ANSWER = "configs/answer.py:tiny"
EXTRACT = "configs/extractor.py:tiny"


def described(spec, **overrides):
    return run_config(read_config(spec, overrides))


def shapes_of(batch):
    return {name: (x.shape, x.dtype) for name, x in batch.items()}


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["quickstart", ANSWER, EXTRACT])
def test_batches_without_examples_have_the_shapes_of_those_with(spec, tiny_run, tmp_path):
    run = described(tiny_run if spec == "quickstart" else spec)
    experiment = steps.make_experiment(run, tmp_path)
    batches = steps.make_batches(experiment, steps.make_store(experiment))
    rows = run.data.batch_size
    assert shapes_of(next(batches)) == shapes_of(experiment.objective.empty_batch(rows))


def test_programs_of_a_run_are_named_and_hold_its_state(tiny_run):
    programs = {
        program.name: program for program in run_programs(described(tiny_run), jax.devices())
    }
    assert list(programs) == ["train", "loss", "read", "search"]
    params = programs["train"].parts["parameters"]
    moments = programs["train"].parts["optimizer"]
    sizes = [sum(x.size for x in jax.tree.leaves(tree)) for tree in (params, moments)]
    assert 2 * sizes[0] <= sizes[1] <= 2 * sizes[0] + 10
    assert programs["search"].trips == 4  # evaluation.max_new_tokens
    lowered = programs["loss"].lower()
    (rows,) = {x.shape[0] for x in jax.tree.leaves(lowered.in_avals) if x.dtype == np.bool_}
    assert rows == 4


def test_all_programs_have_the_options_of_the_mesh(tiny_run, monkeypatch):
    monkeypatch.setitem(mesh._COMPILER_OPTIONS, "cpu", {"no_such_option": True})
    for program in run_programs(described(tiny_run), jax.devices()):
        lowered = program.lower()
        with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
            lowered.compile()


@pytest.mark.parametrize(("wanted", "any_length", "table"), [("None", 64, 64), ("0", 64, 99)])
def test_evaluations_of_whole_documents_fill_the_positions(tiny_run, wanted, any_length, table):
    run = described(tiny_run, **{"evaluation.max_source_length": wanted})
    assert evaluation_length(run) == any_length
    bart = get_family("bart").config_class(vocab_size=384, max_position_embeddings=99)
    assert evaluation_length(dataclasses.replace(run, model=bart)) == table


def test_micro_batches_divide_over_the_devices_that_are_planned_for(tiny_run):
    run = described(tiny_run, **{"training.accumulation": "3"})
    with pytest.raises(InputError, match="4 rows do not divide into 3 micro-batch"):
        next(run_programs(run, jax.devices()[:1]))
    run = described(tiny_run, **{"mesh.batch": "2"})
    with pytest.raises(InputError, match="needs 2 devices, there are 1"):
        next(run_programs(run, jax.devices()[:1]))
