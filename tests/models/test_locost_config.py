import math

import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.state_space import StateSpaceAttention
from longsum_jax.models.locost import PRESETS, LocostConfig
from longsum_jax.models.registry import get_family


def test_base_has_the_published_number_of_parameters(shapes_of):
    sizes = {path: math.prod(shape) for path, shape in shapes_of(PRESETS["base"]).items()}
    assert sum(sizes.values()) == 234_724_224
    assert sizes["shared"] == 24_652_800
    assert sum(size for path, size in sizes.items() if path.startswith("encoder/")) == 96_796_416


def test_dynamics_of_each_direction_add_their_parameters(shapes_of):
    total = lambda config: sum(map(math.prod, shapes_of(config).values()))  # noqa: E731
    separate = total(LocostConfig.of(ssm_shared_dynamics=False)) - total(LocostConfig())
    assert separate == 12 * (768 + 768 * 256 * 4)  # log_dt, and A and B of every mode


def test_initial_values_of_the_paper_are_options():
    """Appendix E: Delta, b and c."""
    names = {"ssm_dt_init": "dt_init", "ssm_b_init": "b_init", "ssm_dt_max": "dt_max"}
    options = {"ssm_dt_init": "uniform", "ssm_b_init": "normal", "ssm_dt_max": 1.0}
    layer = StateSpaceAttention.from_stack(LocostConfig.of(**options).encoder_stack)
    assert {key: getattr(layer, name) for key, name in names.items()} == options
    with pytest.raises(InputError, match='ssm_b_init: "ones" is not allowed; did you mean'):
        get_family("locost").config({"ssm_b_init": "ones"})


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_consistent(name):
    config = PRESETS[name]
    assert config.num_heads * config.d_kv == config.d_model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_state": 7}, "d_state is 7; it must be even"),
        ({"d_state": 0}, "d_state=0 must be at least 1"),
        ({"d_model": 100, "num_heads": 3}, "d_model 100 is not divisible by num_heads 3"),
        ({"vocab_size": 0}, "vocab_size=0 must be at least 1"),
        ({"num_layers": -1}, "num_layers=-1 must be"),
        ({"dropout_rate": 1.0}, "dropout_rate=1.0 must be"),
        (
            {"feed_forward_proj": "gated-gelo"},
            'feed_forward_proj "gated-gelo" is unknown; .*gated-gelu',
        ),
    ],
)
def test_bad_values_are_named(options, message):
    with pytest.raises(InputError, match=message):
        LocostConfig.of(**options)
