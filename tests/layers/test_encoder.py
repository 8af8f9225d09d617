"""The encoder's layer: maps of important tokens elsewhere in a document."""

from functools import partial

import jax.numpy as jnp
import numpy as np

from longsum_jax.layers.encoder import EncoderLayer


class TwoMaps(EncoderLayer):
    """A layer of nothing but maps of keys and of values."""

    def setup(self):
        self.salient_maps = [partial(jnp.multiply, 2), partial(jnp.multiply, 3)]


def test_the_first_map_of_salient_vectors_is_of_keys():
    salient = jnp.ones((1, 2, 4)), jnp.array([[True, False]])
    extra = TwoMaps(None).apply({}, salient, method="_salient_keys")
    np.testing.assert_array_equal(extra[0], 2 * salient[0])
    np.testing.assert_array_equal(extra[1], 3 * salient[0])
    np.testing.assert_array_equal(extra[2], salient[1])
