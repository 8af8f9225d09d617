import pytest

from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config


def sections(family, task):
    task = {"name": task, "source": "json:x"}
    return {"model": {"family": family}, "task": task, "training": {"steps": 1}}


@pytest.mark.parametrize("task", ["extracts", "labels", "masked_tokens"])
def test_smoothing_is_refused_where_it_would_have_no_effect(task):
    config = sections("roberta", task)
    objective = run_config(config).task.objective
    message = rf'label_smoothing=0\.1 has no effect on the objective "{objective}"'
    with pytest.raises(InputError, match=message):
        run_config(config | {"loss": {"label_smoothing": 0.1}})


def test_smoothing_of_summaries_is_taken():
    run = run_config(sections("t5", "summaries") | {"loss": {"label_smoothing": 0.1}})
    assert run.loss.label_smoothing == 0.1


def test_seeds_are_zero_by_default():
    """Stored results depend on them."""
    run = run_config(sections("t5", "summaries"))
    assert (run.training.seed, run.evaluation.seed) == (0, 0)
