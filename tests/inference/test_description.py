import pytest

from longsum_jax.inference.model import LoadedModel
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
def test_a_line_about_a_model(number, shown, monkeypatch):
    family = get_family("t5")
    monkeypatch.setattr(LoadedModel, "num_parameters", number)
    model = LoadedModel(family, family.presets["tiny"], {})
    assert repr(model).startswith(f"LoadedModel(t5, {shown} parameters, ")
