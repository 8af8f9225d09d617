import dataclasses

import numpy as np
import pytest

from longsum_jax.data.examples.base import Counts, example_lengths, pack, unpack
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.padding import pad_batch
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.tokenizers.loading import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("bytes")


@pytest.fixture
def task():
    return get_task("preferences", max_source_length=64, max_target_length=8)


def document(summary, rejected, name="a"):
    return DataRow(name, "A text.", summary, None, rejected=rejected)


def test_a_pair_is_tokenized_cut_and_counted(task, tokenizer):
    docs = [document("Good.", "Bad, and long."), document("Same", "Same", "b")]
    counts = Counts()
    first, second = make_examples(task, tokenizer, docs, counts=counts)
    assert tokenizer.decode(first["labels"].tolist()) == "Good."
    assert tokenizer.decode(first["rejected"].tolist()) == "Bad, an"
    assert example_lengths(first) == (8, 8)
    result = dataclasses.asdict(counts)
    assert (result["identical_pairs"], result["truncated_targets"]) == (1, 1)
    assert (result["target_tokens"], result["dropped_target_tokens"]) == (6 + 15 + 5 + 5, 7)
    again = unpack(pack(first))
    np.testing.assert_array_equal(again["rejected"], first["rejected"])

    second["reference"] = np.array([-3, -4], np.float32)
    batch = pad_batch([second], rows=2, source_length=16, target_length=8, pairs=True)
    np.testing.assert_array_equal(batch["rejected"], batch["labels"])
    np.testing.assert_array_equal(batch["reference"], [[-3, -4], [0, 0]])


def test_a_pair_needs_both_summaries(task, tokenizer):
    with pytest.raises(InputError, match='document "a" has no "rejected"; give each document a re'):
        list(make_examples(task, tokenizer, [document("Good.", None)]))
    renamed = dataclasses.replace(task, rejected_key="worse")
    with pytest.raises(InputError, match='"a" has no "worse"'):
        list(make_examples(renamed, tokenizer, [document("Good.", None)]))
    assert list(make_examples(task, tokenizer, [document(" ", "Bad.")])) == []
