"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019), with
three heads.

One encoder; the relatives differ in their positions, token types and heads. ``head`` says what
comes out: states ("none", and "pooler" with the map that bare BERT files carry), the vocabulary at
every token ("masked_lm"), labels of the text ("classification"), or a score of every sentence of a
document ("extraction").
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import ACTIVATIONS, LayerNorm, Linear, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.partitioning import constrain, logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.encoder_decoder import vocabulary_logits
from longsum_jax.models.extraction_head import ExtractionHead, mean_state
from longsum_jax.models.lsg_layout import GLOBALS
from longsum_jax.models.weight_map import WeightMap, WeightRow, layer_norm, linear
from longsum_jax.typing import Array

# Config fields that say how to compute; no checkpoint depends on them.
RUNTIME_FIELDS = ("dtype", "remat", "length_chunk", "sentence_chunk", "head")

Head = Literal["none", "pooler", "masked_lm", "classification", "extraction"]
ProblemType = Literal["single_label_classification", "multi_label_classification"]


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderAttentionOptions):
    """Keys as in config.json; defaults are BERT base.

    Attributes:
        head: what the model gives; in checkpoints the architecture's name says it.
        id2label: names of the labels in their order; empty for numbers alone.
        classifier_dropout: before the classifier; None for hidden_dropout_prob.
        extraction_heads, sentence_positions: see ``extractor.ExtractionHead``.
        max_sentence_length: tokens read of a sentence ("extraction").
        sentence_chunk: sentences of a document encoded at a time, their states made anew for the
            gradients; 0 for all.
    """

    prefix: ClassVar[str] = "bert"
    # Position of the first token in the table; RoBERTa's first rows belong to padding.
    position_offset: ClassVar[int] = 0
    has_token_types: ClassVar[bool] = True

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    num_labels: int = 2
    problem_type: ProblemType = "single_label_classification"
    id2label: tuple[str, ...] = ()
    extraction_heads: int = 8
    sentence_positions: bool = False
    max_sentence_length: int = 128

    head: Head = "masked_lm"
    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    length_chunk: int = 0
    sentence_chunk: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
        )
        for key in (*sizes, "max_position_embeddings", "num_labels"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} is {getattr(self, key)}; it must be at least 1")
        if self.hidden_size % self.num_attention_heads:
            sizes = f"hidden_size {self.hidden_size} is not divisible by num_attention_heads {self.num_attention_heads}"
            raise InputError(f"{sizes}; change either")
        if self.head == "extraction" and self.hidden_size % self.extraction_heads:
            sizes = f"hidden_size {self.hidden_size} is not divisible by extraction_heads {self.extraction_heads}"
            raise InputError(f"{sizes}; change either")
        if self.hidden_act not in ACTIVATIONS:
            raise InputError(
                f'hidden_act "{self.hidden_act}" is unknown; {did_you_mean(self.hidden_act, ACTIVATIONS)}'
            )
        if self.id2label and len(self.id2label) != self.num_labels:
            raise InputError(
                f"id2label names {len(self.id2label)} labels, num_labels is {self.num_labels}; they must agree"
            )
        get_encoder_attention(self)

    @property
    def d_model(self) -> int:
        return self.hidden_size

    @property
    def dropout_rate(self) -> float:
        """The largest of the dropout rates: 0 when there is no dropout at all."""
        return max(
            self.hidden_dropout_prob,
            self.attention_probs_dropout_prob,
            self.classifier_dropout or 0.0,
        )

    @property
    def max_source_length(self) -> int:
        """Longest input in tokens, the special ones included."""
        return self.max_position_embeddings - self.position_offset

    def with_max_source_length(self, length: int) -> "BertConfig":
        """This config with positions for ``length`` tokens."""
        return dataclasses.replace(self, max_position_embeddings=length + self.position_offset)

    @property
    def compute_dtype(self) -> Any:
        return jnp.dtype(self.dtype)

    @property
    def encoder_stack(self) -> StackConfig:
        d_kv = self.hidden_size // self.num_attention_heads
        return StackConfig(
            d_model=self.hidden_size,
            num_heads=self.num_attention_heads,
            d_kv=d_kv,
            d_ff=self.intermediate_size,
            num_layers=self.num_hidden_layers,
            feed_forward=self.hidden_act,
            norm="layer",
            norm_epsilon=self.layer_norm_eps,
            pre_norm=False,
            final_norm=False,
            attention_bias=True,
            feed_forward_bias=True,
            attention_scale=d_kv**-0.5,
            attention_init=self.initializer_range,
            dropout_rate=self.hidden_dropout_prob,
            attention_dropout_rate=self.attention_probs_dropout_prob,
            options=dataclasses.replace(self, pass_global_tokens_to_decoder=False),  # there is none
            dtype=self.compute_dtype,
            remat=self.remat,
            length_chunk=self.length_chunk,
        )


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertConfig):
    """Defaults are RoBERTa base."""

    prefix: ClassVar[str] = "roberta"
    position_offset: ClassVar[int] = 2

    vocab_size: int = 50265
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 1
    bos_token_id: int = 0
    eos_token_id: int = 2


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(BertConfig):
    """Defaults are DistilBERT base; config.json has other names for the sizes, see
    ``_DISTILBERT_NAMES``."""

    prefix: ClassVar[str] = "distilbert"
    has_token_types: ClassVar[bool] = False

    num_hidden_layers: int = 6
    classifier_dropout: float | None = 0.2


class MaskedLanguageModelHead(nn.Module):
    """States [B, L, D] and the embedding table [V, D] -> logits float32 [B, L, V]."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Array, table: Array) -> Array:
        c = self.config
        init, zeros = normal(c.initializer_range), nn.initializers.zeros
        shape, names = (c.hidden_size, c.hidden_size), ("embed", "embed_out")
        x = Linear(shape, names, init, zeros, dtype=c.compute_dtype, name="dense")(x)
        x = LayerNorm(c.layer_norm_eps, c.compute_dtype, name="norm")(ACTIVATIONS[c.hidden_act](x))
        return vocabulary_logits(x, table) + self.param(
            "bias", logical(zeros, "vocab"), (c.vocab_size,)
        )


class ClassificationHead(nn.Module):
    """States [B, L, D] -> logits float32 [B, num_labels], read from the first token."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Array, deterministic: bool) -> Array:
        c = self.config
        init, zeros = normal(c.initializer_range), nn.initializers.zeros
        rate = c.hidden_dropout_prob if c.classifier_dropout is None else c.classifier_dropout
        dropout = nn.Dropout(rate, deterministic=deterministic)
        shape, names = (c.hidden_size, c.hidden_size), ("embed", "embed_out")
        x = x[:, 0]
        if isinstance(c, RobertaConfig):
            x = dropout(x)
        x = Linear(shape, names, init, zeros, dtype=c.compute_dtype, name="dense")(x)
        x = dropout(nn.relu(x) if isinstance(c, DistilBertConfig) else jnp.tanh(x))
        shape = (c.hidden_size, c.num_labels)
        x = Linear(shape, ("embed", "labels"), init, zeros, dtype=c.compute_dtype, name="out")(x)
        return x.astype(jnp.float32)


class Pooler(nn.Module):
    """States [B, L, D] -> [B, D]: tanh of a map of the first token."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        c = self.config
        init, shape, names = (
            normal(c.initializer_range),
            (c.hidden_size, c.hidden_size),
            ("embed", "embed_out"),
        )
        return jnp.tanh(
            Linear(shape, names, init, nn.initializers.zeros, dtype=c.compute_dtype, name="dense")(
                x[:, 0]
            )
        )


class Bert(nn.Module):
    """BERT, RoBERTa and DistilBERT. Ids are int [B, L]; ``attention_mask`` [B, L] is nonzero on
    real tokens."""

    config: BertConfig

    def setup(self) -> None:
        c = self.config
        init = normal(c.initializer_range)
        table = lambda name, rows, axis: self.param(
            name, logical(init, axis, "embed"), (rows, c.hidden_size)
        )
        self.word_embeddings = table("word_embeddings", c.vocab_size, "vocab")
        self.position_embeddings = table(
            "position_embeddings", c.max_position_embeddings, "positions"
        )
        if c.has_token_types:
            self.token_type_embeddings = table("token_type_embeddings", c.type_vocab_size, "types")
        self.embedding_norm = LayerNorm(c.layer_norm_eps, c.compute_dtype)
        self.encoder = Encoder(c.encoder_stack)
        if c.head == "masked_lm":
            self.head = MaskedLanguageModelHead(c)
        elif c.head == "classification":
            self.head = ClassificationHead(c)
        elif c.head == "pooler":
            self.head = Pooler(c)
        elif c.head == "extraction":
            self.head = ExtractionHead(c.encoder_stack, c.extraction_heads, c.sentence_positions)

    def __call__(
        self,
        input_ids: Array,
        attention_mask: Array,
        deterministic: bool = True,
        token_type_ids: Array | None = None,
        **inputs: Array,
    ) -> Array:
        """What ``head`` says: logits float32 [B, L, V] or [B, num_labels], or states [B, L, D].

        With "extraction" ids and mask are [B, S, L] (or [B, L], one sentence each), and scores
        float32 [B, S] come out.
        """
        if self.config.head == "extraction":
            return self.score_sentences(
                *self.encode_sentences(input_ids, attention_mask, deterministic), deterministic
            )
        states = self.encode(input_ids, attention_mask, deterministic, token_type_ids, **inputs)
        if self.config.head == "masked_lm":
            return self.head(states, self.word_embeddings)
        if self.config.head == "classification":
            return self.head(states, deterministic)
        if self.is_initializing() and self.config.head == "pooler":
            self.head(states)
        return states

    def encode_sentences(
        self, input_ids: Array, attention_mask: Array, deterministic: bool = True
    ) -> tuple[Array, Array]:
        """Ids and mask [B, S, L] -> the mean state of each sentence [B, S, D], and which there are,
        bool [B, S]."""
        ids, mask = (
            x[:, None] if x.ndim == 2 else x for x in (input_ids, attention_mask.astype(bool))
        )

        def encode(bert: Bert, ids: Array, mask: Array) -> Array:
            rows = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
            vectors = mean_state(bert.encode(rows(ids), rows(mask), deterministic), rows(mask))
            return vectors.reshape(*ids.shape[:2], -1)

        chunk = self.config.sentence_chunk
        encode = nn.remat(encode) if chunk and not self.is_initializing() else encode
        return map_over_length(self, encode, chunk, ids, mask), mask.any(-1)

    def score_sentences(self, vectors: Array, mask: Array, deterministic: bool = True) -> Array:
        """Sentence vectors [B, S, D] and bool [B, S] -> scores float32 [B, S], with head
        "extraction"."""
        return self.head(vectors, mask, deterministic)

    def pool(self, states: Array) -> Array:
        """States [B, L, D] -> [B, D], with head "pooler"."""
        return self.head(states)

    def encode(
        self,
        input_ids: Array,
        attention_mask: Array,
        deterministic: bool = True,
        token_type_ids: Array | None = None,
        **inputs: Array,
    ) -> Array:
        """Encoder states [B, L, D]; ``token_type_ids`` int [B, L] are zeros when not given."""
        mask = attention_mask.astype(bool)
        x = constrain(self.embed(input_ids, token_type_ids), "batch", "length", "act_embed")
        return self.encoder(x, mask, deterministic, embedding_norm=self.embedding_norm, **inputs)

    def embed(self, ids: Array, token_type_ids: Array | None) -> Array:
        """Embeddings [B, L, D], normalised."""
        c = self.config
        x = jnp.take(self.word_embeddings, ids, axis=0)
        x = x + jnp.take(self.position_embeddings, self._positions(ids), axis=0)
        if c.has_token_types:
            types = jnp.zeros_like(ids) if token_type_ids is None else token_type_ids
            x = x + jnp.take(self.token_type_embeddings, types, axis=0)
        return self.embedding_norm(x)

    def _positions(self, ids: Array) -> Array:
        if not self.config.position_offset:
            return jnp.arange(ids.shape[1])
        # RoBERTa counts the tokens that are no padding; padding has its own row.
        real = ids != self.config.pad_token_id
        return jnp.cumsum(real, axis=1) * real + self.config.pad_token_id


_SMALL = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
_TINY = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_TINY |= {"intermediate_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_TINY |= {"classifier_dropout": 0.0}


def presets(config_class: type[BertConfig]) -> dict[str, BertConfig]:
    """base, small and tiny models of a relative."""
    return {"base": config_class(), "small": config_class(**_SMALL), "tiny": config_class(**_TINY)}


# Our field -> DistilBERT's key in config.json.
_DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "seq_classif_dropout",
}

# Ends of class names in ``architectures`` -> head.
_HEADS: dict[str, Head] = {
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "masked_lm",
    "ForSequenceClassification": "classification",
    "ForSentenceExtraction": "extraction",
    "Model": "none",
}


def read_config(raw: Mapping[str, Any], config_class: type[BertConfig]) -> dict[str, Any]:
    """Fields of ``config_class`` in a config.json; keys that no model reads are left out."""
    names = {field.name for field in dataclasses.fields(config_class)} - set(RUNTIME_FIELDS)
    keys = {name: _json_key(name, config_class) for name in names}
    values = {name: raw[key] for name, key in keys.items() if raw.get(key) is not None}
    _check_structure(raw)
    labels = raw.get("id2label")
    if labels:
        names = tuple(str(labels[key]) for key in sorted(labels, key=int))
        plain = names == tuple(f"LABEL_{i}" for i in range(len(names)))
        values |= {"num_labels": len(names), "id2label": () if plain else names}
    architecture = next(iter(raw.get("architectures") or ()), "Model")
    head = next((head for end, head in _HEADS.items() if architecture.endswith(end)), None)
    if head is None:
        known = ", ".join(f"...{end}" for end in _HEADS)
        raise InputError(
            f'architecture "{architecture}" has a head that is not supported; supported: {known}'
        )
    return values | {"head": head}


def _json_key(name: str, config_class: type[BertConfig]) -> str:
    return _DISTILBERT_NAMES.get(name, name) if config_class is DistilBertConfig else name


def _check_structure(raw: Mapping[str, Any]) -> None:
    plain = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "sinusoidal_pos_embds": False,
    }
    for key, value in plain.items():
        if raw.get(key) not in (value, None):
            raise InputError(f"{key} is {raw[key]!r}; only {value!r} is supported")
    if raw.get("problem_type") == "regression":
        raise InputError(
            'problem_type is "regression"; only single- and multi-label classification are supported'
        )


def write_config(config: BertConfig) -> dict[str, Any]:
    """Entries of config.json in place of the fields whose names or forms differ."""
    names = config.id2label or tuple(f"LABEL_{i}" for i in range(config.num_labels))
    values: dict[str, Any] = {
        "tie_word_embeddings": True,
        "is_encoder_decoder": False,
        "num_labels": None,
    }
    values |= {"id2label": {str(i): name for i, name in enumerate(names)}}
    values |= {"label2id": {name: i for i, name in enumerate(names)}}
    values |= {"architectures": [architecture(config)]}
    if config.head != "extraction":
        values |= {
            "extraction_heads": None,
            "sentence_positions": None,
            "max_sentence_length": None,
        }
    if isinstance(config, DistilBertConfig):
        for name, key in _DISTILBERT_NAMES.items():
            values |= {name: None, key: getattr(config, name)}
        values |= {"type_vocab_size": None, "layer_norm_eps": None}
    return values


def architecture(config: BertConfig) -> str:
    """Name of the class in transformers."""
    name = {RobertaConfig: "Roberta", DistilBertConfig: "DistilBert"}.get(type(config), "Bert")
    ends = {head: end for end, head in reversed(_HEADS.items())}
    return name + ends.get(config.head, "Model")


def infer_from_weights(config: BertConfig, tensors: Mapping[str, Any]) -> BertConfig:
    """A bare model with a pooler keeps it."""
    pooler = config.head == "none" and any(key.endswith("pooler.dense.weight") for key in tensors)
    return dataclasses.replace(config, head="pooler") if pooler else config


def _layer_rows(config: BertConfig) -> list[WeightRow]:
    path = "encoder/layers"
    if isinstance(config, DistilBertConfig):
        key = f"{config.prefix}.transformer.layer.{{i}}"
        attention, maps = (
            f"{key}.attention",
            {"q": "q_lin", "k": "k_lin", "v": "v_lin", "o": "out_lin"},
        )
        inner, outer = f"{key}.ffn.lin1", f"{key}.ffn.lin2"
        norms = f"{key}.sa_layer_norm", f"{key}.output_layer_norm"
    else:
        key = f"{config.prefix}.encoder.layer.{{i}}"
        attention = f"{key}.attention"
        maps = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
        inner, outer = f"{key}.intermediate.dense", f"{key}.output.dense"
        norms = f"{attention}.output.LayerNorm", f"{key}.output.LayerNorm"
    rows = [*layer_norm(f"{path}/self_norm", norms[0]), *layer_norm(f"{path}/ff_norm", norms[1])]
    for name, torch_name in maps.items():
        inputs = 2 if name == "o" else 1
        rows += linear(
            f"{path}/self_attention/{name}", f"{attention}.{torch_name}", inputs=inputs, bias=True
        )
    rows += linear(f"{path}/feed_forward/wi", inner, bias=True)
    return [*rows, *linear(f"{path}/feed_forward/wo", outer, bias=True)]


def _embedding_rows(config: BertConfig) -> list[WeightRow]:
    key = f"{config.prefix}.embeddings"
    names = [
        "word_embeddings",
        "position_embeddings",
        *(["token_type_embeddings"] if config.has_token_types else []),
    ]
    lsg = (
        [WeightRow(GLOBALS, f"{key}.global_embeddings.weight")]
        if config.encoder_attention == "lsg"
        else []
    )
    return [
        *lsg,
        *(WeightRow(name, f"{key}.{name}.weight") for name in names),
        *layer_norm("embedding_norm", f"{key}.LayerNorm"),
    ]


# Config class -> keys of the head: masked_lm (dense, norm, bias), classification (dense, out).
_HEAD_KEYS = {
    BertConfig: (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    RobertaConfig: ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    DistilBertConfig: ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
}
_CLASSIFIER_KEYS = {
    BertConfig: ("bert.pooler.dense", "classifier"),
    RobertaConfig: ("classifier.dense", "classifier.out_proj"),
    DistilBertConfig: ("pre_classifier", "classifier"),
}
# Copies that files may hold: of the bias, of the embeddings.
_DECODERS = {
    BertConfig: "cls.predictions.decoder",
    RobertaConfig: "lm_head.decoder",
    DistilBertConfig: "vocab_projector",
}


def _head_rows(config: BertConfig) -> list[WeightRow]:
    if config.head == "masked_lm":
        dense, norm, bias = _HEAD_KEYS[type(config)]
        return [
            *linear("head/dense", dense, bias=True),
            *layer_norm("head/norm", norm),
            WeightRow("head/bias", bias),
        ]
    if config.head == "classification":
        dense, out = _CLASSIFIER_KEYS[type(config)]
        return [*linear("head/dense", dense, bias=True), *linear("head/out", out, bias=True)]
    return (
        linear("head/dense", f"{config.prefix}.pooler.dense", bias=True)
        if config.head == "pooler"
        else []
    )


def weight_map(config: BertConfig) -> WeightMap:
    """Every parameter beside its key in state dicts; ``{i}`` counts layers."""
    rows = [*_embedding_rows(config), *_layer_rows(config), *_head_rows(config)]
    decoder, tied = _DECODERS[type(config)], {}
    if config.head == "masked_lm":
        tied[f"{decoder}.weight"] = f"{config.prefix}.embeddings.word_embeddings.weight"
        if f"{decoder}.bias" != _HEAD_KEYS[type(config)][2]:
            tied[f"{decoder}.bias"] = _HEAD_KEYS[type(config)][2]
    # Other heads in the files of a model that was trained with several; the pooler is part of the
    # classifier here.
    ignored = [r"embeddings\.position_ids$", r"^cls\.seq_relationship\."]
    if not any("pooler" in row.key for row in rows):
        ignored.append(r"(^|\.)pooler\.dense\.")
    if config.head in ("none", "pooler"):
        ignored += [r"^cls\.", r"^lm_head\.", r"^vocab_(transform|layer_norm|projector)\."]
    aliases = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
    prefix = f"{config.prefix}."
    if config.head not in ("none", "pooler"):
        return WeightMap(rows, tied, tuple(ignored), prefix=prefix, aliases=aliases)
    # Bare models are written without the prefix.
    rows = [row._replace(key=row.key.removeprefix(prefix)) for row in rows]
    return WeightMap(rows, ignored=tuple(ignored), aliases=(*aliases, (rf"^{prefix}", "")))
