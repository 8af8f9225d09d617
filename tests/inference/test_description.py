import pytest
from longsum_jax.inference.description import describe

from longsum_jax.models.registry import get_family


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (999, "999"),
        (1000, "1.0K"),
        (34_200_000, "34.2M"),
        (340_000_000, "340.0M"),
        (1_500_000_000, "1.5B"),
    ],
)
def test_a_line_about_a_model(number, shown):
    family = get_family("t5")
    line = describe(family, family.presets["tiny"], number, {})
    assert line.startswith(f"t5, {shown} parameters, ")
