"""T5Gemma 2 (Zhang et al. 2025): encoder-decoders made from Gemma 3 (Gemma Team 2025), for text.

Reproduces transformers' outputs for the published checkpoints. Differences from
T5Gemma: the decoder reads source and target with one attention, queries and
keys are normalized, rotary positions of layers with a window have a different
base, and one table contains the embeddings of both stacks and the output
weights. The image parts of a checkpoint are not loaded.
"""

import dataclasses
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer_groups import layer_attentions
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.family import Family
from longsum_jax.models.flat_config import read_fields
from longsum_jax.models.heads import head_of
from longsum_jax.models.t5gemma import (
    BUFFERS,
    RUNTIME_FIELDS,
    GemmaDecoderStack,
    GemmaStack,
    T5Gemma,
    T5GemmaConfig,
    attention_of,
    check_layer_types,
    check_rotary_kinds,
    fields_of_encoder_layers,
    read_rotary,
    read_section,
    read_stack,
    read_token_ids,
    stack_rows,
    write_encoder_layers,
    write_rotary,
    write_stack,
)
from longsum_jax.models.weight_map import WeightMap, WeightRow
from longsum_jax.ops.positions import Rotary
from longsum_jax.schema import Count, Length, Positive, PositiveFloat
from longsum_jax.typing import AnyArray

_LOG = logging.getLogger(__name__)
_SLIDING, _FULL = "sliding_attention", "full_attention"
_EVERY = 6  # distance of layers with full attention in published models
_WINDOW = 4096  # default of the class in transformers
_VOCABULARY = 262208  # default of the class in transformers
_PUBLISHED_VOCABULARY = 262144
_END_OF_IMAGE = 256000
# The smallest vision tower that transformers accepts, in place of the one that
# is not loaded.
_VISION_CONFIG = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1,
    "intermediate_size": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 16,
    "patch_size": 1,
}


def _layer_types(num_layers: int, every: int = _EVERY) -> tuple[str, ...]:
    """Returns the kinds of layers of published models."""
    return tuple(
        _SLIDING if i % every else _FULL for i in range(1, num_layers + 1)
    )


@dataclass(frozen=True, kw_only=True)
class Gemma3Stack(GemmaStack):
    """The sizes of one stack; keys as in its section of config.json.

    Attributes:
        rope_theta, rope_factor: base and scaling factor of the rotary positions
            in layers with full attention.
        local_rope_theta, local_rope_factor: base and scaling factor in layers
            with a window.
    """

    max_position_embeddings: Length = 131072
    rope_theta: PositiveFloat = 1e6
    local_rope_theta: PositiveFloat = 1e4
    local_rope_factor: PositiveFloat = 1.0
    attn_logit_softcapping: PositiveFloat | None = None

    def check(self, section: str) -> None:
        super().check(section)
        if self.attn_logit_softcapping is not None:
            raise InputError(
                f"{section}.attn_logit_softcapping is {self.attn_logit_softcapping}, but T5Gemma 2 "
                "has no soft cap of scores; leave it out"
            )

    def rotary(self, has_window: bool) -> Rotary:
        """Returns the rotary positions of a layer."""
        if has_window:
            return Rotary(self.local_rope_theta, self.local_rope_factor)
        return Rotary(self.rope_theta, self.rope_factor)


@dataclass(frozen=True, kw_only=True)
class Gemma3DecoderStack(Gemma3Stack, GemmaDecoderStack):
    """The sizes of a decoder; see ``GemmaDecoderStack``."""

    final_logit_softcapping: PositiveFloat | None = None

    def __post_init__(self) -> None:
        if not self.layer_types:
            kinds = _layer_types(self.num_hidden_layers)
            object.__setattr__(self, "layer_types", kinds)


@dataclass(frozen=True, kw_only=True)
class T5Gemma2Config(T5GemmaConfig):
    """The config of T5Gemma 2; keys as in config.json, defaults as in transformers.

    If the size of the encoder's windows is even, they contain one more token on
    the right than on the left (``local_even``).

    Attributes:
        encoder: sizes of the encoder.
        decoder: sizes of the decoder, whose states are as large as the
            encoder's.
        tie_word_embeddings: True if the output weights are the encoder's
            embeddings; inferred from the tensors when a checkpoint is read.
        shared_embeddings: True if encoder and decoder have the same embeddings;
            also inferred.
        eoi_token_index: id of the end-of-image token, whose embedding is a
            separate parameter.
    """

    option_defaults: ClassVar[Mapping[str, Any]] = {
        "local_radius": _WINDOW // 2,
        "local_even": True,
    }

    encoder_attention: str = attention_of(_layer_types(26))
    vocab_size: Positive = _VOCABULARY
    encoder: Gemma3Stack = Gemma3Stack()
    decoder: Gemma3DecoderStack = Gemma3DecoderStack()
    shared_embeddings: bool = True
    eoi_token_index: Count = _END_OF_IMAGE

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.encoder.hidden_size, self.decoder.hidden_size
        if sizes[0] != sizes[1]:
            raise InputError(
                f"encoder.hidden_size is {sizes[0]}, decoder.hidden_size {sizes[1]}; T5Gemma 2 has "
                "states of one size"
            )

    @property
    def encoder_stack(self) -> StackConfig:
        names = layer_attentions(
            self.encoder_attention, self.encoder.num_hidden_layers
        )
        rotary = tuple(self.encoder.rotary(name == "local") for name in names)
        return dataclasses.replace(
            super().encoder_stack, qk_norm=True, rotary=rotary
        )

    @property
    def decoder_stack(self) -> StackConfig:
        windows = self.decoder.windows
        rotary = tuple(self.decoder.rotary(window > 0) for window in windows)
        return dataclasses.replace(
            super().decoder_stack,
            qk_norm=True,
            rotary=rotary,
            merged_attention=True,
        )


class T5Gemma2(T5Gemma):
    """T5Gemma 2; see ``EncoderDecoder`` for the methods."""

    config: T5Gemma2Config

    def setup(self) -> None:
        c = self.config
        shape = (c.vocab_size, c.d_model)
        init = logical(normal(c.initializer_range), "vocab", "embed")
        # Initialized with zeros, as in transformers.
        end_init = logical(nn.initializers.zeros, "embed")
        self.shared = self.param("shared", init, shape)
        self.image_end = self.param("image_end", end_init, (c.d_model,))
        if not c.shared_embeddings:
            self.target_embeddings = self.param(
                "target_embeddings", init, shape
            )
            self.target_image_end = self.param(
                "target_image_end", end_init, (c.d_model,)
            )
        if not c.tie_word_embeddings:
            self.lm_head = self.param("lm_head", init, shape)
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()

    def embed_source(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length d_model"]:
        return self._embed_text(self.shared, self.image_end, ids)

    def embed_target(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
    ) -> Float[Array, "batch length d_model"]:
        if self.config.shared_embeddings:
            return self.embed_source(ids)
        return self._embed_text(
            self.target_embeddings, self.target_image_end, ids
        )

    def _embed_text(
        self,
        table: AnyArray,
        image_end: AnyArray,
        ids: Int[AnyArray, "batch length"],
    ) -> Float[Array, "batch length d_model"]:
        x = self._embed(table, ids)
        is_end = ids == self.config.eoi_token_index
        return jnp.where(is_end[..., None], image_end.astype(x.dtype), x)

    @property
    def logits_parameter(self) -> str:
        return "shared" if self.config.tie_word_embeddings else "lm_head"


# config.json


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``T5Gemma2Config`` in a config.json.

    Raises:
        InputError: another head, an unsupported kind of rotary positions, or
            stacks with different vocabularies.
    """
    head_of(
        raw,
        {"T5Gemma2ForConditionalGeneration": None, "T5Gemma2Model": None},
        "T5Gemma2Model",
    )
    values = read_fields(raw, T5Gemma2Config, RUNTIME_FIELDS)
    outer, decoder = (
        read_section(raw, name) for name in ("encoder", "decoder")
    )
    encoder = read_section(outer, "text_config")
    sizes = [part.get("vocab_size", _VOCABULARY) for part in (encoder, decoder)]
    if sizes[0] != sizes[1]:
        raise InputError(
            f"encoder.text_config.vocab_size is {sizes[0]}, decoder.vocab_size {sizes[1]}; only "
            "stacks with one vocabulary are supported"
        )
    values |= read_token_ids(raw, decoder)
    end_of_image = outer.get("eoi_token_index")
    values |= {
        "vocab_size": sizes[0],
        "encoder": _read_stack(encoder, Gemma3Stack, "encoder.text_config"),
        "decoder": _read_stack(decoder, Gemma3DecoderStack, "decoder"),
        "eoi_token_index": (
            _END_OF_IMAGE if end_of_image is None else end_of_image
        ),
    }
    if "encoder_attention" not in raw:
        count = values["encoder"].num_hidden_layers
        kinds = encoder.get("layer_types") or _kinds_of(encoder, count)
        check_layer_types(kinds, count, "encoder.text_config")
        window = encoder.get("sliding_window") or _WINDOW
        values |= {
            "encoder_attention": attention_of(kinds),
            "local_radius": window // 2,
            "local_even": window % 2 == 0,
        }
    return values


def _kinds_of(section: Mapping[str, Any], num_layers: int) -> tuple[str, ...]:
    """Returns the kinds of layers of a section that does not list them."""
    return _layer_types(
        num_layers, section.get("sliding_window_pattern") or _EVERY
    )


def _read_stack(
    raw: Mapping[str, Any], config_class: type[GemmaStack], section: str
) -> GemmaStack:
    """Returns the sizes of a stack in its section of a config.json."""
    kinds = raw.get("rope_parameters") or {}
    check_rotary_kinds(kinds, (_FULL, _SLIDING), section)
    full = {
        "rope_scaling": kinds.get(_FULL) or raw.get("rope_scaling"),
        "rope_theta": raw.get("rope_theta"),
    }
    local = {
        "rope_scaling": kinds.get(_SLIDING),
        "rope_theta": raw.get("rope_local_base_freq"),
    }
    values = {**raw, "rope_parameters": None, **full}
    local_rotary = read_rotary(local, section)
    values |= {f"local_{key}": value for key, value in local_rotary.items()}
    if config_class is Gemma3DecoderStack and not raw.get("layer_types"):
        count = raw.get("num_hidden_layers", 26)
        values["layer_types"] = list(_kinds_of(raw, count))
    return read_stack(values, config_class, section)


def write_config(config: T5Gemma2Config) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields, or that only transformers reads."""
    is_odd = not config.option("local_even")
    window = 2 * config.option("local_radius") + is_odd
    layers = write_encoder_layers(config, window)
    encoder = {
        "model_type": "t5gemma2_encoder",
        "text_config": _write_stack(config, config.encoder, "text") | layers,
        "vision_config": _VISION_CONFIG,
        "eoi_token_index": config.eoi_token_index,
    }
    decoder = _write_stack(config, config.decoder, "decoder")
    decoder["layer_types"] = list(config.decoder.layer_types)
    return {
        **fields_of_encoder_layers(layers),
        "encoder": encoder,
        "decoder": decoder,
        "bos_token_id": config.decoder_start_token_id,
        "shared_embeddings": None,
        "tie_word_embeddings": _is_tied(config),
    }


def _write_stack(
    config: T5Gemma2Config, sizes: Gemma3Stack, kind: str
) -> dict[str, Any]:
    """Returns a section of config.json."""
    values = write_stack(config, sizes, f"t5gemma2_{kind}")
    for name in ("rope_theta", "local_rope_theta", "local_rope_factor"):
        del values[name]
    return values | {
        "rope_parameters": {
            _FULL: write_rotary(sizes.rotary(has_window=False)),
            _SLIDING: write_rotary(sizes.rotary(has_window=True)),
        },
        "tie_word_embeddings": _is_tied(config),
    }


def _is_tied(config: T5Gemma2Config) -> bool:
    """Returns True if one table contains all embeddings and the output weights."""
    return config.tie_word_embeddings and config.shared_embeddings


# State dicts

_HEAD = "lm_head.out_proj.weight"
_SOURCE, _TARGET = "model.encoder.embed_tokens", "model.decoder.embed_tokens"
_TABLE, _IMAGE_END = "weight", "eoi_embedding"
# Keys of the class in transformers, which differ from its files.
_ALIASES = ((r"^((?:model\.)?encoder\.)text_model\.", r"\1"),)
_MODULES = ((r"^model\.encoder\.", r"model.encoder.text_model."),)
_IMAGE_PARTS = re.compile(
    r"^(?:model\.)?encoder\.(vision_tower|multi_modal_projector)\."
)


def infer_from_weights(
    config: T5Gemma2Config, tensors: Mapping[str, Any]
) -> T5Gemma2Config:
    """Returns the config with tied embeddings unless a state dict contains separate ones.

    The flag in config.json is ignored. Image parts are named in the log.
    """
    _report_image_parts(tensors)
    source, target, head = (
        _tensor(tensors, key)
        for key in (f"{_SOURCE}.{_TABLE}", f"{_TARGET}.{_TABLE}", _HEAD)
    )
    ends = [
        _tensor(tensors, f"{key}.{_IMAGE_END}") for key in (_SOURCE, _TARGET)
    ]
    return dataclasses.replace(
        config,
        shared_embeddings=_is_equal(source, target) and _is_equal(*ends),
        tie_word_embeddings=_is_equal(source, head),
    )


def _report_image_parts(tensors: Mapping[str, Any]) -> None:
    """Logs the image parts of a state dict, which are left out."""
    parts = [match[1] for match in map(_IMAGE_PARTS.match, tensors) if match]
    if parts:
        _LOG.warning(
            "the checkpoint has image parts (%s, %d arrays), which are left out: this library "
            "reads text",
            ", ".join(sorted(set(parts))),
            len(parts),
        )


def _tensor(tensors: Mapping[str, Any], key: str) -> Any | None:
    """Returns a tensor under any of its names, None if it is absent."""
    in_class = key.replace("encoder.", "encoder.text_model.")
    names = [
        name.removeprefix(prefix)
        for name in (key, in_class)
        for prefix in ("", "model.")
    ]
    return next((tensors[name] for name in names if name in tensors), None)


def _is_equal(table: Any | None, other: Any | None) -> bool:
    """Returns True if two tables are equal, or one of them is absent."""
    if table is None or other is None:
        return True
    return np.array_equal(np.asarray(table), np.asarray(other))


def weight_map(config: T5Gemma2Config) -> WeightMap:
    """Returns the key of every parameter in files of transformers."""
    table, target_table = f"{_SOURCE}.{_TABLE}", f"{_TARGET}.{_TABLE}"
    end, target_end = f"{_SOURCE}.{_IMAGE_END}", f"{_TARGET}.{_IMAGE_END}"
    rows = [
        WeightRow("shared", table),
        WeightRow("image_end", end, optional=True),
        *stack_rows(config.encoder_stack, "encoder"),
        *stack_rows(config.decoder_stack, "decoder"),
    ]
    copies = {target_table: table, target_end: end, _HEAD: table}
    if not config.shared_embeddings:
        rows += [
            WeightRow("target_embeddings", target_table),
            WeightRow("target_image_end", target_end, optional=True),
        ]
        del copies[target_table], copies[target_end]
    if not config.tie_word_embeddings:
        rows.append(WeightRow("lm_head", _HEAD))
        del copies[_HEAD]
    # With the flag of tied weights transformers makes the copies.
    tied = copies if _is_tied(config) else {}
    return WeightMap(
        rows,
        tied,
        ignored=(_IMAGE_PARTS.pattern, *BUFFERS),
        prefix="model.",
        aliases=_ALIASES,
        copies={} if tied else copies,
        modules=_MODULES,
    )


def _stacks(
    window: int, layer_types: tuple[str, ...] = (), **sizes: Any
) -> dict[str, Any]:
    """Returns the fields of a config whose two stacks have the same sizes."""
    decoder = Gemma3DecoderStack(
        **sizes, sliding_window=window, layer_types=layer_types
    )
    return {
        "encoder": Gemma3Stack(**sizes),
        "decoder": decoder,
        "encoder_attention": attention_of(decoder.layer_types),
        "local_radius": window // 2,
    }


def _published(window: int, **sizes: Any) -> T5Gemma2Config:
    """Returns the config of a published model, whose full attention interpolates positions."""
    return T5Gemma2Config.of(
        vocab_size=_PUBLISHED_VOCABULARY,
        **_stacks(window=window, rope_factor=8.0, **sizes),
    )


# 270m is as in the published config.json. The sizes, windows, vocabulary and
# frequencies of 1b and 4b are as in the T5Gemma 2 of jax-ml/bonsai, which reads the
# published weights; 4b also agrees with the text encoder of Motif-Video 2B. Their
# number of positions is the default of transformers, which has not been verified;
# the card of 4b states a window of 128K tokens.
PRESETS: dict[str, T5Gemma2Config] = {
    "270m": _published(
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=32768,
        window=512,
    ),
    "1b": _published(
        hidden_size=1152,
        intermediate_size=6912,
        num_hidden_layers=26,
        num_attention_heads=4,
        num_key_value_heads=1,
        window=512,
    ),
    "4b": _published(
        hidden_size=2560,
        intermediate_size=10240,
        num_hidden_layers=34,
        num_attention_heads=8,
        num_key_value_heads=4,
        window=1024,
    ),
    "tiny": T5Gemma2Config.of(
        vocab_size=512,
        **_stacks(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16.0,
            max_position_embeddings=1024,
            window=32,
            layer_types=(_SLIDING, _FULL),
        ),
    ),
}

FAMILY = Family(
    name="t5gemma2",
    architecture="T5Gemma2ForConditionalGeneration",
    config_class=T5Gemma2Config,
    module_class=T5Gemma2,
    presets=PRESETS,
    runtime_fields=RUNTIME_FIELDS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    infer_from_weights=infer_from_weights,
    attentions=("full", "local"),
    mixes_attentions=True,
)
