"""Heads shared by all encoder families and by models related to BART, and their config.json.

The head of a model is given by the class in ``architectures``, and it computes
the same output as the class in transformers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.dense import ACTIVATIONS, Dropout, Linear, normal
from longsum_jax.schema import Rate, Size
from longsum_jax.typing import AnyArray

ProblemType = Literal[
    "single_label_classification", "multi_label_classification"
]

# Heads whose logits have a row for every token.
TOKEN_HEADS = (
    "masked_lm",
    "causal_lm",
    "token_classification",
    "question_answering",
)
SPAN_OUTPUTS = 2  # the first and the last token of an answer


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The labels of a model that classifies texts or tokens.

    Attributes:
        num_labels: number of outputs of the head.
        problem_type: number of labels of a text: one, or any number (multi-label).
        id2label: names of the labels in order; empty if they have no names.
        classifier_dropout: dropout rate before the last layer of the head; None
            for the rate of the layers.
    """

    num_labels: Size = 2
    problem_type: ProblemType = "single_label_classification"
    id2label: tuple[str, ...] = ()
    classifier_dropout: Rate | None = None


def check_labels(config: Any) -> None:
    """Checks the labels of a config against its head.

    Raises:
        InputError: no label, a number of names other than the number of labels,
            or labels of spans.
    """
    if config.id2label and len(config.id2label) != config.num_labels:
        raise InputError(
            f"id2label names {len(config.id2label)} labels, num_labels is {config.num_labels}; "
            "they must agree"
        )
    if (
        config.head == "question_answering"
        and config.num_labels != SPAN_OUTPUTS
    ):
        raise InputError(
            f"num_labels is {config.num_labels}, but a head for question answering has "
            f"{SPAN_OUTPUTS} outputs, the start and the end of an answer; leave it out"
        )


def read_labels(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``LabelOptions`` from the labels of a config.json.

    Raises:
        InputError: the head predicts a number instead of labels.
    """
    if raw.get("problem_type") == "regression":
        raise InputError(
            'problem_type is "regression"; only single- and multi-label classification are '
            "supported"
        )
    labels = raw.get("id2label")
    if not labels:
        return {}
    names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    is_default = names == _default_labels(len(names))
    return {"num_labels": len(names), "id2label": () if is_default else names}


def write_labels(config: Any) -> dict[str, Any]:
    """Returns the entries of config.json that replace the labels of a config."""
    names = label_names(config)
    values: dict[str, Any] = {
        "num_labels": None,
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
    if config.problem_type == "single_label_classification":
        # transformers infers it for integer labels, and would otherwise apply
        # it to every later training, with any number of labels.
        values["problem_type"] = None
    return values


def label_names(config: Any) -> tuple[str, ...]:
    """Returns the names of a config's labels, by default transformers' names."""
    return tuple(config.id2label) or _default_labels(config.num_labels)


def _default_labels(count: int) -> tuple[str, ...]:
    """Returns transformers' names for labels without names."""
    return tuple(f"LABEL_{i}" for i in range(count))


def head_of(
    raw: Mapping[str, Any], suffixes: Mapping[str, Any], default: str
) -> Any:
    """Returns the head given by the first architecture of a config.json.

    Args:
        raw: content of the config.json.
        suffixes: suffix of a class name to its head; the first matching suffix
            is used.
        default: name of the class if the file does not specify one.

    Raises:
        InputError: an unsupported head; lists the supported ones.
    """
    name = next(iter(raw.get("architectures") or ()), default)
    for suffix, head in suffixes.items():
        if name.endswith(suffix):
            return head
    supported = ", ".join(f"...{suffix}" for suffix in suffixes)
    raise InputError(
        f'architecture "{name}" has a head that is not supported; supported: {supported}'
    )


def biased_linear(
    features: tuple[int, int],
    axes: tuple[str, str],
    std: float,
    dtype: Any,
    name: str,
) -> Linear:
    """Returns a linear layer with a bias of zeros and normally distributed weights."""
    return Linear(
        features,
        axes,
        normal(std),
        nn.initializers.zeros,
        dtype=dtype,
        name=name,
    )


class TextHead(nn.Module):
    """A head over one state of a text: a hidden layer, then a linear layer.

    Attributes:
        d_model: size of the state.
        outputs: number of labels, or 1 for the score of a choice.
        std: standard deviation of the initial weights.
        activation: activation after the hidden layer, a key of
            ``layers.dense.ACTIVATIONS``.
        input_dropout: dropout rate before the hidden layer.
        dropout: dropout rate after it.
    """

    d_model: int
    outputs: int
    std: float
    activation: str = "tanh"
    input_dropout: float = 0.0
    dropout: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, state: Float[AnyArray, "batch d_model"], deterministic: bool
    ) -> Float[Array, "batch outputs"]:
        """Returns float32 logits."""
        hidden, labels = (
            (self.d_model, self.d_model),
            (self.d_model, self.outputs),
        )
        x = Dropout(self.input_dropout)(state, deterministic)
        x = biased_linear(
            hidden, ("embed", "embed_out"), self.std, self.dtype, "dense"
        )(x)
        x = ACTIVATIONS[self.activation](x)
        x = Dropout(self.dropout)(x, deterministic)
        x = biased_linear(
            labels, ("embed", "labels"), self.std, self.dtype, "out"
        )(x)
        return x.astype(jnp.float32)


class TokenHead(nn.Module):
    """A head over the state of every token: a single linear layer.

    Attributes:
        d_model: size of a state.
        outputs: number of labels of a token, or 2 for the ends of a span.
        std: standard deviation of the initial weights.
        dropout: dropout rate before the layer.
    """

    d_model: int
    outputs: int
    std: float
    dropout: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        states: Float[AnyArray, "batch length d_model"],
        deterministic: bool,
    ) -> Float[Array, "batch length outputs"]:
        """Returns float32 logits of every token."""
        features = (self.d_model, self.outputs)
        x = Dropout(self.dropout)(states, deterministic)
        x = biased_linear(
            features, ("embed", "labels"), self.std, self.dtype, "out"
        )(x)
        return x.astype(jnp.float32)
