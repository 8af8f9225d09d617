import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from longsum_jax import Model
from longsum_jax.layers.layer_groups import regroup
from longsum_jax.models.registry import get_family


@pytest.mark.slow
def test_states_of_inner_layers_are_those_of_a_shorter_encoder(draw_params):
    family = get_family("locost")
    sizes = {"d_model": 16, "d_state": 4, "d_kv": 8, "d_ff": 16, "num_heads": 2}
    sizes |= {"vocab_size": 60, "num_decoder_layers": 1}
    config = family.config({"encoder_attention": "s4d*2,full*2", "num_layers": 4, **sizes})
    shorter = family.config({"encoder_attention": "s4d*2,full", "num_layers": 3, **sizes})
    model = Model(family, config, draw_params(family.init_params(config)))
    shapes = family.parameter_shapes(shorter)
    params = regroup(flatten_dict(jax.device_get(model.params), sep="/"), shapes)
    params = unflatten_dict({name: params[name] for name in shapes}, sep="/")
    ids = np.random.default_rng(0).integers(3, 60, (2, 20))
    wanted = Model(family, shorter, params).encode(ids)
    np.testing.assert_allclose(model.encode(ids, layer=3), wanted, atol=1e-6)
