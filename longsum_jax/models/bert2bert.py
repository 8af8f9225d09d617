"""BERT2BERT and related models: encoder-decoders made from two encoders (Rothe et al. 2020).

These are the ``encoder-decoder`` models of transformers, and reproduce its
outputs. The encoder is any model of ``models.bert``. The decoder is a BERT,
RoBERTa, XLM-RoBERTa, CamemBERT or ELECTRA with causal self-attention, a
cross-attention in every layer and its vocabulary head. Encoder and decoder may
be of different kinds and sizes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.global_tokens import NO_TOKEN
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import LayerNorm, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models import bert, bert_json, bert_weights
from longsum_jax.models.bert_config import BertConfig, Head
from longsum_jax.models.bert_config import presets as bert_presets
from longsum_jax.models.bert_embeddings import (
    EmbeddingTables,
    decoder_position_rows,
    position_rows,
    sum_embeddings,
)
from longsum_jax.models.bert_heads import Pooler, VocabularyHead
from longsum_jax.models.config import (
    EncoderDecoderConfig,
    ModelConfig,
    check_attention,
    check_decoder_options,
    check_token_ids,
)
from longsum_jax.models.encoder_decoder import EncoderDecoder
from longsum_jax.models.family import Family
from longsum_jax.models.flat_config import check_entries, read_fields
from longsum_jax.models.weight_map import WeightMap, WeightRow, linear
from longsum_jax.schema import (
    Count,
    Layers,
    Length,
    PositiveFloat,
    Rate,
    Size,
    Weight,
    check_ranges,
)
from longsum_jax.typing import AnyArray

# Config fields that select how to compute; checkpoints do not depend on them.
RUNTIME_FIELDS = ("dtype", "matmul_precision", "remat", "length_chunk")
ENCODERS: dict[str, Family] = {
    family.name: family
    for family in (
        bert.BERT,
        bert.ROBERTA,
        bert.XLM_ROBERTA,
        bert.CAMEMBERT,
        bert.MPNET,
        bert.DISTILBERT,
        bert.ELECTRA,
        bert.ALBERT,
        bert.LONGFORMER,
        bert.BIG_BIRD,
    )
}
# The models that decode with cross-attention in transformers.
DECODERS: dict[str, Family] = {
    name: ENCODERS[name]
    for name in ("bert", "roberta", "xlm-roberta", "camembert", "electra")
}
_SIDES: dict[str, dict[str, Family]] = {
    "encoder": ENCODERS,
    "decoder": DECODERS,
}
# Entries of a section of config.json that describe heads, or that every section
# of its side has.
_LEFT_OUT = (
    "architectures",
    "problem_type",
    "id2label",
    "is_decoder",
    "add_cross_attention",
)


@dataclass(frozen=True, kw_only=True)
class BertStack:
    """The kind and the sizes of one stack; fields as in ``BertConfig``, defaults of BERT base.

    Attributes:
        model_type: family of the stack.
        embedding_size: size of an embedding in ELECTRA and ALBERT, which is
            mapped to ``hidden_size`` if they differ; None in other families.
        pad_token_id: id that RoBERTa does not count in its positions.
        rescale_embeddings: True if a BigBird multiplies embeddings by
            sqrt(hidden_size).
    """

    model_type: str = "bert"
    hidden_size: Size = 768
    embedding_size: Size | None = None
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1
    max_position_embeddings: Length = 512
    type_vocab_size: Size = 2
    initializer_range: Weight = 0.02
    layer_norm_eps: PositiveFloat = 1e-12
    pad_token_id: Count = 0
    rescale_embeddings: bool = False

    @classmethod
    def of(cls, model_type: str, config: BertConfig) -> "BertStack":
        """Returns the stack of an encoder, without its head."""
        names = {field.name for field in dataclasses.fields(config)}
        sizes = {
            field.name: getattr(config, field.name)
            for field in dataclasses.fields(cls)
            if field.name in names
        }
        return cls(model_type=model_type, **sizes)

    def bert_config(self, head: Head, **options: Any) -> BertConfig:
        """Returns the config of this stack as a model of its family.

        Args:
            head: head of the model.
            **options: further fields of the config, such as the encoder
                attention.

        Raises:
            InputError: sizes that do not fit together.
        """
        config_class: Any = ENCODERS[self.model_type].config_class
        names = {field.name for field in dataclasses.fields(config_class)}
        sizes = {
            key: value for key, value in vars(self).items() if key in names
        }
        if self.embedding_size is None:
            sizes.pop("embedding_size", None)
        config: BertConfig = config_class(head=head, **sizes, **options)
        return config


@dataclass(frozen=True, kw_only=True)
class Bert2BertConfig(EncoderDecoderConfig):
    """The config of BERT2BERT; keys as in config.json, defaults of two BERTs of base size.

    ``encoder_attention`` and its options replace the attention of the encoder's
    family.

    Attributes:
        encoder: kind and sizes of the encoder.
        decoder: kind and sizes of the decoder.
        tie_word_embeddings: True if the output weights are the decoder's
            embeddings, and if its output has one bias. When a checkpoint is
            read, this is inferred from its tensors.
        tie_encoder_decoder: True if a checkpoint may contain the weights that
            both stacks have in common only once, under the names of either
            stack. The parameters of the loaded model are separate, as in
            transformers 5: training changes them separately.
        encoder_pooler: True if the checkpoint contains the encoder's pooler,
            which is never computed, but which transformers expects; inferred
            from the tensors.
    """

    vocab_size: Count = 30522
    encoder: BertStack = BertStack()
    decoder: BertStack = BertStack()
    tie_word_embeddings: bool = True
    tie_encoder_decoder: bool = False
    encoder_pooler: bool = False
    eos_token_id: Count = 102
    decoder_start_token_id: Count = 101

    def __post_init__(self) -> None:
        super().__post_init__()
        check_token_ids(self)
        for side, families in _SIDES.items():
            stack: BertStack = getattr(self, side)
            check_ranges(stack, side)
            _check_model_type(stack.model_type, side, families)
        check_attention(self)
        with _errors_in("encoder"):
            encoder = self.encoder_bert
        with _errors_in("decoder"):
            decoder = self.decoder_bert
        if decoder.max_position_embeddings <= decoder.position_offset:
            raise InputError(
                f"decoder.max_position_embeddings is {decoder.max_position_embeddings}, but "
                f"positions begin at {decoder.position_offset}; give more"
            )
        check_decoder_options(
            self,
            decoder.num_attention_heads,
            encoder.num_hidden_layers,
            decoder.num_hidden_layers,
            encoder.max_source_length,
        )

    @property
    def encoder_bert(self) -> BertConfig:
        """The encoder as a model without a decoder."""
        options = _attention_options(self)
        if self.pages.page_length:
            # The attention only reads a page, but this config would check it
            # for all positions.
            options = {"encoder_attention": "full"}
        return self._bert(
            self.encoder, "pooler" if self.encoder_pooler else "none", **options
        )

    @property
    def decoder_bert(self) -> BertConfig:
        """The decoder as a language model without cross-attention."""
        return self._bert(self.decoder, "causal_lm", encoder_attention="full")

    def _bert(self, stack: BertStack, head: Head, **options: Any) -> BertConfig:
        runtime = {name: getattr(self, name) for name in RUNTIME_FIELDS}
        return stack.bert_config(
            head, vocab_size=self.vocab_size, **runtime, **options
        )

    @property
    def d_model(self) -> int:
        """Size of the encoder's states."""
        return self.encoder.hidden_size

    @property
    def dropout_rate(self) -> float:
        stacks = (self.encoder, self.decoder)
        rates = [
            (stack.hidden_dropout_prob, stack.attention_probs_dropout_prob)
            for stack in stacks
        ]
        return max(map(max, rates))

    @property
    def scale_embedding(self) -> bool:
        return self.encoder_bert.scale_embedding

    @property
    def position_offset(self) -> int:
        return self.encoder_bert.position_offset

    @property
    def max_source_length(self) -> int | None:
        if self.pages.page_length:
            return None
        return self.encoder_bert.max_source_length

    @property
    def max_target_length(self) -> int | None:
        return self.decoder_bert.max_source_length

    def with_max_source_length(self, length: int) -> "Bert2BertConfig":
        """Returns this config with positions for ``length`` tokens of the source."""
        rows = length + self.position_offset
        return dataclasses.replace(
            self,
            encoder=dataclasses.replace(
                self.encoder, max_position_embeddings=rows
            ),
        )

    @property
    def encoder_stack(self) -> StackConfig:
        return self._stack(self.encoder_bert)

    @property
    def decoder_stack(self) -> StackConfig:
        size = self.encoder.hidden_size
        return dataclasses.replace(
            self._stack(self.decoder_bert),
            mapped_source_size=None
            if size == self.decoder.hidden_size
            else size,
            memory=self.decoder_memory,
            length_chunk=0,
        )

    def _stack(self, config: BertConfig) -> StackConfig:
        return dataclasses.replace(config.encoder_stack, **self.layer_options)


def _check_model_type(
    name: Any, side: str, families: Mapping[str, Family]
) -> None:
    """Raises an InputError for a kind of model that cannot be the encoder or the decoder."""
    if not isinstance(name, str) or name not in families:
        raise InputError(
            f'{side}.model_type "{name}" is not supported as the {side}; '
            f"{did_you_mean(str(name), families)}"
        )


@contextlib.contextmanager
def _errors_in(section: str) -> Iterator[None]:
    """Begins every InputError with the name of a section."""
    try:
        yield
    except InputError as error:
        message = str(error)
        if message.startswith(section):
            prefix = ""
        else:
            prefix = f"{section}."
        raise InputError(prefix + message) from None


class Bert2Bert(EncoderDecoder):
    """BERT2BERT and related models; see ``EncoderDecoder`` for the methods."""

    config: Bert2BertConfig

    def setup(self) -> None:
        c = self.config
        source, target = c.encoder_bert, c.decoder_bert
        self.shared = self._table("shared", source, c.vocab_size, "vocab")
        self.source_positions = self._positions("source_positions", source)
        self.token_type_embeddings = self._types(
            "token_type_embeddings", source
        )
        self.source_norm = LayerNorm(source.layer_norm_eps, c.compute_dtype)
        self.target_embedding = self._table(
            "target_embedding", target, c.vocab_size, "vocab"
        )
        self.target_positions = self._positions("target_positions", target)
        self.target_types = self._types("target_types", target)
        self.target_norm = LayerNorm(target.layer_norm_eps, c.compute_dtype)
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.head = VocabularyHead(target)
        if not c.tie_word_embeddings:
            self.lm_head = self._table("lm_head", target, c.vocab_size, "vocab")
        if c.encoder_pooler:
            self.pooler = Pooler(source)
        self.make_page_scores()

    def _table(
        self, name: str, config: BertConfig, rows: int, axis: str
    ) -> Float[Array, "rows embedding_size"]:
        """Makes an embedding table; call it in ``setup``."""
        init = logical(normal(config.initializer_range), axis, "embed")
        return self.param(name, init, (rows, config.embedding_size))

    def _positions(
        self, name: str, config: BertConfig
    ) -> Float[Array, "rows embedding_size"]:
        return self._table(
            name, config, config.max_position_embeddings, "positions"
        )

    def _types(
        self, name: str, config: BertConfig
    ) -> Float[Array, "rows embedding_size"] | None:
        if not config.has_token_types:
            return None
        return self._table(name, config, config.type_vocab_size, "types")

    def encode(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool = True,
        layer: int | None = None,
        **inputs: Any,
    ) -> Float[AnyArray, "batch states_length d_model"]:
        """Returns the states of the encoder; see ``EncoderDecoder.encode``."""
        states = super().encode(
            input_ids, attention_mask, deterministic, layer, **inputs
        )
        if self.is_initializing() and self.config.encoder_pooler:
            self.pooler(states)  # creates its parameters
        return states

    def default_inputs(
        self, ids: Int[AnyArray, "batch length"]
    ) -> dict[str, Any]:
        """Returns no global tokens for Longformers, as in transformers."""
        if (
            "global_indices"
            not in get_encoder_attention(self.config.encoder_attention).inputs
        ):
            return {}
        return {"global_indices": jnp.full((len(ids), 1), NO_TOKEN, jnp.int32)}

    def source_embedding_norm(self) -> LayerNorm:
        return self.source_norm

    def embed_source(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length embedding_size"]:
        """Returns the embeddings of the source."""
        config = self.config.encoder_bert
        tables = EmbeddingTables(
            self.shared, self.source_positions, self.token_type_embeddings
        )
        if positions is None:
            rows = position_rows(config, ids)
        else:
            rows = decoder_position_rows(config, ids, positions)
        return self.source_norm(sum_embeddings(config, tables, ids, rows))

    def embed_target(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
    ) -> Float[Array, "batch length embedding_size"]:
        """Returns the embeddings of the target at ``positions``, one per column or per row."""
        config = self.config.decoder_bert
        tables = EmbeddingTables(
            self.target_embedding, self.target_positions, self.target_types
        )
        rows = decoder_position_rows(config, ids, positions)
        return self.target_norm(sum_embeddings(config, tables, ids, rows))

    def output_logits(
        self, x: Float[AnyArray, "*leading d_model"]
    ) -> Float[Array, "*leading vocab"]:
        """Returns float32 logits of decoder states."""
        return self.head(x, self.logits_table())

    @property
    def logits_parameter(self) -> str:
        if self.config.tie_word_embeddings:
            return "target_embedding"
        return "lm_head"


# config.json


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``Bert2BertConfig`` in a config.json.

    Raises:
        InputError: a section is missing, describes another kind of model, or
            has another vocabulary; or a special token is missing.
    """
    fields = read_fields(raw, Bert2BertConfig, RUNTIME_FIELDS)
    configs = {side: _read_section(raw, side) for side in _SIDES}
    encoder, decoder = configs["encoder"], configs["decoder"]
    width = raw["decoder"].get("cross_attention_hidden_size")
    if width not in (None, decoder.hidden_size):
        raise InputError(
            f"decoder.cross_attention_hidden_size is {width}, but its layers read states of "
            f"hidden_size {decoder.hidden_size}; leave it out"
        )
    named = {
        side: (_model_type(raw[side]), config)
        for side, config in configs.items()
    }
    values = fields | stack_fields(named)
    if "encoder_attention" not in raw:
        options = _attention_options(encoder)
        del options["attention"]
        values |= encoder.default_options() | options
        values |= encoder.attention.flat()
    first = raw.get("bos_token_id")
    if first is None:
        first = decoder.bos_token_id
    defaults = {
        "pad_token_id": decoder.pad_token_id,
        "eos_token_id": decoder.eos_token_id,
        "decoder_start_token_id": first,
    }
    for name, default in defaults.items():
        token_id = values.get(name, default)
        if token_id is None:
            raise InputError(
                f"{name} is missing, also in generation_config.json; add the id of [CLS] as "
                "decoder_start_token_id and of [SEP] as eos_token_id"
            )
        values[name] = token_id
    return values


def stack_fields(
    configs: Mapping[str, tuple[str, BertConfig]],
) -> dict[str, Any]:
    """Returns the fields of ``Bert2BertConfig`` that describe both stacks.

    Args:
        configs: family and config of the "encoder" and of the "decoder".

    Raises:
        InputError: stacks with different vocabularies.
    """
    sizes = {side: config.vocab_size for side, (_, config) in configs.items()}
    if sizes["encoder"] != sizes["decoder"]:
        raise InputError(
            f"encoder.vocab_size is {sizes['encoder']}, decoder.vocab_size {sizes['decoder']}; "
            "only stacks with one vocabulary are supported"
        )
    stacks = {
        side: BertStack.of(name, config)
        for side, (name, config) in configs.items()
    }
    return {"vocab_size": sizes["decoder"], **stacks}


def make_config(
    configs: Mapping[str, tuple[str, BertConfig]], **fields: Any
) -> Bert2BertConfig:
    """Returns the config of an encoder-decoder made from two encoders.

    Args:
        configs: family and config of the "encoder" and of the "decoder".
        **fields: further fields of ``Bert2BertConfig``.

    Raises:
        InputError: stacks that do not fit together.
    """
    attention = _attention_options(configs["encoder"][1])
    return Bert2BertConfig(**stack_fields(configs), **attention, **fields)


def _attention_options(config: ModelConfig) -> dict[str, Any]:
    """Returns the fields of a config that select the encoder attention."""
    names = ("encoder_attention", "attention", "attention_backend")
    return {name: getattr(config, name) for name in (*names, "ssm_backend")}


def _model_type(section: Mapping[str, Any]) -> str:
    return section.get("model_type") or "bert"


def _read_section(raw: Mapping[str, Any], side: str) -> BertConfig:
    """Returns the config in a section of a config.json."""
    section = raw.get(side)
    if not isinstance(section, Mapping):
        raise InputError(
            f'"{side}" must be a mapping with the config of the {side}'
        )
    check_entries(section, side)
    name, families = _model_type(section), _SIDES[side]
    _check_model_type(name, side, families)
    config_class: Any = families[name].config_class
    if side == "encoder" and section.get("is_decoder"):
        raise InputError(
            "encoder.is_decoder is true, but encoders read in both directions"
        )
    section = {
        key: value for key, value in section.items() if key not in _LEFT_OUT
    }
    with _errors_in(side):
        values = bert_json.read_config(section, config_class)
        config: BertConfig = config_class.from_flat(values, side)
    return config


def write_config(config: Bert2BertConfig) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields, or that only transformers reads."""
    is_published = FAMILY.is_published(config)
    encoder, decoder = config.encoder_bert, config.decoder_bert
    values: dict[str, Any] = {
        "tie_encoder_decoder": None,  # files contain all weights
        "encoder_pooler": config.encoder_pooler or None,
    }
    if is_published:
        # The attention is in the section of the encoder.
        names = [*config.attention.flat(), "encoder_attention"]
        values |= dict.fromkeys(names)
    else:
        attention = type(encoder).encoder_attention
        encoder = config.encoder.bert_config(
            encoder.head,
            vocab_size=config.vocab_size,
            encoder_attention=attention,
        )
    values["encoder"] = ENCODERS[config.encoder.model_type].config_json(encoder)
    values["decoder"] = DECODERS[config.decoder.model_type].config_json(
        decoder
    ) | {
        "is_decoder": True,
        "add_cross_attention": True,
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": config.decoder_start_token_id,
        "eos_token_id": config.eos_token_id,
    }
    return values


# State dicts

# Path of a parameter of an encoder, or its beginning, to the path in a stack of
# this model.
_PATHS = {
    "encoder": {
        "word_embeddings": "shared",
        "position_embeddings": "source_positions",
        "embedding_norm": "source_norm",
        "head": "pooler",
    },
    "decoder": {
        "word_embeddings": "target_embedding",
        "position_embeddings": "target_positions",
        "token_type_embeddings": "target_types",
        "embedding_norm": "target_norm",
        "encoder": "decoder",
    },
}


def stack_path(side: str, path: str) -> str:
    """Returns the path of a parameter of an encoder in the model of which it is one side."""
    first, slash, rest = path.partition("/")
    return _PATHS[side].get(first, first) + slash + rest


def _stack_map(config: Bert2BertConfig, side: str) -> WeightMap:
    """Returns the weight map of one stack, with its keys in the whole model."""
    if side == "encoder":
        stack = config.encoder_bert
    else:
        stack = config.decoder_bert
    weight_map = bert_weights.weight_map(stack)
    rows = []
    for row in weight_map.rows:
        rows.append(
            row._replace(
                path=stack_path(side, row.path), key=f"{side}.{row.key}"
            )
        )
    tied = {
        f"{side}.{copy}": f"{side}.{key}"
        for copy, key in weight_map.tied.items()
    }
    return weight_map._replace(rows=rows, tied=tied)


def _cross_rows(rows: list[WeightRow]) -> list[WeightRow]:
    """Returns the rows of cross-attentions, whose names are similar to self-attentions."""
    layer = "decoder/layers/"
    return [
        row._replace(
            path=row.path.replace(f"{layer}self_", f"{layer}cross_"),
            key=row.key.replace(".attention.", ".crossattention."),
        )
        for row in rows
        if row.path.startswith(f"{layer}self_")
    ]


def _untied_rows(
    rows: list[WeightRow], tied: Mapping[str, str]
) -> tuple[list[WeightRow], Any]:
    """Returns the rows of a decoder with separate output weights, and the copies in its files.

    The head then reads the weights and the bias of its last layer, and never
    the other bias.
    """
    copies = {}
    changed = []
    copy_of = {key: copy for copy, key in tied.items()}
    for row in rows:
        copy = copy_of.get(row.key)
        if copy is not None and row.path == "target_embedding":
            changed.append(WeightRow("lm_head", copy, alternatives=(row.key,)))
        elif copy is not None:
            copies[row.key] = copy
            row = row._replace(key=copy, alternatives=(row.key,))
        changed.append(row)
    return changed, copies


def _with_other_stack(config: Bert2BertConfig, row: WeightRow) -> WeightRow:
    """Returns a row whose array may be stored under the name of the other stack."""
    encoder, decoder = "encoder.", f"decoder.{config.decoder_bert.prefix}."
    for prefix, other in ((encoder, decoder), (decoder, encoder)):
        if row.key.startswith(prefix):
            return row._replace(
                alternatives=(other + row.key.removeprefix(prefix),)
            )
    return row


def weight_map(config: Bert2BertConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    encoder, decoder = (_stack_map(config, side) for side in _SIDES)
    rows, tied = list(decoder.rows), decoder.tied
    copies: dict[str, str] = {}
    if not config.tie_word_embeddings:
        rows, copies = _untied_rows(rows, tied)
        tied = {}
    if config.tie_encoder_decoder:
        shared = [_with_other_stack(config, row) for row in encoder.rows]
        rows = [
            row if row.alternatives else _with_other_stack(config, row)
            for row in rows
        ]
    else:
        shared = list(encoder.rows)
    rows = [*shared, *rows, *_cross_rows(list(decoder.rows))]
    if config.decoder_stack.mapped_source_size is not None:
        rows += linear("decoder/source_map", "enc_to_dec_proj", bias=True)
    aliases = [
        alias for alias in decoder.aliases if not alias[0].startswith("^")
    ]
    ignored = (r"embeddings\.position_ids$", r"(^|\.)pooler\.")
    return WeightMap(rows, tied, ignored, aliases=tuple(aliases), copies=copies)


def infer_from_weights(
    config: Bert2BertConfig, tensors: Mapping[str, Any]
) -> Bert2BertConfig:
    """Returns the config with a pooler and separate output weights if a state dict has them.

    Output weights are separate if they, or their bias, differ from the copies.
    The flag in config.json is ignored, as in transformers 5, which ties equal
    weights only.
    """
    start = "encoder."
    encoder = {
        key.removeprefix(start) for key in tensors if key.startswith(start)
    }
    plain = dataclasses.replace(config, encoder_pooler=False).encoder_bert
    head = bert_weights.infer_from_weights(plain, dict.fromkeys(encoder)).head
    tied = _stack_map(config, "decoder").tied
    pairs = [
        (tensors[copy], tensors[key])
        for copy, key in tied.items()
        if {copy, key} <= tensors.keys()
    ]
    is_tied = all(
        np.array_equal(np.asarray(copy), np.asarray(table))
        for copy, table in pairs
    )
    return dataclasses.replace(
        config, tie_word_embeddings=is_tied, encoder_pooler=head == "pooler"
    )


class Bert2BertFamily(Family):
    """The family of ``encoder-decoder`` models, whose attention depends on their encoder."""

    def published_attentions(self, config: Any) -> tuple[str, ...]:
        """Returns the attentions of the encoder's class in transformers."""
        attentions = ENCODERS[config.encoder.model_type].attentions
        return tuple(name for name in attentions if name != "lsg")


def _preset(name: str) -> Bert2BertConfig:
    config = bert_presets(BertConfig)[name]
    stack = BertStack.of("bert", config)
    return Bert2BertConfig(
        vocab_size=config.vocab_size, encoder=stack, decoder=stack
    )


FAMILY = Bert2BertFamily(
    name="encoder-decoder",
    architecture="EncoderDecoderModel",
    config_class=Bert2BertConfig,
    module_class=Bert2Bert,
    presets={name: _preset(name) for name in ("base", "small", "tiny")},
    runtime_fields=RUNTIME_FIELDS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    infer_from_weights=infer_from_weights,
)
