"""Auxiliary models of those that read in segments: an extractor and a sentence encoder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.inference.sentences import SentenceModel, extract, sentence_encoder
from longsum_jax.text.segment_inputs import Auxiliary, SegmentInputOptions


class SavedModel(SentenceModel, Protocol):
    """A model for sentences that can be written to a directory."""

    def save(self, path: str | Path) -> None: ...


LoadModel = Callable[[], SavedModel]


class AuxiliaryModels(NamedTuple):
    """Functions that load the auxiliary models of a model; None for what needs no weights.

    The names are those of ``SegmentInputOptions``, and of the subdirectories of a model directory.

    Attributes:
        extractor: returns a model that finds important sentences; None for central ones.
        sentence_encoder: returns a model whose vectors compare sentences; None for TF-IDF.
    """

    extractor: LoadModel | None = None
    sentence_encoder: LoadModel | None = None

    def check(self, options: SegmentInputOptions) -> None:
        """Raises InputError if ``options`` name a model that has no function here."""
        for name, load in self._asdict().items():
            if getattr(options, name) and load is None:
                raise InputError(
                    f"segments.{name} is {getattr(options, name)}, but the model was made without "
                    "it; give Model(..., auxiliary=load_auxiliary(options))"
                )

    def functions(self) -> Auxiliary:
        """Returns what the models compute; they are loaded at the first call."""
        functions: dict[str, Callable[..., Any]] = {}
        if self.sentence_encoder is not None:
            functions["encode_sentences"] = partial(_encode_sentences, self.sentence_encoder)
        if self.extractor is not None:
            functions["extract"] = partial(_extract, self.extractor)
        return Auxiliary(**functions)

    def writers(self) -> dict[str, Callable[[Path], None]]:
        """Returns functions that write the models, by the names of their subdirectories."""
        loaders = self._asdict().items()
        return {name: partial(_save, load) for name, load in loaders if load is not None}

    def named_inside(self, summarization: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``summarization`` with the models named by their subdirectories."""
        inside = {name: name for name in self.writers()}
        if not inside or "segments" not in summarization:
            return dict(summarization)
        return {**summarization, "segments": {**summarization["segments"], **inside}}


def _encode_sentences(load: LoadModel, sentences: Sequence[str]) -> np.ndarray:
    return sentence_encoder(load())(sentences)


def _extract(load: LoadModel, sentences: Sequence[str], query: str | None) -> list[int]:
    return extract(load(), [sentences], queries=[query])[0]


def _save(load: LoadModel, directory: Path) -> None:
    load().save(directory)
