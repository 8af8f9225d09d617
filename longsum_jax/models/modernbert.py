"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, windows and gated layers.

Reproduces transformers' outputs for the published checkpoints. Every third
layer attends to all tokens, the others to a window; the two kinds have
different bases of rotary positions. Linear layers and norms have no biases, and
the first layer does not normalize the input of its attention.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.layers.dense import ACTIVATIONS, NORMS, Dropout, Linear, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer_groups import layer_attentions
from longsum_jax.layers.partitioning import logical, look_up
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.bert import Bert
from longsum_jax.models.bert_config import (
    BIDIRECTIONAL_HEADS,
    VOCABULARY_HEADS,
    BertConfig,
)
from longsum_jax.models.bert_json import (
    HEAD_SUFFIXES,
    RUNTIME_FIELDS,
    shared_entries,
)
from longsum_jax.models.config import check_known
from longsum_jax.models.extraction_head import ExtractionHead, mean_state
from longsum_jax.models.family import Family
from longsum_jax.models.flat_config import read_fields
from longsum_jax.models.heads import (
    SPAN_OUTPUTS,
    biased_linear,
    head_of,
    read_labels,
)
from longsum_jax.models.t5gemma import (
    attention_of,
    check_layer_types,
    check_rotary_kinds,
    read_rotary,
)
from longsum_jax.models.vocabulary import vocabulary_logits
from longsum_jax.models.weight_map import (
    WeightMap,
    WeightRow,
    fused_linears,
    linear,
)
from longsum_jax.ops.positions import Rotary
from longsum_jax.ops.storage import Stored
from longsum_jax.schema import (
    Count,
    Layers,
    Length,
    Positive,
    PositiveFloat,
    Rate,
    Size,
)
from longsum_jax.typing import AnyArray

_SLIDING, _FULL = "sliding_attention", "full_attention"
_EVERY = 3  # distance of layers with full attention in published models
# Field name to key in config.json, if they differ.
_JSON_NAMES = {
    "hidden_act": "hidden_activation",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "embedding_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}


def _layer_types(num_layers: int, every: int = _EVERY) -> list[str]:
    """Returns the kinds of layers of published models."""
    return [_SLIDING if i % every else _FULL for i in range(num_layers)]


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """The config of ModernBERT; defaults of ModernBERT base.

    The kinds of the layers are its ``encoder_attention``: "full", "local" with
    the window ``local_radius``, or a list of both. Any other attention may
    replace them. In training, dropout also follows the feed-forwards, as in
    BERT, but not in transformers; published models have none.

    Attributes:
        full_rotary: base of the rotary positions of layers with full attention.
        local_rotary: base of the rotary positions of layers with a window.
        full_rotary_factor, local_rotary_factor: divisors of these positions.
        norm_bias, attention_bias, mlp_bias, classifier_bias, decoder_bias: True
            if the norms, the linear layers of attention and of feed-forwards,
            the hidden layer of the head, and the logits of the vocabulary have
            biases.
        mlp_dropout: dropout rate inside of feed-forwards.
        classifier_pooling: state of a text in classification: the first
            token's, or the mean.
        classifier_activation: activation in the head.
    """

    prefix: ClassVar[str] = "model"
    class_name: ClassVar[str] = "ModernBert"
    has_token_types: ClassVar[bool] = False
    heads: ClassVar[tuple[str, ...]] = tuple(
        head for head in BIDIRECTIONAL_HEADS if head != "pooler"
    )

    option_defaults: ClassVar[Mapping[str, Any]] = {"local_radius": 64}
    published_options: ClassVar[tuple[str, ...]] = ("local_radius",)

    encoder_attention: str = attention_of(_layer_types(22))
    vocab_size: Positive = 50368
    num_hidden_layers: Layers = 22
    intermediate_size: Size = 1152
    max_position_embeddings: Length = 8192
    layer_norm_eps: PositiveFloat = 1e-5
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0
    classifier_dropout: Rate | None = 0.0
    mlp_dropout: Rate = 0.0
    full_rotary: PositiveFloat = 160000.0
    local_rotary: PositiveFloat = 10000.0
    full_rotary_factor: PositiveFloat = 1.0
    local_rotary_factor: PositiveFloat = 1.0
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    classifier_bias: bool = False
    decoder_bias: bool = True
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_activation: str = "gelu"
    pad_token_id: Count = 50283
    bos_token_id: Count = 50281
    eos_token_id: Count = 50282

    def __post_init__(self) -> None:
        super().__post_init__()
        layer_attentions(self.encoder_attention, self.num_hidden_layers)
        check_known(self, "classifier_activation", ACTIVATIONS)
        check_known(self, "classifier_pooling", ("cls", "mean"))
        if self.hidden_size // self.num_attention_heads % 2:
            raise InputError(
                f"hidden_size {self.hidden_size} gives {self.num_attention_heads} heads of an odd "
                "size, but rotary positions turn pairs of features; change either"
            )

    @property
    def dropout_rate(self) -> float:
        """See ``BertConfig``."""
        return max(super().dropout_rate, self.mlp_dropout)

    @property
    def norm(self) -> Literal["layer", "layer_without_bias"]:
        """The norm of all layers, a key of ``layers.dense.NORMS``."""
        if self.norm_bias:
            return "layer"
        return "layer_without_bias"

    @property
    def rotary(self) -> tuple[Rotary, ...]:
        """The rotary positions of every layer."""
        full = Rotary(self.full_rotary, self.full_rotary_factor)
        local = Rotary(self.local_rotary, self.local_rotary_factor)
        names = layer_attentions(self.encoder_attention, self.num_hidden_layers)
        return tuple(local if name == "local" else full for name in names)

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
        # "gated-gelu" is T5's name of another function.
        if self.hidden_act == "gelu":
            act = "gelu_python"
        else:
            act = self.hidden_act
        return dataclasses.replace(
            super().encoder_stack,
            feed_forward=f"gated-{act}",
            norm=self.norm,
            pre_norm=True,
            final_norm=True,
            normalizes_first=False,
            attention_bias=self.attention_bias,
            feed_forward_bias=self.mlp_bias,
            activation_dropout_rate=self.mlp_dropout,
            rotary=self.rotary,
        )


class ModernHead(nn.Module):
    """The head of ModernBERT: a hidden layer, an activation and a norm, then the outputs.

    Attributes:
        outputs: number of outputs; 0 for logits of the vocabulary, by the
            embedding table.
    """

    config: ModernBertConfig
    outputs: int

    @nn.compact
    def __call__(
        self,
        states: Float[AnyArray, "*batch d_model"],
        table_or_deterministic: Float[AnyArray, "vocab d_model"]
        | Stored
        | bool,
    ) -> Float[Array, "*batch outputs"]:
        """Returns float32 logits.

        Args:
            states: states of tokens or texts.
            table_or_deterministic: the embedding table for logits of the
                vocabulary; otherwise False in training.
        """
        c = self.config
        shape, axes = (c.hidden_size, c.hidden_size), ("embed", "embed_out")
        init, std = normal(c.initializer_range), c.initializer_range
        bias = None
        if c.classifier_bias:
            bias = nn.initializers.zeros
        dense = Linear(
            shape, axes, init, bias, dtype=c.compute_dtype, name="dense"
        )
        x: AnyArray = ACTIVATIONS[c.classifier_activation](
            dense(jnp.asarray(states))
        )
        x = NORMS[c.norm](c.layer_norm_eps, c.compute_dtype, name="norm")(x)
        if self.outputs:
            assert isinstance(table_or_deterministic, bool)
            x = Dropout(c.head_dropout)(x, table_or_deterministic)
            features, labels = (
                (c.hidden_size, self.outputs),
                ("embed", "labels"),
            )
            x = biased_linear(features, labels, std, c.compute_dtype, "out")(
                jnp.asarray(x)
            )
            return x.astype(jnp.float32)
        assert not isinstance(table_or_deterministic, bool)
        logits = vocabulary_logits(x, table_or_deterministic)
        if not c.decoder_bias:
            return logits
        zeros = logical(nn.initializers.zeros, "vocab")
        return logits + self.param("bias", zeros, (c.vocab_size,))


class ModernBert(Bert):
    """ModernBERT; see ``Bert`` for the methods."""

    config: ModernBertConfig

    def setup(self) -> None:
        c = self.config
        self.word_embeddings = self._table(
            "word_embeddings", c.vocab_size, "vocab"
        )
        self.embedding_norm = NORMS[c.norm](c.layer_norm_eps, c.compute_dtype)
        self.encoder = Encoder(c.encoder_stack)
        if c.head == "extraction":
            self.head: nn.Module = ExtractionHead(
                c.encoder_stack, c.extraction_heads, c.sentence_positions
            )
        elif c.head != "none":
            outputs = {
                **dict.fromkeys(VOCABULARY_HEADS, 0),
                "multiple_choice": 1,
                "question_answering": SPAN_OUTPUTS,
            }
            self.head = ModernHead(c, outputs.get(c.head, c.num_labels))

    def text_state(
        self,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> Float[AnyArray, "batch d_model"]:
        """Returns the state that represents a text."""
        if self.config.classifier_pooling == "mean":
            return mean_state(states, mask)
        return super().text_state(states, mask)

    def embed(
        self,
        ids: Int[AnyArray, "batch length"],
        token_type_ids: Int[AnyArray, "batch length"] | None,
    ) -> Float[Array, "batch length d_model"]:
        """Returns the normalized embeddings; only attention depends on positions."""
        del token_type_ids
        return self.embedding_norm(look_up(self.word_embeddings, ids))


# config.json


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``ModernBertConfig`` in a config.json.

    Raises:
        InputError: another head, an unknown kind of layer or of rotary
            positions.
    """
    values = read_fields(raw, ModernBertConfig, RUNTIME_FIELDS, _JSON_NAMES)
    count = values.get("num_hidden_layers", 22)
    if "encoder_attention" not in raw:
        every = raw.get("global_attn_every_n_layers") or _EVERY
        kinds = raw.get("layer_types") or _layer_types(count, every)
        check_layer_types(kinds, count, "config")
        values["encoder_attention"] = attention_of(kinds)
        values["local_radius"] = (raw.get("local_attention") or 128) // 2
    parameters = raw.get("rope_parameters") or {}
    check_rotary_kinds(parameters, (_FULL, _SLIDING), "config")
    scaling = raw.get("rope_scaling") or {}
    for name, kind, old in (
        ("full_rotary", _FULL, "global_rope_theta"),
        ("local_rotary", _SLIDING, "local_rope_theta"),
    ):
        entries = parameters.get(kind) or {}
        if isinstance(entries, Mapping):
            entries = {**scaling, **entries}
        section = {"rope_parameters": entries}
        if raw.get(old) is not None:
            section["rope_theta"] = raw[old]
        rotary = read_rotary(section, "rope_parameters")
        if "rope_theta" in rotary:
            values[name] = rotary["rope_theta"]
        values[f"{name}_factor"] = rotary.get("rope_factor", 1.0)
    return (
        values
        | read_labels(raw)
        | {"head": head_of(raw, HEAD_SUFFIXES, "Model")}
    )


def write_config(config: ModernBertConfig) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields, or that only transformers reads."""
    values = shared_entries(config) | {
        **dict.fromkeys(("type_vocab_size", "is_decoder")),
        "cls_token_id": config.bos_token_id,
        "sep_token_id": config.eos_token_id,
    }
    for name, key in _JSON_NAMES.items():
        values |= {name: None, key: getattr(config, name)}
    parameters = {}
    for name, kind in (("full_rotary", _FULL), ("local_rotary", _SLIDING)):
        factor = getattr(config, f"{name}_factor")
        rope: dict[str, Any] = {
            "rope_type": "default",
            "rope_theta": getattr(config, name),
        }
        if factor != 1:
            rope |= {"rope_type": "linear", "factor": factor}
        parameters[kind] = rope
        values |= {name: None, f"{name}_factor": None}
    values["rope_parameters"] = parameters
    kinds = {"local": _SLIDING, "full": _FULL}
    names = layer_attentions(config.encoder_attention, config.num_hidden_layers)
    if set(names) <= kinds.keys():
        values |= {
            "layer_types": [kinds[name] for name in names],
            "local_attention": 2 * config.option("local_radius"),
            "encoder_attention": None,
            "local_radius": None,
        }
    return values


# State dicts


def weight_map(config: ModernBertConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    path, key = "encoder/layers", "model.layers.{i}"
    bias = config.attention_bias
    rows = [
        WeightRow("word_embeddings", "model.embeddings.tok_embeddings.weight"),
        *_norm("embedding_norm", "model.embeddings.norm", config),
        *_norm("encoder/final_norm", "model.final_norm", config),
        *_norm(f"{path}/self_norm", f"{key}.attn_norm", config),
        *_norm(f"{path}/ff_norm", f"{key}.mlp_norm", config),
        *fused_linears(
            f"{path}/self_attention",
            f"{key}.attn.Wqkv",
            "q",
            "k",
            "v",
            bias=bias,
        ),
        *linear(
            f"{path}/self_attention/o", f"{key}.attn.Wo", inputs=2, bias=bias
        ),
        *fused_linears(
            f"{path}/feed_forward",
            f"{key}.mlp.Wi",
            "wi_0",
            "wi_1",
            bias=config.mlp_bias,
        ),
        *linear(
            f"{path}/feed_forward/wo", f"{key}.mlp.Wo", bias=config.mlp_bias
        ),
    ]
    ignored: tuple[str, ...] = (
        r"\.(full|sliding)_attention_(original_)?inv_freq$",
    )
    if config.head in ("none", "extraction"):
        # Plain models are written without the prefix.
        rows = [
            row._replace(key=row.key.removeprefix("model.")) for row in rows
        ]
        ignored += (r"^(head|decoder|classifier)\.",)
        return WeightMap(rows, ignored=ignored, aliases=((r"^model\.", ""),))
    rows += linear("head/dense", "head.dense", bias=config.classifier_bias)
    rows += _norm("head/norm", "head.norm", config)
    tied = {}
    if config.head in VOCABULARY_HEADS:
        tied["decoder.weight"] = "model.embeddings.tok_embeddings.weight"
        if config.decoder_bias:
            rows += [WeightRow("head/bias", "decoder.bias")]
        else:
            rows += []
    else:
        rows += linear("head/out", "classifier", bias=True)
    return WeightMap(rows, tied, ignored, prefix="model.")


def _norm(path: str, key: str, config: ModernBertConfig) -> list[WeightRow]:
    """Returns the rows of a norm."""
    rows = [WeightRow(f"{path}/scale", f"{key}.weight")]
    if config.norm_bias:
        return [*rows, WeightRow(f"{path}/bias", f"{key}.bias")]
    return rows


_SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "encoder_attention": attention_of(_layer_types(4)),
}
_LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "intermediate_size": 2624,
    "encoder_attention": attention_of(_layer_types(28)),
}
_TINY: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "encoder_attention": attention_of(_layer_types(2)),
    "local_radius": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

FAMILY = Family(
    name="modernbert",
    architecture="ModernBertForMaskedLM",
    config_class=ModernBertConfig,
    module_class=ModernBert,
    presets={
        "base": ModernBertConfig(),
        "large": ModernBertConfig(**_LARGE),
        "small": ModernBertConfig(**_SMALL),
        "tiny": ModernBertConfig.of(**_TINY),
    },
    runtime_fields=RUNTIME_FIELDS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    is_encoder_decoder=False,
    attentions=("full", "local"),
    mixes_attentions=True,
)
