import dataclasses

import pytest

from longsum_jax.layers.attention import options

OPTIONS = [value for value in vars(options).values() if dataclasses.is_dataclass(value)]


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_are_fields_of_modules_and_have_names(kind):
    """Programs are compiled once for equal options, so they have a hash and never change."""
    assert kind.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(kind))
