"""Auxiliary models for reading segments: an extractor and a sentence encoder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.inference.sentences import (
    SentenceModel,
    extract,
    sentence_encoder,
)
from longsum_jax.text.segment_inputs import Auxiliary, SegmentInputOptions


class SavedModel(SentenceModel, Protocol):
    """A sentence model that can be saved, and moved to and from its device."""

    fingerprint: str

    def save(self, path: str | Path) -> None: ...

    def to_device(self) -> None: ...

    def to_host(self) -> None: ...


LoadModel = Callable[[], SavedModel]


class AuxiliaryModels(NamedTuple):
    """Functions that load the auxiliary models of a model; None if no weights are needed.

    The field names match ``SegmentInputOptions`` and the subdirectories of a
    model directory.

    Attributes:
        extractor: loader of a model that selects important sentences; None for
            central ones.
        sentence_encoder: loader of a model that embeds sentences; None for
            TF-IDF.
    """

    extractor: LoadModel | None = None
    sentence_encoder: LoadModel | None = None

    def check(self, options: SegmentInputOptions) -> None:
        """Raises InputError if ``options`` name a model that has no loader here."""
        for name, load in self._asdict().items():
            if getattr(options, name) and load is None:
                raise InputError(
                    f"segments.{name} is {getattr(options, name)}, but the model was made without "
                    "it; give Model(..., auxiliary=load_auxiliary(options))"
                )

    def functions(self) -> Auxiliary:
        """Returns the functions that run the models.

        Models are loaded at the first call, and stay on the device until
        ``release``.
        """
        models = {
            name: _OnDemand(load)
            for name, load in self._asdict().items()
            if load
        }
        functions: dict[str, Callable[..., Any]] = {}
        if "sentence_encoder" in models:
            functions["encode_sentences"] = partial(
                _encode_sentences, models["sentence_encoder"]
            )
        if "extractor" in models:
            functions["extract"] = partial(_extract, models["extractor"])
        if models:
            functions["release"] = partial(_release, list(models.values()))
        return Auxiliary(**functions)

    def fingerprints(self) -> dict[str, str]:
        """Loads the models; returns hashes of weights and tokenizers by name."""
        loaders = self._asdict().items()
        return {
            name: _fingerprint(load())
            for name, load in loaders
            if load is not None
        }

    def writers(self) -> dict[str, Callable[[Path], None]]:
        """Returns functions that save the models, by the names of their subdirectories."""
        loaders = self._asdict().items()
        return {
            name: partial(_save, load)
            for name, load in loaders
            if load is not None
        }

    def named_inside(self, summarization: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``summarization`` with each model name replaced by its subdirectory."""
        inside = {name: name for name in self.writers()}
        if not inside or "segments" not in summarization:
            return dict(summarization)
        return {
            **summarization,
            "segments": {**summarization["segments"], **inside},
        }


class _OnDemand:
    """A model that is loaded and moved to its device on use, until ``release``."""

    def __init__(self, load: LoadModel) -> None:
        self._load = load
        self._model: SavedModel | None = None

    def use(self) -> SavedModel:
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


def _fingerprint(model: SavedModel) -> str:
    fingerprint = f"{model.fingerprint}-{model.tokenizer.fingerprint}"
    if model.sentence_modules is None:
        return fingerprint
    return f"{fingerprint}-{model.sentence_modules.fingerprint}"


def _save(load: LoadModel, directory: Path) -> None:
    load().save(directory)
