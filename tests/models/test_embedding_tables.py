"""Embedding tables under each of their names in state dicts."""

import itertools

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from longsum_jax.checkpoints.state_dict import to_params, to_state_dict
from longsum_jax.models.embedding_tables import EmbeddingKeys, embedding_rows, infer_embeddings
from longsum_jax.models.registry import get_family
from longsum_jax.models.weight_map import WeightMap

FAMILIES = {name: get_family(name).presets["tiny"] for name in ("t5", "bart")}
SHAPE = (5, 2)


def table(letter):
    return np.full(SHAPE, ord(letter), np.float32)


def read(config, tensors):
    """Returns the parameters of a state dict of tables only, and its weight map."""
    keys = EmbeddingKeys.with_prefix(f"{config.prefix}." if config.prefix else "")
    config = infer_embeddings(config, tensors, keys)
    rows = embedding_rows(config, keys, stores_shared=not config.prefix)
    weight_map = WeightMap(rows.rows, rows.tied, copies=rows.copies)
    shapes = {row.path: SHAPE for row in weight_map.rows}
    return to_params(tensors, weight_map, shapes, "model.bin"), weight_map


def roles(params):
    """Returns the values that encoder, decoder and output read."""
    flat = {path: value[0, 0] for path, value in flatten_dict(params, sep="/").items()}
    shared = flat["shared"]
    return tuple(flat.get(name, shared) for name in ("shared", "target_embedding", "lm_head"))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_table_is_read_under_any_name(name):
    prefix = FAMILIES[name].prefix
    keys = EmbeddingKeys.with_prefix(f"{prefix}." if prefix else "")
    names = (*keys, "lm_head.weight")
    for letters in itertools.product("-ab", repeat=4):
        tables = {key: table(x) for key, x in zip(names, letters, strict=True) if x != "-"}
        if not tables:
            continue
        params, weight_map = read(FAMILIES[name], tables)
        orders = (keys.source, keys.target, keys.output)
        stored = [next(key for key in order if key in tables) for order in orders]
        assert roles(params) == tuple(tables[key][0, 0] for key in stored), letters
        again, _ = read(FAMILIES[name], to_state_dict(params, weight_map))
        assert roles(again) == roles(params), letters
