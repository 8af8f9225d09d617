"""A run of a tiny encoder over rows of one's own."""

import json

import pytest

from longsum_jax.experiment.experiment import Experiment, default_sections
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
            config[section] |= values
        return config

    return make


@pytest.fixture
def experiment(encoder_config, tmp_path):
    return lambda *args, **sections: Experiment(encoder_config(*args, **sections), tmp_path / "run")
