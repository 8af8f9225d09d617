"""A run of a tiny encoder over rows of one's own."""

import json
from functools import cached_property

import pytest

from longsum_jax.experiment.config import default_sections, run_config
from longsum_jax.experiment.experiment import (
    Evaluator,
    check_run,
    make_batches,
    make_experiment,
    make_loss,
    make_store,
)
from longsum_jax.models.registry import preset

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


@pytest.fixture
def write_rows(tmp_path):
    """Rows to the path of a data file."""

    def write(rows, name="rows.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    return write


@pytest.fixture
def encoder_config(tmp_path):
    """The nested config of a tiny BERT over bytes; ``sections`` replace some values."""

    def make(name, data, /, **sections):
        config = default_sections() | {"model": preset("bert", "tiny", vocab_size=300, **SIZES)}
        config["task"] = {"name": name, "source": f"json:{data}", "max_source_length": 24}
        config["tokenizer"] |= {"path": "bytes"}
        config["training"] |= {"steps": 2, "best_metric": "accuracy", "progress": False}
        config["evaluation"] |= {"split": "train", "examples": 3, "batch_size": 2}
        for section, values in sections.items():
            replaced = "family" in values or not isinstance(values, dict)
            config[section] = values if replaced else config[section] | values
        return config

    return make


class Pieces:
    """The pieces of a run, each made when a test asks for it."""

    def __init__(self, config, workdir):
        run = run_config(config)
        check_run(run)
        self.experiment = make_experiment(run, workdir)
        self.objective, setup = self.experiment.objective, self.experiment.setup
        self.family, self.config, self.tokenizer = setup.family, setup.config, setup.tokenizer

    @cached_property
    def store(self):
        return make_store(self.experiment)

    def batches(self):
        return make_batches(self.experiment, self.store)

    def loss_fn(self):
        return make_loss(self.experiment)

    def evaluation_at(self, step, params):
        return Evaluator(self.objective).at(step, params)


@pytest.fixture
def experiment(encoder_config, tmp_path):
    return lambda *args, **sections: Pieces(encoder_config(*args, **sections), tmp_path / "run")
