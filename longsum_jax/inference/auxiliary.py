"""Auxiliary models for reading segments: an extractor and a sentence encoder."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.inference.loading import load_shared
from longsum_jax.inference.model import AuxiliaryModels, LoadedModel
from longsum_jax.inference.sentences import extract, sentence_encoder
from longsum_jax.text.segment_inputs import Auxiliary, SegmentInputOptions


def load_auxiliary(options: SegmentInputOptions) -> AuxiliaryModels:
    """Returns the models named by ``options``, each loaded once, at its first use.

    Args:
        options: options whose ``extractor`` and ``sentence_encoder`` are
            accepted by ``load_model``.
    """
    paths = {name: getattr(options, name) for name in AuxiliaryModels._fields}
    loaders: dict[str, Any] = {
        name: partial(load_shared, path) for name, path in paths.items() if path
    }
    return AuxiliaryModels(**loaders)


def check_auxiliary(
    models: AuxiliaryModels, options: SegmentInputOptions
) -> None:
    """Raises InputError if ``options`` name a model that has no loader."""
    for name, load in models._asdict().items():
        if getattr(options, name) and load is None:
            raise InputError(
                f"segments.{name} is {getattr(options, name)}, but the model was made without "
                "it; give Model(..., auxiliary=load_auxiliary(options))"
            )


def auxiliary_functions(models: AuxiliaryModels) -> Auxiliary:
    """Returns the functions that run the models.

    Models are loaded at the first call, and stay on the device until
    ``release``.
    """
    on_demand = {
        name: _OnDemand(load) for name, load in models.loaders().items()
    }
    functions: dict[str, Callable[..., Any]] = {}
    if "sentence_encoder" in on_demand:
        functions["encode_sentences"] = partial(
            _encode_sentences, on_demand["sentence_encoder"]
        )
    if "extractor" in on_demand:
        functions["extract"] = partial(_extract, on_demand["extractor"])
    if on_demand:
        functions["release"] = partial(_release, list(on_demand.values()))
    return Auxiliary(**functions)


class _OnDemand:
    """A model that is loaded and moved to its device on use, until ``release``."""

    def __init__(self, load: Callable[[], LoadedModel]) -> None:
        self._load = load
        self._model: LoadedModel | None = None

    def use(self) -> LoadedModel:
        self._model = self._load()
        self._model.to_device()
        return self._model

    def release(self) -> None:
        if self._model is not None:
            self._model.to_host()


def _encode_sentences(model: _OnDemand, sentences: Sequence[str]) -> np.ndarray:
    return sentence_encoder(model.use())(sentences)


def _extract(
    model: _OnDemand, sentences: Sequence[str], query: str | None
) -> list[int]:
    return extract(model.use(), [sentences], queries=[query])[0]


def _release(models: Sequence[_OnDemand]) -> None:
    for model in models:
        model.release()
