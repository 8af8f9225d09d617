import jax
import numpy as np
import pytest

from longsum_jax.conversion.positions import extend_positions
from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family

SIZES = {
    "vocab_size": 20,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 8,
}
SIZES |= {"decoder_ffn_dim": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
BERT = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


def make(name, **values):
    """Family, config, and parameters with numbers of their own."""
    family = get_family(name)
    config = family.config(values)
    shapes = family.parameter_shapes(config)
    tree = jax.eval_shape(family.init_params(config), jax.random.key(0))
    numbers = iter(range(len(shapes)))
    fill = lambda x: np.arange(x.size, dtype=np.float32).reshape(x.shape) + 1000 * next(numbers)  # noqa: E731
    return (
        family,
        config,
        jax.tree.map(
            fill, jax.tree.map(lambda x: x.unbox(), tree, is_leaf=lambda x: hasattr(x, "unbox"))
        ),
    )


@pytest.mark.parametrize(
    ("name", "values", "tables", "offset"),
    [
        (
            "bart",
            SIZES | {"max_position_embeddings": 6},
            ("source_positions", "target_positions"),
            2,
        ),
        (
            "bigbird_pegasus",
            SIZES | {"max_position_embeddings": 6},
            ("source_positions", "target_positions"),
            0,
        ),
        ("led", SIZES | {"max_encoder_position_embeddings": 6}, ("source_positions",), 0),
        ("bert", BERT | {"max_position_embeddings": 6}, ("position_embeddings",), 0),
        ("roberta", BERT | {"max_position_embeddings": 8}, ("position_embeddings",), 2),
    ],
)
def test_tables_are_repeated_after_their_first_rows(name, values, tables, offset):
    family, config, params = make(name, **values)
    longer, extended = extend_positions(family, config, params, 15)
    assert longer.max_source_length == 15
    for path, value in extended.items():
        if path not in tables:
            jax.tree.map(np.testing.assert_array_equal, value, params[path])
            continue
        assert value.shape == (15 + offset, 8)
        for row in range(15 + offset):
            source = row if row < offset else offset + (row - offset) % 6
            np.testing.assert_array_equal(value[row], params[path][source])


@pytest.mark.parametrize("extension", ["random", "last_row"])
def test_rows_behind_a_table_are_random_or_copies_of_the_last(extension):
    family, config, params = make("bart", **SIZES, max_position_embeddings=6)
    _, extended = extend_positions(family, config, params, 1006, extension)
    tables = [np.asarray(extended[name]) for name in ("source_positions", "target_positions")]
    for table, name in zip(tables, ("source_positions", "target_positions"), strict=True):
        assert table.shape == (1008, 8)
        np.testing.assert_array_equal(table[:8], params[name])
        if extension == "last_row":
            np.testing.assert_array_equal(table[8:], np.tile(params[name][-1], (1000, 1)))
        else:
            assert abs(table[8:].std() - 0.02) < 1e-3
            assert abs(table[8:].mean()) < 1e-3
    if extension == "random":
        assert np.abs(tables[0][8:] - tables[1][8:]).max() > 0.02
        _, again = extend_positions(family, config, params, 1006, extension)
        np.testing.assert_array_equal(again["source_positions"], tables[0])


def test_unknown_extensions_are_named():
    family, config, params = make("bart", **SIZES, max_position_embeddings=6)
    with pytest.raises(
        InputError, match='position_extension "tile" is unknown; did you mean "tiled"'
    ):
        extend_positions(family, config, params, 9, "tile")


def test_sinusoids_need_no_new_parameters():
    family, config, params = make("pegasus", **SIZES, max_position_embeddings=6)
    longer, extended = extend_positions(family, config, params, 9)
    assert longer.max_source_length == 9
    jax.tree.map(np.testing.assert_array_equal, extended, params)


@pytest.mark.parametrize(
    ("name", "values", "length", "problem"),
    [
        (
            "bart",
            SIZES | {"max_position_embeddings": 6},
            6,
            "max_source_length=6: the model reads 6 tokens already",
        ),
        ("t5", {}, 4096, "max_source_length=4096: t5 reads any length; leave it out"),
    ],
)
def test_what_cannot_be_extended(name, values, length, problem):
    family = get_family(name)
    with pytest.raises(InputError, match=problem):
        extend_positions(family, family.config(values), {}, length)
