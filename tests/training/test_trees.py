import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.training.trees import check_names, describe, empty_tree


def test_trees_are_made_of_their_descriptions():
    tree = {"a": {"kernel": jnp.ones((4, 3))}, "bias": jnp.ones(3, jnp.bfloat16)}
    described = describe(tree)
    assert described == {"a/kernel": [[4, 3], "float32"], "bias": [[3], "bfloat16"]}
    made = empty_tree(described)
    assert describe(made) == described
    assert type(made["a"]["kernel"]) is np.ndarray


def test_names_of_lists_and_tuples_are_numbers():
    assert list(describe({"slots": [np.ones(1), (np.ones(1), ())]})) == ["slots/0", "slots/1/0"]


def test_differences_of_names_and_shapes_are_listed():
    expected = {"a": [[2], "float32"], "b": [[3], "float32"]}
    result = {"b": [[4], "float32"], "c": [[5], "float32"]}
    check_names(expected, expected, "file", "parameters")
    message = (
        r"^file: the parameters do not fit this model: missing a; extra c; "
        r"misshapen b \(there \(4,\), wanted \(3,\)\); start anew$"
    )
    with pytest.raises(InputError, match=message):
        check_names(expected, result, "file", "parameters", "start anew")


def test_long_lists_of_names_are_shortened():
    expected = {f"extra_{i}": [[1], "float32"] for i in range(20)}
    with pytest.raises(InputError, match=r"missing extra_0, .*, extra_\d+ and 12 more$"):
        check_names(expected, {}, "file", "parameters")
