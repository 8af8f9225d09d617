"""Labels of a classifier of pairs, found by their names."""

from collections.abc import Sequence
from typing import Any

from longsum_jax.errors import InputError, did_you_mean

# How names of labels begin, whatever the model: of entailment, of fact checking, of FactCC.
SUPPORTED = ("entail", "support", "correct")
REFUTED = ("contradict", "refute", "incorrect")


def label_number(config: Any, option: str, name: str, beginnings: Sequence[str]) -> int:
    """Returns the number of a label.

    Args:
        config: of the model.
        option: gives its name, "metrics.summac.entailment".
        name: of the label; "" for the only one that begins with one of ``beginnings``.
        beginnings: in small letters.

    Raises:
        InputError: no such label, or several.
    """
    names = config.id2label or tuple(f"LABEL_{number}" for number in range(config.num_labels))
    if name:
        if name not in names:
            raise InputError(f'{option}="{name}" is no label; {did_you_mean(name, names)}')
        return names.index(name)
    found = [i for i, label in enumerate(names) if label.lower().startswith(tuple(beginnings))]
    if len(found) != 1:
        count = f"{len(found)} begin" if found else "none begins"
        raise InputError(
            f"{option} is not given, and of the model's labels {', '.join(names)} {count} with "
            f"{' or '.join(beginnings)}; name the label that is meant"
        )
    return found[0]
