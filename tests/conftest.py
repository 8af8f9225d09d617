"""What all tests share: a small tokenizer, and real documents where they are at hand."""

import os
from pathlib import Path

import pytest

DATA_VARIABLE = "LONGSUM_JAX_DATA"


def pytest_collection_modifyitems(config, items):
    """Leaves tests of real documents out where there are none, so that no run reports skipped tests."""
    if DATA_VARIABLE in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("shared_data")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real documents, for tests marked `shared_data`."""
    return Path(os.environ[DATA_VARIABLE])


@pytest.fixture(scope="session")
def topics():
    """English documents that every CPython carries: its language reference, by topic."""
    from pydoc_data import topics

    return list(topics.topics.values())


@pytest.fixture(scope="session")
def tiny_tokenizer(topics):
    """A SentencePiece tokenizer of 1,000 pieces and 10 extra ids, trained on `topics`."""
    from longsum_jax.text.tokenizers import train_sentencepiece

    return train_sentencepiece(topics, 1000, extra_ids=10)
