"""BART and related models: mBART, BARThez, PEGASUS, PEGASUS-X, LED and BigBird-PEGASUS.

All are one model, which reproduces transformers' outputs for the published
checkpoints; its configs are in ``models.bart_config``. Papers: BART (Lewis et
al. 2020), mBART (Liu et al. 2020), mBART-50 (Tang et al. 2020), BARThez (Kamal
Eddine et al. 2021), PEGASUS (Zhang et al. 2020), PEGASUS-X (Phang et al. 2022),
LED (Beltagy et al. 2020), BigBird (Zaheer et al. 2020).
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.global_tokens import NO_TOKEN
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import LayerNorm, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.partitioning import logical, look_up
from longsum_jax.models.bart_config import (
    RUNTIME_FIELDS,
    SIDES,
    BartConfig,
    BigBirdPegasusConfig,
    LedConfig,
    MbartConfig,
    PegasusConfig,
    PegasusXConfig,
    Side,
    presets,
    read_config,
    sinusoids,
    write_config,
)
from longsum_jax.models.embedding_tables import (
    EmbeddingKeys,
    embedding_rows,
    infer_embeddings,
)
from longsum_jax.models.encoder_decoder import EncoderDecoder
from longsum_jax.models.family import Family
from longsum_jax.models.heads import SPAN_OUTPUTS, TextHead, TokenHead
from longsum_jax.models.lsg_layout import GLOBALS
from longsum_jax.models.vocabulary import vocabulary_logits
from longsum_jax.models.weight_map import (
    WeightMap,
    WeightRow,
    is_close_to_constant,
    layer_norm,
    linear,
)
from longsum_jax.ops.losses import shift_right
from longsum_jax.ops.positions import (
    pegasus_frequencies,
    pegasus_x_frequencies,
    sinusoidal_positions,
)
from longsum_jax.typing import AnyArray

# parameter names
_TABLES = {"encoder": "source_positions", "decoder": "target_positions"}


def _init_sinusoids(
    config: BartConfig,
    rng: Array,
    shape: tuple[int, ...],
    dtype: Any = jnp.float32,
) -> Array:
    """Returns the computed position table, as an initializer of stored ones."""
    return jnp.asarray(sinusoids(config), dtype)


class Bart(EncoderDecoder):
    """BART and related models; see ``EncoderDecoder`` for the methods."""

    config: BartConfig

    def setup(self) -> None:
        c = self.config
        init = logical(normal(c.init_std), "vocab", "embed")
        shape = (c.vocab_size, c.d_model)
        self.shared = self.param("shared", init, shape)
        if not c.shared_embeddings:
            self.target_embedding = self.param("target_embedding", init, shape)
        if not c.tie_word_embeddings:
            self.lm_head = self.param("lm_head", init, shape)
        if c.has_position_parameters("encoder"):
            self.source_positions = self._position_table(
                "source_positions", c.source_rows
            )
        if c.has_position_parameters("decoder"):
            self.target_positions = self._position_table(
                "target_positions", c.target_rows
            )
        if c.normalize_embedding:
            self.source_norm = LayerNorm(1e-5, c.compute_dtype)
            self.target_norm = LayerNorm(1e-5, c.compute_dtype)
        if c.head == "classification":
            self.head: nn.Module = TextHead(
                c.d_model,
                c.num_labels,
                c.init_std,
                input_dropout=c.classifier_dropout,
                dropout=c.classifier_dropout,
                dtype=c.compute_dtype,
            )
        elif c.head == "question_answering":
            self.head = TokenHead(
                c.d_model, SPAN_OUTPUTS, c.init_std, dtype=c.compute_dtype
            )
        elif c.has_logits_bias:
            zeros = logical(jax.nn.initializers.zeros, "vocab")
            self.final_logits_bias = self.param(
                "final_logits_bias", zeros, (c.vocab_size,)
            )
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()

    def __call__(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        decoder_input_ids: Int[AnyArray, "batch target_length"] | None = None,
        deterministic: bool = True,
        **inputs: Any,
    ) -> Float[Array, "..."]:
        """Returns the output selected by ``head``, in float32.

        Teacher-forced logits [batch, target_length, vocab]; or logits of the
        labels of a text [batch, num_labels]; or logits of the start and the end
        of an answer at every token [batch, length, 2]. For the last two the
        decoder reads the source, shifted by one token, unless
        ``decoder_input_ids`` is given; the state at the last end-of-sequence
        token represents the text.
        """
        if self.config.head == "language_model":
            if decoder_input_ids is None:
                raise InputError(
                    "decoder_input_ids are missing; give the tokens before each logit"
                )
            return super().__call__(
                input_ids,
                attention_mask,
                decoder_input_ids,
                deterministic,
                **inputs,
            )
        if decoder_input_ids is None:
            decoder_input_ids = self.shifted_source(input_ids)
        states = self.encode(input_ids, attention_mask, deterministic, **inputs)
        x = self.decoder_states(
            decoder_input_ids, states, attention_mask, deterministic
        )
        if self.config.head == "classification":
            x = last_state(x, input_ids == self.config.eos_token_id)
        return self.head(x, deterministic)

    def shifted_source(
        self, ids: Int[AnyArray, "batch length"]
    ) -> Int[Array, "batch length"]:
        """Returns the decoder input of models whose decoder reads the source."""
        c = self.config
        shifted = shift_right(
            ids, start_id=c.decoder_start_token_id, pad_id=c.pad_token_id
        )
        if not c.wraps_source:
            # Begin with the last real token of each row.
            return shifted
        last = jnp.maximum((ids != c.pad_token_id).sum(1, keepdims=True) - 1, 0)
        return shifted.at[:, :1].set(jnp.take_along_axis(ids, last, axis=1))

    def _position_table(
        self, name: str, rows: int
    ) -> Float[Array, "rows d_model"]:
        """Makes the position table of one stack; call it in ``setup``."""
        c = self.config
        if c.positions == "learned":
            init = normal(c.init_std)
        else:
            init = partial(_init_sinusoids, c)
        shape = (rows + c.position_offset, c.d_model)
        return self.param(name, logical(init, "positions", "embed"), shape)

    def embed_source(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the source; positions are 0, 1, ... by default."""
        if positions is None:
            positions = jnp.arange(ids.shape[1])
        x = self._embed(ids, positions, "encoder")
        if self.config.normalize_embedding:
            return self.source_norm(x)
        return x

    def default_inputs(
        self, ids: Int[AnyArray, "batch length"]
    ) -> dict[str, Any]:
        """Returns the positions of LED's global tokens, unless only the first is global."""
        c = self.config
        if not c.has_more_globals:
            return {}
        assert isinstance(c, LedConfig)
        length = ids.shape[1]
        if c.global_every:
            every = -(-length // c.global_every)
        else:
            every = 0
        if c.global_tokens or c.query_end_token_id is not None:
            by_id = c.max_global_tokens
        else:
            by_id = 0
        is_global = c.is_global_token(ids, jnp)
        positions = jnp.where(is_global, jnp.arange(length), length)
        positions = jnp.sort(positions, axis=1)[:, : 1 + every + by_id]
        return {
            "global_indices": jnp.where(positions < length, positions, NO_TOKEN)
        }

    def source_embedding_norm(self) -> nn.Module | None:
        """Returns the final norm of ``embed_source``, None without one."""
        if self.config.normalize_embedding:
            return self.source_norm
        return None

    def embed_target(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the target at ``positions``, one per column or per row."""
        x = self._embed(ids, positions, "decoder")
        if self.config.normalize_embedding:
            return self.target_norm(x)
        return x

    def _embed(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
        side: Side,
    ) -> Float[Array, "batch length d_model"]:
        c = self.config
        if c.scale_embedding:
            scale = math.sqrt(c.d_model)
        else:
            scale = 1.0
        is_shared = c.shared_embeddings or side == "encoder"
        if is_shared:
            table = self.shared
        else:
            table = self.target_embedding
        x = look_up(table, ids) * scale
        return (x + self._positions(positions, side)).astype(c.compute_dtype)

    def _positions(
        self, positions: Int[AnyArray, "*length"], side: Side
    ) -> Float[Array, "*length d_model"]:
        """Returns the embeddings of positions: rows of a table, or sinusoids."""
        c = self.config
        if c.has_position_parameters(side):
            table = getattr(self, _TABLES[side])
            if c.positions != "learned":
                # The published code never trains a table of sinusoids.
                table = jax.lax.stop_gradient(table)
            # Padding may be beyond the table, and is masked: any row will do.
            return jnp.take(
                table, positions + c.position_offset, axis=0, mode="clip"
            )
        if c.positions == "pegasus":
            return sinusoidal_positions(
                positions, pegasus_frequencies(c.d_model)
            )
        return sinusoidal_positions(positions, pegasus_x_frequencies(c.d_model))

    def output_logits(
        self, x: Float[AnyArray, "*leading d_model"]
    ) -> Float[Array, "*leading vocab"]:
        """Returns float32 logits of decoder states."""
        logits = vocabulary_logits(x, self.logits_table())
        if not self.config.has_logits_bias:
            return logits
        # A buffer in the published code: stored, but never trained.
        return logits + jax.lax.stop_gradient(self.final_logits_bias)

    @property
    def logits_parameter(self) -> str:
        if self.config.tie_word_embeddings:
            return "shared"
        return "lm_head"


def last_state(
    states: Float[AnyArray, "batch length d_model"],
    selected: Bool[AnyArray, "batch length"],
) -> Float[Array, "batch d_model"]:
    """Returns the state at the last True position of ``selected``, else at the last position."""
    last = states.shape[1] - 1 - jnp.argmax(selected[:, ::-1], axis=1)
    return jnp.take_along_axis(states, last[:, None, None], axis=1)[:, 0]


def infer_from_weights(
    config: BartConfig, tensors: Mapping[str, Any]
) -> BartConfig:
    """Returns the config with the embedding and position tables that a state dict contains.

    A stored position table of PEGASUS that equals the sinusoids, up to rounding
    to half precision, is computed instead.
    """
    config = infer_embeddings(config, tensors, _embedding_keys(config))
    if not isinstance(config, PegasusConfig) or config.positions != "pegasus":
        return config
    stored = tuple(
        side
        for side in SIDES
        if _differs(_stored_table(config, tensors, side), config)
    )
    return dataclasses.replace(config, stored_positions=stored)


def _stored_table(
    config: BartConfig, tensors: Mapping[str, Any], side: Side
) -> Any | None:
    """Returns the position table of a state dict, with or without the prefix of the bare model."""
    key = _table_key(config, side)
    return tensors.get(key, tensors.get(key.removeprefix(f"{config.prefix}.")))


def _differs(table: Any | None, config: BartConfig) -> bool:
    """Returns True if a stored table differs from the computed one."""
    return table is not None and not is_close_to_constant(
        table, sinusoids(config)
    )


def _embedding_keys(config: BartConfig) -> EmbeddingKeys:
    return EmbeddingKeys.with_prefix(f"{config.prefix}.")


def _table_key(config: BartConfig, side: Side) -> str:
    return f"{config.prefix}.{side}.embed_positions.weight"


# Encoder attention to the names of its maps in state dicts: (prefix, q, k, v,
# output).
_PLAIN = ("", "q_proj", "k_proj", "v_proj", "out_proj")
_LONGFORMER = ("longformer_self_attn.", "query", "key", "value", "output")
_BIGBIRD = ("self.", "query", "key", "value", "output")


def _attention_rows(
    path: str, key: str, bias: bool, names: tuple[str, ...] = _PLAIN
) -> list[WeightRow]:
    """Returns the rows of one attention's kernels and biases."""
    inner, *maps, output = names
    rows = linear(f"{path}/o", f"{key}.{output}", inputs=2, bias=bias)
    for name, torch_name in zip("qkv", maps, strict=True):
        rows += linear(
            f"{path}/{name}", f"{key}.{inner}{torch_name}", bias=bias
        )
    return rows


def _self_attention_rows(
    config: BartConfig, path: str, key: str
) -> list[WeightRow]:
    """Returns the rows of the encoder's self-attention, whose names differ by family."""
    names = {LedConfig: _LONGFORMER, BigBirdPegasusConfig: _BIGBIRD}.get(
        type(config), _PLAIN
    )
    rows = _attention_rows(path, key, config.attention_bias, names)
    if config.encoder_attention == "longformer":
        inner, *maps, _ = _LONGFORMER
        for name, torch_name in zip("qkv", maps, strict=True):
            torch_key = f"{key}.{inner}{torch_name}_global"
            rows += linear(
                f"{path}/{name}_global", torch_key, bias=config.attention_bias
            )
    return rows


def _stack_rows(config: BartConfig, side: Side) -> list[WeightRow]:
    """Returns the rows of a stack's norms, feed-forwards and positions."""
    path, key = f"{side}/layers", f"{config.prefix}.{side}.layers.{{i}}"
    rows = [
        *layer_norm(f"{path}/ff_norm", f"{key}.final_layer_norm"),
        *linear(f"{path}/feed_forward/wi", f"{key}.fc1", bias=True),
        *linear(f"{path}/feed_forward/wo", f"{key}.fc2", bias=True),
    ]
    if config.normalize_before:
        rows += layer_norm(
            f"{side}/final_norm",
            f"{config.prefix}.{side}.{config.final_norm_name}",
        )
    if config.normalize_embedding:
        norm = {"encoder": "source_norm", "decoder": "target_norm"}[side]
        rows += layer_norm(norm, f"{config.prefix}.{side}.layernorm_embedding")
    if config.has_position_parameters(side):
        rows.append(WeightRow(_TABLES[side], _table_key(config, side)))
    return rows


def _encoder_rows(config: BartConfig) -> list[WeightRow]:
    """Returns the rows of the encoder's attention and its norms."""
    path, key = "encoder/layers", f"{config.prefix}.encoder.layers.{{i}}"
    rows = _self_attention_rows(
        config, f"{path}/self_attention", f"{key}.self_attn"
    )
    if config.encoder_attention == "lsg":
        rows.append(
            WeightRow(
                GLOBALS, f"{config.prefix}.encoder.global_embeddings.weight"
            )
        )
    if config.encoder_attention != "block_staggered":
        return [
            *rows,
            *layer_norm(f"{path}/self_norm", f"{key}.self_attn_layer_norm"),
        ]
    return [
        *rows,
        *layer_norm(f"{path}/self_norm/text", f"{key}.self_attn_layer_norm"),
        *layer_norm(
            f"{path}/self_norm/globals", f"{key}.global_self_attn_layer_norm"
        ),
        WeightRow(
            "encoder/attention/embed_global",
            f"{config.prefix}.encoder.embed_global.weight",
        ),
    ]


def _decoder_rows(config: BartConfig) -> list[WeightRow]:
    """Returns the rows of the decoder's attentions and their norms."""
    path, key = "decoder/layers", f"{config.prefix}.decoder.layers.{{i}}"
    return [
        *_attention_rows(
            f"{path}/self_attention", f"{key}.self_attn", config.attention_bias
        ),
        *layer_norm(f"{path}/self_norm", f"{key}.self_attn_layer_norm"),
        *_attention_rows(
            f"{path}/cross_attention",
            f"{key}.encoder_attn",
            config.attention_bias,
        ),
        *layer_norm(f"{path}/cross_norm", f"{key}.encoder_attn_layer_norm"),
    ]


def weight_map(config: BartConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    prefix = config.prefix
    # transformers 5 reads a table for each stack unless the output weights are
    # tied.
    rows, tied, copies = embedding_rows(
        config, _embedding_keys(config), stores_shared=False
    )
    rows = [*rows, *_encoder_rows(config), *_decoder_rows(config)]
    for side in SIDES:
        rows += _stack_rows(config, side)
    if config.head == "classification":
        rows += linear("head/dense", "classification_head.dense", bias=True)
        rows += linear("head/out", "classification_head.out_proj", bias=True)
    elif config.head == "question_answering":
        rows += linear("head/out", "qa_outputs", bias=True)
    elif config.has_logits_bias:
        rows.append(
            WeightRow(
                "final_logits_bias", "final_logits_bias", "row", optional=True
            )
        )
    constants = {}
    if config.positions == "pegasus":
        computed = [
            side for side in SIDES if not config.has_position_parameters(side)
        ]
        constants = {
            _table_key(config, side): partial(sinusoids, config)
            for side in computed
        }
    return WeightMap(
        rows,
        tied,
        # in files of the first releases
        ignored=(r"(^|\.)(encoder|decoder)\.version$",),
        constants=constants,
        prefix=f"{prefix}.",
        copies=copies,
    )


def _family(
    name: str,
    architecture: str,
    config_class: type[BartConfig],
    attentions: tuple[str, ...],
    **tiny: Any,
) -> Family:
    """Returns a family of this architecture; for ``tiny`` see ``presets``."""
    return Family(
        name=name,
        architecture=f"{architecture}ForConditionalGeneration",
        config_class=config_class,
        module_class=Bart,
        presets=presets(config_class, **tiny),
        runtime_fields=RUNTIME_FIELDS,
        read_config=partial(read_config, config_class=config_class),
        write_config=partial(write_config, name=architecture),
        published_weight_map=weight_map,
        infer_from_weights=infer_from_weights,
        attentions=attentions,
    )


BART = _family(
    "bart", "Bart", BartConfig, ("full", "lsg"), max_position_embeddings=512
)
MBART = _family(
    "mbart",
    "MBart",
    MbartConfig,
    ("full", "lsg"),
    max_position_embeddings=512,
)
PEGASUS = _family(
    "pegasus",
    "Pegasus",
    PegasusConfig,
    ("full", "lsg"),
    max_position_embeddings=512,
)
PEGASUS_X = _family(
    "pegasus_x",
    "PegasusX",
    PegasusXConfig,
    ("block_staggered",),
    block_size=32,
    num_global_tokens=8,
)
LED = _family(
    "led",
    "LED",
    LedConfig,
    ("longformer",),
    attention_window=(32,),
    max_encoder_position_embeddings=1024,
    max_decoder_position_embeddings=512,
)
BIGBIRD_PEGASUS = _family(
    "bigbird_pegasus",
    "BigBirdPegasus",
    BigBirdPegasusConfig,
    ("bigbird", "full"),
    block_size=16,
    max_position_embeddings=1024,
)
