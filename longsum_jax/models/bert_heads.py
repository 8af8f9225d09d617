"""Heads of BERT and related models: over the vocabulary, the pooler, and for BigBird's answers."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from longsum_jax.layers.dense import (
    ACTIVATIONS,
    Dropout,
    FeedForward,
    LayerNorm,
    Linear,
)
from longsum_jax.layers.partitioning import logical
from longsum_jax.models.bert_config import BertConfig, BigBirdConfig
from longsum_jax.models.heads import SPAN_OUTPUTS, biased_linear
from longsum_jax.models.vocabulary import vocabulary_logits
from longsum_jax.ops.storage import StoredTable
from longsum_jax.typing import AnyArray


def _hidden_layer(config: BertConfig, outputs: int) -> Linear:
    """Returns the first layer of the vocabulary head and of the pooler."""
    features = (config.hidden_size, outputs)
    axes, std = ("embed", "embed_out"), config.initializer_range
    return biased_linear(features, axes, std, config.compute_dtype, "dense")


class VocabularyHead(nn.Module):
    """The head that predicts the token at every position, or the next one."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        table: Float[AnyArray, "vocab embedding_size"] | StoredTable,
    ) -> Float[Array, "batch length vocab"]:
        """Returns float32 logits of states ``x``; ``table`` is the embedding table."""
        c = self.config
        x = _hidden_layer(c, c.embedding_size)(x)
        x = ACTIVATIONS[c.vocabulary_activation or c.hidden_act](x)
        x = LayerNorm(c.layer_norm_eps, c.compute_dtype, name="norm")(x)
        init = logical(nn.initializers.zeros, "vocab")
        return vocabulary_logits(x, table) + self.param(
            "bias", init, (c.vocab_size,)
        )


class Pooler(nn.Module):
    """The pooling layer over the first token's state, part of pre-trained BERTs."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, x: Float[AnyArray, "batch length d_model"]
    ) -> Float[Array, "batch d_model"]:
        """Returns tanh of a linear layer of the first token's state."""
        return jnp.tanh(
            _hidden_layer(self.config, self.config.hidden_size)(x[:, 0])
        )


class BigBirdAnswerHead(nn.Module):
    """BigBird's head for answers: a feed-forward with a residual, its norm, and a linear layer."""

    config: BigBirdConfig

    @nn.compact
    def __call__(
        self,
        states: Float[AnyArray, "batch length d_model"],
        deterministic: bool,
    ) -> Float[Array, "batch length 2"]:
        """Returns float32 logits of the first and the last token of an answer."""
        c = self.config
        features = (c.hidden_size, SPAN_OUTPUTS)
        feed_forward = FeedForward(
            c.intermediate_size,
            c.hidden_act,
            use_bias=True,
            init_std=c.initializer_range,
            dtype=c.compute_dtype,
            name="feed_forward",
        )
        dropout = Dropout(c.head_dropout)
        x = dropout(feed_forward(dropout(states, deterministic)), deterministic)
        x = LayerNorm(c.layer_norm_eps, c.compute_dtype, name="norm")(
            x + states
        )
        axes, std = ("embed", "labels"), c.initializer_range
        return biased_linear(features, axes, std, c.compute_dtype, "out")(
            x
        ).astype(jnp.float32)
