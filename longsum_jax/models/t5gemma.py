"""T5Gemma (Zhang et al. 2025): encoder-decoders made from Gemma 2 (Gemma Team 2024).

Reproduces transformers' outputs for the published checkpoints. Encoder and
decoder may have different sizes; layers with a window alternate with layers of
full attention in both.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer_groups import layer_attentions
from longsum_jax.layers.partitioning import logical, look_up
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.config import (
    EncoderDecoderConfig,
    check_attention,
    check_decoder_options,
    check_token_ids,
)
from longsum_jax.models.encoder_decoder import EncoderDecoder
from longsum_jax.models.family import Family
from longsum_jax.models.flat_config import check_entries, read_fields
from longsum_jax.models.heads import head_of
from longsum_jax.models.vocabulary import vocabulary_logits
from longsum_jax.models.weight_map import WeightMap, WeightRow, linear
from longsum_jax.ops.attention.dense import CappedScale, Scale
from longsum_jax.ops.positions import Rotary
from longsum_jax.schema import (
    Count,
    Layers,
    Length,
    Positive,
    PositiveFloat,
    Rate,
    Size,
    check_ranges,
    from_dict,
    shortened,
)
from longsum_jax.typing import AnyArray

# Config fields that select how to compute; checkpoints do not depend on them.
RUNTIME_FIELDS = ("dtype", "matmul_precision", "remat", "length_chunk")
# Kinds of layers in config.json to encoder attentions.
_ATTENTIONS = {"sliding_attention": "local", "full_attention": "full"}
_LAYER_TYPES = {attention: kind for kind, attention in _ATTENTIONS.items()}
_ACTIVATIONS = ("gelu_pytorch_tanh", "gelu_new", "relu", "silu")
_WINDOW = 4096  # of the published models


@dataclass(frozen=True, kw_only=True)
class GemmaStack:
    """The sizes of one stack; keys as in its section of config.json, defaults of Gemma 2 2B.

    Attributes:
        num_key_value_heads: number of heads of keys and values, each for a
            group of heads of the queries.
        rope_theta: base of the frequencies of rotary positions.
        rope_factor: divisor of rotary positions.
        query_pre_attn_scalar: number whose inverse root is the factor of
            query-key products.
        attn_logit_softcapping: soft cap of the scores of attention, None
            without.
    """

    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Layers = 26
    num_attention_heads: Size = 8
    num_key_value_heads: Size = 4
    head_dim: Size = 256
    hidden_activation: str = "gelu_pytorch_tanh"
    max_position_embeddings: Length = 8192
    rms_norm_eps: PositiveFloat = 1e-6
    rope_theta: PositiveFloat = 10000.0
    rope_factor: PositiveFloat = 1.0
    query_pre_attn_scalar: PositiveFloat = 256.0
    attn_logit_softcapping: PositiveFloat | None = 50.0
    attention_bias: bool = False

    def check(self, section: str) -> None:
        """Checks the sizes.

        Args:
            section: name of the section, for error messages.

        Raises:
            InputError: a number out of range, an unknown activation, or heads
                that form no groups.
        """
        check_ranges(self, section)
        if self.hidden_activation not in _ACTIVATIONS:
            suggestion = did_you_mean(self.hidden_activation, _ACTIVATIONS)
            raise InputError(
                f'{section}.hidden_activation "{self.hidden_activation}" is unknown; {suggestion}'
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                f"{section}.num_attention_heads {self.num_attention_heads} is not divisible by "
                f"num_key_value_heads {self.num_key_value_heads}; change either"
            )
        if self.head_dim % 2:
            raise InputError(
                f"{section}.head_dim is {self.head_dim}, but rotary positions turn pairs of "
                "features; give an even number"
            )

    @property
    def attention_scale(self) -> Scale:
        """Factor and soft cap of the scores."""
        factor = self.query_pre_attn_scalar**-0.5
        if self.attn_logit_softcapping is None:
            return factor
        return CappedScale(factor, self.attn_logit_softcapping)


@dataclass(frozen=True, kw_only=True)
class GemmaDecoderStack(GemmaStack):
    """The sizes of a decoder.

    Attributes:
        layer_types: "sliding_attention" or "full_attention" for each layer; ()
            for these two in turn.
        sliding_window: number of tokens that a token of a sliding layer sees,
            itself included.
        final_logit_softcapping: soft cap of the logits, None without.
    """

    layer_types: tuple[str, ...] = ()
    sliding_window: Positive = _WINDOW
    final_logit_softcapping: PositiveFloat | None = 30.0

    def __post_init__(self) -> None:
        if not self.layer_types:
            object.__setattr__(
                self, "layer_types", _alternating(self.num_hidden_layers)
            )

    def check(self, section: str) -> None:
        super().check(section)
        check_layer_types(self.layer_types, self.num_hidden_layers, section)

    @property
    def windows(self) -> tuple[int, ...]:
        """The window of each layer, 0 for full attention."""
        return tuple(
            self.sliding_window if kind == "sliding_attention" else 0
            for kind in self.layer_types
        )


def _alternating(num_layers: int) -> tuple[str, ...]:
    """Returns the kinds of layers that models have by default."""
    kinds = tuple(_ATTENTIONS)
    return tuple(kinds[i % 2] for i in range(num_layers))


def check_layer_types(
    kinds: Sequence[str], num_layers: int, section: str
) -> None:
    """Raises an InputError for an unknown kind of layer, or for too few or too many kinds."""
    for kind in kinds:
        if kind not in _ATTENTIONS:
            raise InputError(
                f'{section}.layer_types: "{kind}" is unknown; {did_you_mean(kind, _ATTENTIONS)}'
            )
    if kinds and len(kinds) != num_layers:
        raise InputError(
            f"{section}.layer_types names {len(kinds)} layers, num_hidden_layers is {num_layers}; "
            "they must agree"
        )


def attention_of(kinds: Sequence[str]) -> str:
    """Returns the encoder attention of layers of these kinds: "local,full", or "full" for all."""
    names = [_ATTENTIONS[kind] for kind in kinds]
    return names[0] if len(set(names)) == 1 else ",".join(names)


@dataclass(frozen=True, kw_only=True)
class T5GemmaConfig(EncoderDecoderConfig):
    """The config of T5Gemma; keys as in config.json, defaults of T5Gemma 2B-2B.

    The kinds of the encoder's layers are its ``encoder_attention``: "full",
    "local" with the window ``local_radius``, or a list of both. Any other
    attention may replace them.

    Attributes:
        encoder: sizes of the encoder.
        decoder: sizes of the decoder.
        dropout_rate: dropout rate of embeddings, sublayers and feed-forwards.
        attention_dropout: dropout rate of attention weights.
        initializer_range: standard deviation of the initial weights.
        tie_word_embeddings: True if the output weights are the decoder's
            embeddings. When a checkpoint is read, this is inferred from its
            tensors.
    """

    prefix = "model"
    option_defaults: ClassVar[Mapping[str, Any]] = {"local_radius": _WINDOW}
    published_options: ClassVar[tuple[str, ...]] = (
        "local_radius",
        "local_even",
    )

    encoder_attention: str = attention_of(_alternating(26))
    vocab_size: Positive = 256000
    encoder: GemmaStack = GemmaStack()
    decoder: GemmaDecoderStack = GemmaDecoderStack()
    dropout_rate: Rate = 0.0
    attention_dropout: Rate = 0.0
    initializer_range: PositiveFloat = 0.02
    tie_word_embeddings: bool = True
    decoder_start_token_id: Count = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_token_ids(self)
        self.encoder.check("encoder")
        self.decoder.check("decoder")
        check_attention(self)
        layer_attentions(self.encoder_attention, self.encoder.num_hidden_layers)
        check_decoder_options(
            self,
            self.decoder.num_attention_heads,
            self.encoder.num_hidden_layers,
            self.decoder.num_hidden_layers,
            self.encoder.max_position_embeddings,
        )

    @property
    def d_model(self) -> int:
        """Size of the encoder's states."""
        return self.encoder.hidden_size

    @property
    def scale_embedding(self) -> bool:
        return True

    @property
    def max_source_length(self) -> int | None:
        return (
            None
            if self.pages.page_length
            else self.encoder.max_position_embeddings
        )

    @property
    def max_target_length(self) -> int | None:
        return self.decoder.max_position_embeddings

    def with_max_source_length(self, length: int) -> "T5GemmaConfig":
        """Returns this config for inputs of ``length`` tokens, whose positions are computed."""
        encoder = dataclasses.replace(
            self.encoder, max_position_embeddings=length
        )
        return dataclasses.replace(self, encoder=encoder)

    def _stack(self, sizes: GemmaStack) -> StackConfig:
        return StackConfig(
            d_model=sizes.hidden_size,
            num_heads=sizes.num_attention_heads,
            num_kv_heads=sizes.num_key_value_heads,
            d_kv=sizes.head_dim,
            d_ff=sizes.intermediate_size,
            num_layers=sizes.num_hidden_layers,
            feed_forward=f"gated-{sizes.hidden_activation}",
            norm="gemma_rms",
            norm_epsilon=sizes.rms_norm_eps,
            pre_norm=True,
            sandwich_norm=True,
            final_norm=True,
            attention_bias=sizes.attention_bias,
            attention_scale=sizes.attention_scale,
            attention_init=self.initializer_range,
            rotary=(Rotary(sizes.rope_theta, sizes.rope_factor),),
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout,
            activation_dropout_rate=self.dropout_rate,
            output_dropout_rate=self.dropout_rate,
            **self.layer_options,
        )

    @property
    def encoder_stack(self) -> StackConfig:
        return dataclasses.replace(
            self._stack(self.encoder), length_chunk=self.length_chunk
        )

    @property
    def decoder_stack(self) -> StackConfig:
        return dataclasses.replace(
            self._stack(self.decoder),
            source_size=self.encoder.hidden_size,
            windows=self.decoder.windows,
            memory=self.decoder_memory,
        )


class T5Gemma(EncoderDecoder):
    """T5Gemma; see ``EncoderDecoder`` for the methods."""

    config: T5GemmaConfig

    def setup(self) -> None:
        c = self.config
        init = logical(normal(c.initializer_range), "vocab", "embed")
        source, target = (
            (c.vocab_size, c.encoder.hidden_size),
            (c.vocab_size, c.decoder.hidden_size),
        )
        self.shared = self.param("shared", init, source)
        self.target_embeddings = self.param("target_embeddings", init, target)
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()
        if not c.tie_word_embeddings:
            self.lm_head = self.param("lm_head", init, target)

    def embed_source(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the source."""
        return self._embed(self.shared, ids)

    def embed_target(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the target; only attention depends on positions."""
        return self._embed(self.target_embeddings, ids)

    def _embed(
        self, table: AnyArray, ids: Int[AnyArray, "batch length"]
    ) -> Float[Array, "batch length d_model"]:
        dtype = self.config.compute_dtype
        # The published code rounds the factor to the type of the states.
        factor = jnp.asarray(math.sqrt(table.shape[1]), dtype)
        return look_up(table, ids).astype(dtype) * factor

    def output_logits(
        self, x: Float[AnyArray, "*leading d_model"]
    ) -> Float[Array, "*leading vocab"]:
        """Returns float32 logits of decoder states."""
        logits = vocabulary_logits(x, self.logits_table())
        cap = self.config.decoder.final_logit_softcapping
        return logits if cap is None else cap * jnp.tanh(logits / cap)

    @property
    def logits_parameter(self) -> str:
        return (
            "target_embeddings"
            if self.config.tie_word_embeddings
            else "lm_head"
        )


# config.json


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``T5GemmaConfig`` in a config.json.

    Raises:
        InputError: another head, an unsupported kind of rotary positions, or
            stacks with different vocabularies.
    """
    head_of(
        raw,
        {"T5GemmaForConditionalGeneration": None, "T5GemmaModel": None},
        "T5GemmaModel",
    )
    values = read_fields(raw, T5GemmaConfig, RUNTIME_FIELDS)
    encoder, decoder = (
        read_section(raw, name) for name in ("encoder", "decoder")
    )
    sizes = {
        name: part.get("vocab_size", 256000)
        for name, part in (("encoder", encoder), ("decoder", decoder))
        if part
    }
    if len(set(sizes.values())) > 1:
        raise InputError(
            f"encoder.vocab_size is {sizes['encoder']}, decoder.vocab_size {sizes['decoder']}; "
            "only stacks with one vocabulary are supported"
        )
    values["vocab_size"] = next(
        iter(sizes.values()), values.get("vocab_size", 256000)
    )
    values |= read_token_ids(raw, decoder)
    values |= {
        "encoder": read_stack(encoder, GemmaStack, "encoder"),
        "decoder": read_stack(decoder, GemmaDecoderStack, "decoder"),
    }
    if "encoder_attention" not in raw:
        count = values["encoder"].num_hidden_layers
        kinds = encoder.get("layer_types") or _alternating(count)
        check_layer_types(kinds, count, "encoder")
        window = encoder.get("sliding_window") or _WINDOW
        values |= {
            "encoder_attention": attention_of(kinds),
            "local_radius": window,
        }
    return values


def read_section(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the section of a stack, empty if it is absent.

    Raises:
        InputError: the section is not a mapping, or has an entry of the wrong
            type.
    """
    section = raw.get(name) or {}
    if not isinstance(section, Mapping):
        raise InputError(
            f'"{name}" must be a mapping with the sizes of the {name}'
        )
    check_entries(section, name)
    return section


def read_token_ids(
    raw: Mapping[str, Any], decoder: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the ids of special tokens that a config.json has only in the section of its decoder.

    Args:
        raw: content of the config.json.
        decoder: section of the decoder.
    """
    starts = (raw.get("decoder_start_token_id"), decoder.get("bos_token_id"), 2)
    start = next(number for number in starts if number is not None)
    values = {"decoder_start_token_id": start}
    for name in ("pad_token_id", "eos_token_id"):
        ids = decoder.get(name)
        if raw.get(name) is None and ids is not None:
            values[name] = ids[0] if isinstance(ids, list) else ids
    return values


def read_stack(
    raw: Mapping[str, Any], config_class: type[GemmaStack], section: str
) -> GemmaStack:
    """Returns the sizes of a stack in its section of a config.json."""
    names = {field.name for field in dataclasses.fields(config_class)}
    values = {key: value for key, value in raw.items() if key in names}
    for key in ("layer_types", "sliding_window", "rope_theta"):
        if values.get(key, 0) is None:
            del values[key]  # null stands for the default
    return from_dict(config_class, values | read_rotary(raw, section), section)


def read_rotary(raw: Mapping[str, Any], section: str) -> dict[str, float]:
    """Returns ``rope_theta`` and ``rope_factor`` of a section of a config.json.

    Args:
        raw: section with ``rope_parameters`` (transformers 5), or
            ``rope_theta`` and ``rope_scaling``.
        section: name of the section, for error messages.

    Raises:
        InputError: a kind of scaling other than none and "linear", no factor of
            "linear", or entries that are not a mapping or differ by layer.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise InputError(
            f"{section}: rope_parameters are {shortened(rope)}; give a mapping with rope_type"
        )
    nested = [key for key, value in rope.items() if isinstance(value, Mapping)]
    if nested:
        raise InputError(
            f'{section}: rope_parameters have an entry "{nested[0]}" for some of the layers; '
            "only one kind of rotary positions for all of them is supported"
        )
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear"):
        raise InputError(
            f'{section}: rope_type "{kind}" is not supported; supported: default, linear; '
            "give a checkpoint with one of them"
        )
    values = {}
    base = rope.get("rope_theta", raw.get("rope_theta"))
    if base is not None:
        values["rope_theta"] = base
    if kind == "linear":
        if "factor" not in rope:
            raise InputError(
                f'{section}: rope_type "linear" has no factor; add "factor" to rope_parameters'
            )
        values["rope_factor"] = rope["factor"]
    return values


def check_rotary_kinds(
    parameters: Mapping[str, Any], kinds: Sequence[str], section: str
) -> None:
    """Checks that rotary positions are given by kinds of layers.

    Args:
        parameters: ``rope_parameters`` of a section of a config.json, with a
            mapping for each kind.
        kinds: supported kinds.
        section: name of the section, for error messages.

    Raises:
        InputError: an entry for anything else, which would have no effect.
    """
    for key in parameters:
        if key not in kinds:
            raise InputError(
                f'{section}: rope_parameters have an unknown entry "{key}"; give one mapping for '
                f"each of {', '.join(kinds)}"
            )


def write_config(config: T5GemmaConfig) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields, or that only transformers reads."""
    encoder = write_stack(config, config.encoder, "t5_gemma_module")
    decoder = write_stack(config, config.decoder, "t5_gemma_module")
    decoder |= {
        "layer_types": list(config.decoder.layer_types),
        "is_decoder": True,
        "cross_attention_hidden_size": config.encoder.hidden_size,
    }
    layers = write_encoder_layers(config, config.option("local_radius"))
    encoder |= layers
    return {
        "encoder": encoder,
        "decoder": decoder,
        "bos_token_id": config.decoder_start_token_id,
        **fields_of_encoder_layers(layers),
    }


def write_encoder_layers(config: T5GemmaConfig, window: int) -> dict[str, Any]:
    """Returns the entries of the encoder's section for the kinds of its layers.

    They are empty if transformers does not have these kinds.
    """
    kinds = layer_attentions(
        config.encoder_attention, config.encoder.num_hidden_layers
    )
    if not set(kinds) <= _LAYER_TYPES.keys():
        return {}
    return {
        "layer_types": [_LAYER_TYPES[kind] for kind in kinds],
        "sliding_window": window,
    }


def fields_of_encoder_layers(layers: Mapping[str, Any]) -> dict[str, None]:
    """Returns the fields that ``write_encoder_layers`` replaces, for removal from config.json."""
    names = ("encoder_attention", "local_radius", "local_even")
    return dict.fromkeys(names) if layers else {}


def write_rotary(rotary: Rotary) -> dict[str, Any]:
    """Returns ``rope_parameters`` of config.json."""
    rope = {"rope_type": "default", "rope_theta": rotary.base}
    if rotary.factor != 1:
        rope |= {"rope_type": "linear", "factor": rotary.factor}
    return rope


def write_stack(
    config: T5GemmaConfig, sizes: GemmaStack, model_type: str
) -> dict[str, Any]:
    """Returns a section of config.json."""
    values = dataclasses.asdict(sizes)
    del values["rope_factor"]
    scalar = sizes.query_pre_attn_scalar
    return values | {
        "model_type": model_type,
        "rope_parameters": write_rotary(
            Rotary(sizes.rope_theta, sizes.rope_factor)
        ),
        "query_pre_attn_scalar": int(scalar)
        if scalar == int(scalar)
        else scalar,
        "vocab_size": config.vocab_size,
        "pad_token_id": config.pad_token_id,
        "eos_token_id": config.eos_token_id,
        "bos_token_id": config.decoder_start_token_id,
        "dropout_rate": config.dropout_rate,
        "attention_dropout": config.attention_dropout,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": config.tie_word_embeddings,
    }


# State dicts

# Buffers that the class computes, and that some files contain.
BUFFERS = (r"\.rotary_emb\.\w*inv_freq$", r"\.embed_tokens\.embed_scale$")
_HEAD, _TARGET = "lm_head.out_proj.weight", "model.decoder.embed_tokens.weight"


def infer_from_weights(
    config: T5GemmaConfig, tensors: Mapping[str, Any]
) -> T5GemmaConfig:
    """Returns the config with tied output weights unless a state dict contains separate ones.

    The flag in config.json is ignored.
    """
    head, table = tensors.get(_HEAD), tensors.get(_TARGET)
    tied = (
        head is None
        or table is None
        or np.array_equal(np.asarray(head), np.asarray(table))
    )
    return dataclasses.replace(config, tie_word_embeddings=tied)


def _sublayer_norm(path: str, key: str, name: str) -> list[WeightRow]:
    """Returns the rows of the norms of the input and of the output of a sublayer."""
    return [
        WeightRow(f"{path}/before/scale", f"{key}.pre_{name}_layernorm.weight"),
        WeightRow(f"{path}/after/scale", f"{key}.post_{name}_layernorm.weight"),
    ]


def _attention_rows(path: str, key: str, bias: bool) -> list[WeightRow]:
    """Returns the rows of one attention's maps."""
    rows = linear(f"{path}/o", f"{key}.o_proj", inputs=2, bias=bias)
    for name in "qkv":
        rows += linear(f"{path}/{name}", f"{key}.{name}_proj", bias=bias)
    return rows


def stack_rows(stack: StackConfig, side: str) -> list[WeightRow]:
    """Returns the rows of the stack ``side``, "encoder" or "decoder"."""
    path, key, bias = (
        f"{side}/layers",
        f"model.{side}.layers.{{i}}",
        stack.attention_bias,
    )
    rows = [
        WeightRow(f"{side}/final_norm/scale", f"model.{side}.norm.weight"),
        *_sublayer_norm(f"{path}/self_norm", key, "self_attn"),
        *_attention_rows(f"{path}/self_attention", f"{key}.self_attn", bias),
        *_sublayer_norm(f"{path}/ff_norm", key, "feedforward"),
    ]
    for name, torch_name in (("wi_0", "gate"), ("wi_1", "up"), ("wo", "down")):
        rows += linear(
            f"{path}/feed_forward/{name}", f"{key}.mlp.{torch_name}_proj"
        )
    if stack.qk_norm:
        rows += [
            WeightRow(
                f"{path}/self_attention/{name}/norm/scale",
                f"{key}.self_attn.{name}_norm.weight",
            )
            for name in "qk"
        ]
    if side == "decoder" and not stack.merged_attention:
        rows += _sublayer_norm(f"{path}/cross_norm", key, "cross_attn")
        rows += _attention_rows(
            f"{path}/cross_attention", f"{key}.cross_attn", bias
        )
    return rows


def weight_map(config: T5GemmaConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    rows = [
        WeightRow("shared", "model.encoder.embed_tokens.weight"),
        WeightRow("target_embeddings", _TARGET),
        *stack_rows(config.encoder_stack, "encoder"),
        *stack_rows(config.decoder_stack, "decoder"),
    ]
    tied = {}
    if config.tie_word_embeddings:
        tied[_HEAD] = _TARGET
    else:
        rows.append(WeightRow("lm_head", _HEAD))
    return WeightMap(rows, tied, ignored=BUFFERS, prefix="model.")


_9B: dict[str, Any] = {
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 42,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
_TINY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 16.0,
    "max_position_embeddings": 1024,
}

PRESETS: dict[str, T5GemmaConfig] = {
    "2b": T5GemmaConfig(),
    "9b_2b": T5GemmaConfig(
        encoder=GemmaStack(**_9B),
        encoder_attention=attention_of(_alternating(42)),
    ),
    "tiny": T5GemmaConfig.of(
        vocab_size=512,
        encoder=GemmaStack(**_TINY),
        decoder=GemmaDecoderStack(**_TINY, sliding_window=32),
        encoder_attention=attention_of(_alternating(2)),
        local_radius=32,
    ),
}

FAMILY = Family(
    name="t5gemma",
    architecture="T5GemmaForConditionalGeneration",
    config_class=T5GemmaConfig,
    module_class=T5Gemma,
    presets=PRESETS,
    runtime_fields=RUNTIME_FIELDS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    infer_from_weights=infer_from_weights,
    attentions=("full", "local"),
    mixes_attentions=True,
)
