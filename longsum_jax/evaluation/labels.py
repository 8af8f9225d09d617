"""Finds labels of a pair classifier by their names."""

from collections.abc import Sequence
from typing import Any

from longsum_jax.errors import InputError, did_you_mean

# Prefixes of label names: in entailment, in fact checking, in FactCC.
SUPPORTED = ("entail", "support", "correct")
REFUTED = ("contradict", "refute", "incorrect")


def label_number(
    config: Any, option: str, name: str, beginnings: Sequence[str]
) -> int:
    """Returns the index of a label.

    Args:
        config: config of the model.
        option: name of the option for the label's name, such as
            "metrics.summac.entailment".
        name: name of the label; "" for the only one that begins with one of
            ``beginnings``.
        beginnings: prefixes in lower case.

    Raises:
        InputError: there is no such label, or there are several.
    """
    names = config.id2label or tuple(
        f"LABEL_{number}" for number in range(config.num_labels)
    )
    if name:
        if name not in names:
            raise InputError(
                f'{option}="{name}" is not a label of the model; {did_you_mean(name, names)}'
            )
        return names.index(name)
    matches = [
        i
        for i, label in enumerate(names)
        if label.lower().startswith(tuple(beginnings))
    ]
    if len(matches) != 1:
        if matches:
            count = f"{len(matches)} begin"
        else:
            count = "none begins"
        raise InputError(
            f"{option} is not given, and of the model's labels {', '.join(names)} {count} with "
            f"{' or '.join(beginnings)}; name the label that is meant"
        )
    return matches[0]
