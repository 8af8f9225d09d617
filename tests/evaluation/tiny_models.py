"""Directories with small models, for metrics over a model."""

import importlib

import pytest


@pytest.fixture(scope="session")
def sentences():
    """Sentences of one story."""
    from tiny_checkpoints import SENTENCES

    return list(SENTENCES)


def _written(tmp_path_factory, name, module="tiny_checkpoints"):
    write = getattr(importlib.import_module(module), f"write_{name}")
    return write(tmp_path_factory.mktemp(f"tiny_{name}") / "model")


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """A random BERT for masked words: 3 layers, 40 positions."""
    return _written(tmp_path_factory, "bert")


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory):
    """A random RoBERTa for masked words: 3 layers, 40 positions."""
    return _written(tmp_path_factory, "roberta")


@pytest.fixture(scope="session")
def tiny_bart(tmp_path_factory):
    """A random BART that summarizes: 2 layers, 40 positions."""
    return _written(tmp_path_factory, "bart")


@pytest.fixture(scope="session")
def tiny_entailment(tmp_path_factory):
    """A classifier of pairs with the labels of entailment."""
    return _written(tmp_path_factory, "entailment", "tiny_heads")


@pytest.fixture(scope="session")
def tiny_facts(tmp_path_factory):
    """A classifier of pairs with the labels of FactCC."""
    return _written(tmp_path_factory, "facts", "tiny_heads")


@pytest.fixture(scope="session")
def tiny_tags(tmp_path_factory):
    """A model that labels words."""
    return _written(tmp_path_factory, "tags", "tiny_heads")


@pytest.fixture(scope="session")
def tiny_answers(tmp_path_factory):
    """A model that answers questions."""
    return _written(tmp_path_factory, "answers", "tiny_heads")


@pytest.fixture(scope="session")
def tiny_masked(tmp_path_factory):
    """A masked language model of a dozen words."""
    return _written(tmp_path_factory, "masked", "tiny_heads")
