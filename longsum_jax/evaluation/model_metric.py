"""Base class of metrics that use a model given by the user."""

import contextlib
import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, overload

import numpy as np

from longsum_jax.errors import InputError, check_whole, did_you_mean
from longsum_jax.evaluation.metric import Metric, Scores

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel
    from longsum_jax.models.config import ModelConfig

# Prefixes of label names: in entailment, in fact checking, in FactCC.
SUPPORTED = ("entail", "support", "correct")
REFUTED = ("contradict", "refute", "incorrect")


class Requirement(NamedTuple):
    """The kind of model that a metric needs.

    Attributes:
        described: description with its article, for errors: "a model with a
            head for answers".
        heads: accepted heads; () for any.
        encoder_decoder: True if the family must have a decoder; None for
            either.
    """

    described: str = "an encoder"
    heads: tuple[str, ...] = ()
    encoder_decoder: bool | None = None

    def is_met(self, config: "ModelConfig", is_encoder_decoder: bool) -> bool:
        """Returns True if a model with this config meets the requirement."""
        has_head = not self.heads or config.head in self.heads
        return has_head and self.encoder_decoder in (None, is_encoder_decoder)


class UserModel:
    """A model that the user names in an option or passes as an object.

    Its kind is checked immediately, from its config; it is loaded at its first
    use, once for all metrics with the same path.

    Args:
        option: name of the option, such as "metrics.bertscore.model".
        path: value of the option, as accepted by ``longsum_jax.load``; "" for
            none.
        model: model object instead of the path.
        requirement: requirement that the model must meet.

    Attributes:
        config: config of the model.

    Raises:
        InputError: no model, a model that cannot be read, or one of another
            kind.
    """

    config: "ModelConfig"

    def __init__(
        self,
        option: str,
        path: str,
        model: "LoadedModel | None",
        requirement: Requirement,
    ) -> None:
        from longsum_jax.inference.loading import load_config

        self._option = option
        self._path = path
        self._loaded = model
        flag = option.removeprefix("metrics.")
        if model is None and not path:
            raise InputError(
                f"{option} names no model; give {requirement.described}, --metric_option={flag}=DIR"
            )
        if model:
            family, self.config = (model.family, model.config)
        else:
            family, self.config = load_config(path)
        if not requirement.is_met(self.config, family.is_encoder_decoder):
            raise InputError(
                f"{option}: {self.label} is a {family.name} with head {self.config.head}; give "
                f"{requirement.described}"
            )

    @property
    def label(self) -> str:
        """The path, or a description of the object."""
        return self._path or repr(self._loaded)

    @functools.cached_property
    def model(self) -> "LoadedModel":
        """The model, loaded into host memory.

        Raises:
            InputError: it cannot be loaded, or it has no tokenizer.
        """
        from longsum_jax.inference.loading import load_shared

        model = self._loaded or load_shared(self._path)
        if not model.has_tokenizer:
            raise InputError(
                f"{self._option}: {self.label} has no tokenizer; copy its files there"
            )
        return model

    @contextlib.contextmanager
    def on_device(self) -> Iterator["LoadedModel"]:
        """Moves the model to its device during the block, unless it was passed as an object."""
        if self._loaded is not None:
            yield self.model
            return
        self.model.to_device()
        try:
            yield self.model
        finally:
            self.model.to_host()

    def describe(self) -> dict[str, Any]:
        """Returns the hashes of weights and tokenizer, which identify the model."""
        return {
            "weights": self.model.fingerprint,
            "tokenizer": self.model.tokenizer.fingerprint,
        }


class ModelMetric(Metric):
    """Base class of metrics that use a model given by the user.

    Subclasses define the requirement, and implement ``score_with``.

    Args:
        options: options of the metric.
        model: model to use instead of the one in the options.

    Attributes:
        name: name of the metric in the registry.
        requirement: requirement that the model must meet.
        user_model: the model.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of all metrics with a model.

        Attributes:
            model: directory, training workdir or name on the Hugging Face Hub.
            batch_size: texts read together; affects speed and memory, not
                values.
        """

        model: str = ""
        batch_size: int = 16

    name: ClassVar[str]
    requirement: ClassVar[Requirement] = Requirement()
    scored_last = True
    options: Options

    def __init__(
        self, options: Options | None = None, model: "LoadedModel | None" = None
    ) -> None:
        super().__init__(options)
        check_whole(
            f"metrics.{self.name}.batch_size", self.options.batch_size, 1
        )
        option = f"metrics.{self.name}.model"
        self.user_model = UserModel(
            option, self.options.model, model, self.requirement
        )

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        with self.user_model.on_device() as model:
            return self.score_with(model, predictions, references, sources)

    @abstractmethod
    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        """Returns the scores of every example, as ``score`` does, with the model on its device."""

    def describe(self) -> dict[str, Any]:
        options = super().describe()
        del options["batch_size"]
        return options | self.user_model.describe()


class TextIds(NamedTuple):
    """Tokenized texts for a model.

    Attributes:
        rows: ids of every text, including special tokens.
        unread: number of truncated tokens of every text, int [texts].
    """

    rows: list[list[int]]
    unread: np.ndarray


def text_ids(
    model: "LoadedModel", texts: Sequence[str], limit: int | None = None
) -> TextIds:
    """Returns the ids of texts, truncated to the model's positions.

    Args:
        model: model with a tokenizer.
        texts: texts to tokenize.
        limit: maximum tokens of each text, including special tokens; None for
            the number of positions.
    """
    limit = longest_text(model, limit)
    tokenizer = model.tokenizer
    encoded = tokenizer.encode_batch(list(texts))
    rows = [tokenizer.add_special_tokens(ids, limit) for ids in encoded]
    num_special = len(tokenizer.add_special_tokens([]))
    unread = [
        len(ids) + num_special - len(row)
        for ids, row in zip(encoded, rows, strict=True)
    ]
    return TextIds(rows, np.array(unread, np.int64))


@overload
def longest_text(model: "LoadedModel", limit: int) -> int: ...


@overload
def longest_text(
    model: "LoadedModel", limit: int | None = None
) -> int | None: ...


def longest_text(model: "LoadedModel", limit: int | None = None) -> int | None:
    """Returns the maximum number of tokens that a model reads of a text; None for no limit.

    Args:
        model: model, which may have a maximum number of positions.
        limit: requested limit; None for the number of positions.
    """
    from longsum_jax.models.registry import max_input_length

    limits = [
        value
        for value in (limit, max_input_length(model.config))
        if value is not None
    ]
    return min(limits, default=None)


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
