"""The base of metrics that read texts with a model of the user's."""

import contextlib
import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, overload

import numpy as np

from longsum_jax.errors import InputError, check_whole
from longsum_jax.evaluation.metric import Metric, Scores

if TYPE_CHECKING:
    from longsum_jax.inference.model import Model
    from longsum_jax.models.config import ModelConfig


class Requirement(NamedTuple):
    """The kind of model that is needed.

    Attributes:
        described: with its article, for errors: "a model with a head for answers".
        heads: of which the config has one; () for any.
        encoder_decoder: whether the family has a decoder; None for either.
    """

    described: str = "an encoder"
    heads: tuple[str, ...] = ()
    encoder_decoder: bool | None = None

    def is_met(self, config: "ModelConfig", is_encoder_decoder: bool) -> bool:
        """Returns whether a model of this config will do."""
        has_head = not self.heads or config.head in self.heads
        return has_head and self.encoder_decoder in (None, is_encoder_decoder)


class UserModel:
    """A model that the user names by an option or gives as an object.

    Its kind is checked at once, by its config; it is loaded at its first use, once for all metrics
    that name the same one.

    Args:
        option: names the model in commands, "metrics.bertscore.model".
        path: the option's value, whatever ``longsum_jax.load`` takes; "" for none.
        given: an object in place of the path.
        requirement: that it must meet.

    Attributes:
        config: of the model.

    Raises:
        InputError: no model, one that cannot be read, or one of another kind.
    """

    config: "ModelConfig"

    def __init__(
        self, option: str, path: str, given: "Model | None", requirement: Requirement
    ) -> None:
        from longsum_jax.inference.loading import load_config

        self._option = option
        self._path = path
        self._given = given
        flag = option.removeprefix("metrics.")
        if given is None and not path:
            raise InputError(
                f"{option} names no model; give {requirement.described}, --metric_option={flag}=DIR"
            )
        family, self.config = (given.family, given.config) if given else load_config(path)
        if not requirement.is_met(self.config, family.is_encoder_decoder):
            raise InputError(
                f"{option}: {self.label} is a {family.name} with head {self.config.head}; give "
                f"{requirement.described}"
            )

    @property
    def label(self) -> str:
        """The path, or a description of the object."""
        return self._path or repr(self._given)

    @functools.cached_property
    def model(self) -> "Model":
        """The model, loaded in host memory.

        Raises:
            InputError: it cannot be loaded, or has no tokenizer.
        """
        from longsum_jax.inference.loading import load_shared

        model = self._given or load_shared(self._path)
        if not model.has_tokenizer:
            raise InputError(f"{self._option}: {self.label} has no tokenizer; copy its files there")
        return model

    @contextlib.contextmanager
    def on_device(self) -> Iterator["Model"]:
        """Puts the model on its device while the block runs; one that was given is left alone."""
        if self._given is not None:
            yield self.model
            return
        self.model.to_device()
        try:
            yield self.model
        finally:
            self.model.to_host()

    def describe(self) -> dict[str, Any]:
        """Returns what tells this model from others: hashes of weights and tokenizer."""
        return {"weights": self.model.fingerprint, "tokenizer": self.model.tokenizer.fingerprint}


class ModelMetric(Metric):
    """The base of metrics that read texts with a model of the user's.

    A subclass says what model it needs, and gives scores in ``score_with``.

    Args:
        options: of the metric.
        model: in place of the one that the options name.

    Attributes:
        name: of the metric in the registry.
        requirement: that the model must meet.
        user_model: the model.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of all metrics over a model.

        Attributes:
            model: directory, training workdir or name on the Hugging Face hub.
            batch_size: texts read together; it changes speed and memory, not values.
        """

        model: str = ""
        batch_size: int = 16

    name: ClassVar[str]
    requirement: ClassVar[Requirement] = Requirement()
    scored_last = True
    options: Options

    def __init__(self, options: Options | None = None, model: "Model | None" = None) -> None:
        super().__init__(options)
        check_whole(f"metrics.{self.name}.batch_size", self.options.batch_size, 1)
        option = f"metrics.{self.name}.model"
        self.user_model = UserModel(option, self.options.model, model, self.requirement)

    def score(
        self, predictions: Sequence[str], references: Sequence[str], sources: Sequence[str]
    ) -> list[Scores]:
        with self.user_model.on_device() as model:
            return self.score_with(model, predictions, references, sources)

    @abstractmethod
    def score_with(
        self,
        model: "Model",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        """Returns the scores of every example as ``score`` does, with the model on its device."""

    def describe(self) -> dict[str, Any]:
        options = super().describe()
        del options["batch_size"]
        return options | self.user_model.describe()


class TextIds(NamedTuple):
    """Texts as a model reads them.

    Attributes:
        rows: ids of every text, special tokens included.
        unread: number of tokens of every text that did not fit, int [texts].
    """

    rows: list[list[int]]
    unread: np.ndarray


def text_ids(model: "Model", texts: Sequence[str], limit: int | None = None) -> TextIds:
    """Returns the ids of texts, cut where the model's positions end.

    Args:
        model: with a tokenizer.
        texts: to read.
        limit: tokens to read of each, special ones included; None for as many as there are
            positions.
    """
    limit = longest_text(model, limit)
    tokenizer = model.tokenizer
    found = tokenizer.encode_batch(list(texts))
    rows = [tokenizer.add_special_tokens(ids, limit) for ids in found]
    num_special = len(tokenizer.add_special_tokens([]))
    unread = [len(ids) + num_special - len(row) for ids, row in zip(found, rows, strict=True)]
    return TextIds(rows, np.array(unread, np.int64))


@overload
def longest_text(model: "Model", limit: int) -> int: ...


@overload
def longest_text(model: "Model", limit: int | None = None) -> int | None: ...


def longest_text(model: "Model", limit: int | None = None) -> int | None:
    """Returns how many tokens of a text a model reads; None for all.

    Args:
        model: whose positions may end.
        limit: wanted; None for as many as there are.
    """
    from longsum_jax.models.registry import max_input_length

    limits = [each for each in (limit, max_input_length(model.config)) if each is not None]
    return min(limits, default=None)
