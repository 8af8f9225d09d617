"""Directories as transformers writes them, beside the model that wrote them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """name -> (model of transformers, directory that it wrote); each is made once."""
    import transformers
    from reference import make_reference

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made = {}

    def make(name):
        if name not in made:
            model, directory = make_reference(name), tmp_path_factory.mktemp(name) / "model"
            model.save_pretrained(directory)
            made[name] = model, directory
        return made[name]

    return make


@pytest.fixture(scope="session")
def loaded(saved):
    """name -> our model, loaded from the directory of ``saved``; each once, so that it compiles
    once."""
    import longsum_jax

    made = {}

    def load(name):
        if name not in made:
            made[name] = longsum_jax.load(saved(name)[1])
        return made[name]

    return load
