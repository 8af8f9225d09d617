"""Checks of runs with ``data.pack``: models that keep the pairs of a row apart."""

from longsum_jax.errors import InputError
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import Objective
from longsum_jax.layers.attention.registry import (
    get_cross_attention,
    get_encoder_attention,
)
from longsum_jax.layers.layer_groups import parse_hybrid

_REMEDY = (
    "leave it out, and give data.batch_by_tokens=true with several "
    "data.source_lengths for short documents"
)


def check_packing(run: RunConfig, objective: type[Objective]) -> None:
    """Raises InputError if a run packs rows that its objective or model would mix."""
    data, model = run.data, run.model
    if not data.pack:
        return
    if not objective.packs:
        raise InputError(
            "config.data.pack joins pairs of document and summary, which the objective "
            f'"{run.task.objective}" does not train on; leave it out'
        )
    if data.batch_by_tokens:
        raise InputError(
            "config.data.batch_by_tokens has no effect on the rows of config.data.pack, which "
            "have one length; leave either out"
        )
    if len(data.source_lengths) > 1:
        raise InputError(
            f"config.data.source_lengths={data.source_lengths} are several, but the rows of "
            "config.data.pack have one length; give one"
        )
    if model.pages.page_length:
        raise InputError(
            f"config.data.pack does not work with config.model.page_length="
            f"{model.pages.page_length}, "
            f"whose pages mix the documents of a row; {_REMEDY}"
        )
    for name, _ in parse_hybrid(model.encoder_attention):
        attention = get_encoder_attention(name)
        if "segment_ids" not in attention.inputs:
            raise InputError(
                f'config.data.pack does not work with config.model.encoder_attention "{name}", '
                f"which mixes the documents of a row; {_REMEDY}"
            )
    if not get_cross_attention(model.cross_attention).packs:
        raise InputError(
            f"config.data.pack does not work with config.model.cross_attention "
            f'"{model.cross_attention}", which mixes the documents of a row; {_REMEDY}'
        )
