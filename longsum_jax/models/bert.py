"""BERT and its relatives: RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ELECTRA, ALBERT, Longformer
and BigBird.

Papers: BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020),
CamemBERT (Martin et al. 2020), DistilBERT (Sanh et al. 2019), ELECTRA (Clark et al. 2020), ALBERT
(Lan et al. 2020), Longformer (Beltagy et al. 2020), BigBird (Zaheer et al. 2020).

One encoder with one of several heads; the configs are in ``models.bert_config``. ``head`` selects
the output: states ("none", or "pooler" with the map that files of bare BERTs hold), logits of the
vocabulary at every token ("masked_lm", "causal_lm"), of the labels of a text ("classification") or
of every token ("token_classification"), of the start and the end of an answer at every token
("question_answering"), of one text among several ("multiple_choice"), or a score of every sentence
of a document ("extraction").
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.layers.attention.longformer import NO_TOKEN
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import LayerNorm, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer_groups import SHARED
from longsum_jax.layers.partitioning import constrain, logical
from longsum_jax.models.bert_config import (
    RUNTIME_FIELDS,
    VOCABULARY_HEADS,
    AlbertConfig,
    BertConfig,
    BigBirdConfig,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    LongformerConfig,
    RobertaConfig,
    XlmRobertaConfig,
    presets,
    read_config,
    write_config,
)
from longsum_jax.models.bert_heads import BigBirdAnswerHead, Pooler, VocabularyHead
from longsum_jax.models.extraction_head import ExtractionHead, mean_state
from longsum_jax.models.family import Family
from longsum_jax.models.heads import SPAN_OUTPUTS, TOKEN_HEADS, TextHead, TokenHead
from longsum_jax.models.lsg_layout import GLOBALS
from longsum_jax.models.precision import PreciseModule
from longsum_jax.models.vocabulary import score_labels
from longsum_jax.models.weight_map import WeightMap, WeightRow, layer_norm, linear
from longsum_jax.ops.losses import TokenScores
from longsum_jax.typing import AnyArray

_REFUSED = 1e6  # taken off the logits of tokens that begin or end no answer, as published


class Bert(PreciseModule):
    """BERT and its relatives.

    ``attention_mask`` is nonzero on real tokens; it may be of any type.
    """

    config: BertConfig

    def setup(self) -> None:
        c = self.config
        self.word_embeddings = self._table("word_embeddings", c.vocab_size, "vocab")
        self.position_embeddings = self._table(
            "position_embeddings", c.max_position_embeddings, "positions"
        )
        if c.has_token_types:
            self.token_type_embeddings = self._table(
                "token_type_embeddings", c.type_vocab_size, "types"
            )
        self.embedding_norm = LayerNorm(c.layer_norm_eps, c.compute_dtype)
        self.encoder = Encoder(c.encoder_stack)
        if c.head in VOCABULARY_HEADS:
            self.head = VocabularyHead(c)
        elif c.head == "classification":
            self.head = self._text_head(c.num_labels)
        elif c.head == "multiple_choice":
            self.head = self._text_head(1)
        elif c.head == "token_classification":
            self.head = self._token_head(c.num_labels)
        elif c.head == "question_answering" and isinstance(c, BigBirdConfig):
            self.head = BigBirdAnswerHead(c)
        elif c.head == "question_answering":
            self.head = self._token_head(SPAN_OUTPUTS)
        elif c.head == "pooler":
            self.head = Pooler(c)
        elif c.head == "extraction":
            self.head = ExtractionHead(c.encoder_stack, c.extraction_heads, c.sentence_positions)

    def _text_head(self, outputs: int) -> TextHead:
        c = self.config
        return TextHead(
            c.hidden_size,
            outputs,
            c.initializer_range,
            activation=c.head_activation,
            input_dropout=c.head_input_dropout,
            dropout=c.head_dropout,
            dtype=c.compute_dtype,
        )

    def _token_head(self, outputs: int) -> TokenHead:
        c = self.config
        return TokenHead(
            c.hidden_size, outputs, c.initializer_range, c.head_dropout, c.compute_dtype
        )

    def _table(self, name: str, rows: int, axis: str) -> Float[Array, "rows embedding_size"]:
        """Makes an embedding table; to be called in ``setup``."""
        init = logical(normal(self.config.initializer_range), axis, "embed")
        return self.param(name, init, (rows, self.config.embedding_size))

    def __call__(
        self,
        input_ids: Int[AnyArray, "*leading length"],
        attention_mask: Shaped[AnyArray, "*leading length"],
        deterministic: bool = True,
        token_type_ids: Int[AnyArray, "*leading length"] | None = None,
        **inputs: Any,
    ) -> Float[Array, "..."]:
        """Returns the output that ``head`` selects.

        Logits float32 [batch, length, vocab], [batch, length, num_labels] or [batch, num_labels];
        those of answers [batch, length, 2], starts first; or states [batch, length, d_model]. With
        "multiple_choice" inputs are [batch, choices, length], and the output is a score of every
        choice, float32 [batch, choices] (of inputs [batch, length] a score of each). With
        "extraction" ids and mask are [batch, sentences, length] (or [batch, length], one sentence
        each), and the output is scores float32 [batch, sentences].
        """
        head = self.config.head
        if head == "multiple_choice":
            return self._score_choices(
                input_ids, attention_mask, deterministic, token_type_ids, **inputs
            )
        if head == "extraction":
            vectors, mask = self.encode_sentences(input_ids, attention_mask, deterministic)
            return self.score_sentences(vectors, mask, deterministic)
        if head == "question_answering" and isinstance(self.config, BigBirdConfig):
            return self._answer_behind_question(
                input_ids, attention_mask, deterministic, token_type_ids, **inputs
            )
        states = self.encode(input_ids, attention_mask, deterministic, token_type_ids, **inputs)
        if head in VOCABULARY_HEADS:
            return self.head(states, self.word_embeddings)
        if head == "classification":
            return self.head(states[:, 0], deterministic)
        if head in TOKEN_HEADS:
            return self.head(states, deterministic)
        if self.is_initializing() and head == "pooler":
            self.head(states)
        return states

    def score_targets(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        labels: Int[AnyArray, "batch length"],
        deterministic: bool = True,
        **inputs: Any,
    ) -> TokenScores:
        """Returns losses and guesses of the tokens that a head over the vocabulary predicts.

        Args:
            labels: the tokens; IGNORED_LABEL is left out.
            **inputs: as for ``encode``.
        """
        states = self.encode(input_ids, attention_mask, deterministic, **inputs)

        def logits(model: Bert, x: AnyArray) -> Array:
            return model.head(x, model.word_embeddings)

        return score_labels(self, logits, states, labels)

    def _score_choices(
        self,
        input_ids: Int[AnyArray, "*leading length"],
        attention_mask: Shaped[AnyArray, "*leading length"],
        deterministic: bool,
        token_type_ids: Int[AnyArray, "*leading length"] | None,
        **inputs: Any,
    ) -> Float[Array, "*leading"]:
        """Encodes every choice by itself, and returns a score of each."""
        length = input_ids.shape[-1]
        ids, mask = input_ids.reshape(-1, length), attention_mask.reshape(-1, length)
        types = None if token_type_ids is None else token_type_ids.reshape(-1, length)
        states = self.encode(ids, mask, deterministic, types, **inputs)
        return self.head(states[:, 0], deterministic).reshape(input_ids.shape[:-1])

    def _answer_behind_question(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool,
        token_type_ids: Int[AnyArray, "batch length"] | None,
        **inputs: Any,
    ) -> Float[Array, "batch length 2"]:
        """Returns logits of answers, none in the question but at the first token, as BigBird's.

        By default the tokens behind the question are of type 1.
        """
        places = jnp.arange(input_ids.shape[1])
        question_end = first_place(input_ids == self.config.sep_token_id, default=0)
        in_question = places <= question_end[:, None]
        if token_type_ids is None:
            token_type_ids = jnp.where(in_question, 0, 1)
        states = self.encode(input_ids, attention_mask, deterministic, token_type_ids, **inputs)
        is_refused = in_question & (places > 0)
        return self.head(states, deterministic) - _REFUSED * is_refused[..., None]

    def encode_sentences(
        self,
        input_ids: Int[AnyArray, "*leading length"],
        attention_mask: Shaped[AnyArray, "*leading length"],
        deterministic: bool = True,
    ) -> tuple[Float[Array, "batch sentences d_model"], Bool[Array, "batch sentences"]]:
        """Returns the mean state of every sentence, and the mask of those that have a token.

        Args:
            input_ids, attention_mask: [batch, sentences, length], or [batch, length] for one
                sentence each.
        """
        ids, mask = input_ids, jnp.asarray(attention_mask).astype(bool)
        if ids.ndim == 2:
            ids, mask = ids[:, None], mask[:, None]

        def encode(bert: Bert, ids: AnyArray, mask: AnyArray) -> Array:
            batch, sentences, length = ids.shape
            ids, mask = ids.reshape(-1, length), mask.reshape(-1, length)
            vectors = mean_state(bert.encode(ids, mask, deterministic), mask)
            return vectors.reshape(batch, sentences, -1)

        chunk = self.config.sentence_chunk
        encode = nn.remat(encode) if chunk and not self.is_initializing() else encode
        return map_over_length(self, encode, chunk, ids, mask), mask.any(-1)

    def score_sentences(
        self,
        vectors: Float[AnyArray, "batch sentences d_model"],
        mask: Bool[AnyArray, "batch sentences"],
        deterministic: bool = True,
    ) -> Float[Array, "batch sentences"]:
        """Returns a float32 score of every sentence, with head "extraction"."""
        return self.head(vectors, mask, deterministic)

    def pool(
        self, states: Float[AnyArray, "batch length d_model"]
    ) -> Float[Array, "batch d_model"]:
        """Returns the output of the head "pooler"."""
        return self.head(states)

    def encode(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool = True,
        token_type_ids: Int[AnyArray, "batch length"] | None = None,
        **inputs: Any,
    ) -> Float[Array, "batch length d_model"]:
        """Returns the encoder's states; ``token_type_ids`` are zeros by default.

        Args:
            **inputs: keyword arguments of ``layers.encoder.Encoder.with_memory``.
        """
        mask = jnp.asarray(attention_mask).astype(bool)
        if "global_indices" in get_encoder_attention(self.config).inputs:
            inputs.setdefault("global_indices", self._global_indices(input_ids))
        x = constrain(self.embed(input_ids, token_type_ids), "batch", "length", "act_embed")
        return self.encoder(x, mask, deterministic, embedding_norm=self.embedding_norm, **inputs)

    def _global_indices(
        self, ids: Int[AnyArray, "batch length"]
    ) -> Int[Array, "batch num_globals"]:
        """Returns the positions of the tokens that are global by default, -1 for none."""
        c, (rows, length) = self.config, ids.shape
        if c.global_tokens in ("none", "first"):
            place = NO_TOKEN if c.global_tokens == "none" else 0
            return jnp.full((rows, 1), place, jnp.int32)
        is_question = c.global_tokens == "question"
        found = first_place(ids == c.sep_token_id, default=0 if is_question else length)
        first, stop = (0, found) if is_question else (found + 2, length)
        first, stop = (jnp.reshape(x, (-1, 1)) for x in (first, stop))
        places = first + jnp.arange(min(c.max_global_tokens, length))
        return jnp.where(places < stop, places, NO_TOKEN)

    def embed(
        self,
        ids: Int[AnyArray, "batch length"],
        token_type_ids: Int[AnyArray, "batch length"] | None,
    ) -> Float[Array, "batch length embedding_size"]:
        """Returns the normalized sum of word, position and token type embeddings."""
        c = self.config
        scale = math.sqrt(c.hidden_size) if c.scale_embedding else 1.0
        x = jnp.take(self.word_embeddings, ids, axis=0) * scale
        # Padding may lie beyond the table, and is masked: any row will do.
        x = x + jnp.take(self.position_embeddings, self._positions(ids), axis=0, mode="clip")
        if c.has_token_types:
            types = jnp.zeros_like(ids) if token_type_ids is None else token_type_ids
            x = x + jnp.take(self.token_type_embeddings, types, axis=0)
        return self.embedding_norm(x)

    def _positions(self, ids: Int[AnyArray, "batch length"]) -> Int[Array, "..."]:
        """Returns the row of the position table for every token, [length] or [batch, length]."""
        if not self.config.position_offset:
            return jnp.arange(ids.shape[1])
        # RoBERTa counts the tokens that are no padding; padding has a row of its own.
        mask = ids != self.config.pad_token_id
        return jnp.cumsum(mask, axis=1) * mask + self.config.pad_token_id


def first_place(found: Bool[AnyArray, "batch length"], *, default: int) -> Int[Array, " batch"]:
    """Returns the first True place of every row, ``default`` in rows without one."""
    return jnp.where(found.any(-1), found.argmax(-1), default)


def infer_from_weights(config: BertConfig, tensors: Mapping[str, Any]) -> BertConfig:
    """Returns the config with head "pooler" if a bare model's state dict holds a pooler."""
    pooler = _of_class(_POOLER_KEYS, config) + ".weight"
    if config.head != "none" or not any(key.endswith(pooler) for key in tensors):
        return config
    return dataclasses.replace(config, head="pooler")


class _LayerKeys(NamedTuple):
    """Keys of one layer in state dicts; ``maps`` are those of q, k, v and o below ``attention``."""

    attention: str
    maps: Mapping[str, str]
    self_norm: str
    feed_forward: tuple[str, str]
    ff_norm: str


def _layer_keys(config: BertConfig) -> _LayerKeys:
    if isinstance(config, DistilBertConfig):
        key = f"{config.prefix}.transformer.layer.{{i}}"
        return _LayerKeys(
            attention=f"{key}.attention",
            maps={"q": "q_lin", "k": "k_lin", "v": "v_lin", "o": "out_lin"},
            self_norm=f"{key}.sa_layer_norm",
            feed_forward=(f"{key}.ffn.lin1", f"{key}.ffn.lin2"),
            ff_norm=f"{key}.output_layer_norm",
        )
    if isinstance(config, AlbertConfig):
        key = f"{config.prefix}.encoder.albert_layer_groups.0.albert_layers.0"
        return _LayerKeys(
            attention=f"{key}.attention",
            maps={"q": "query", "k": "key", "v": "value", "o": "dense"},
            self_norm=f"{key}.attention.LayerNorm",
            feed_forward=(f"{key}.ffn", f"{key}.ffn_output"),
            ff_norm=f"{key}.full_layer_layer_norm",
        )
    key = f"{config.prefix}.encoder.layer.{{i}}"
    return _LayerKeys(
        attention=f"{key}.attention",
        maps={"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"},
        self_norm=f"{key}.attention.output.LayerNorm",
        feed_forward=(f"{key}.intermediate.dense", f"{key}.output.dense"),
        ff_norm=f"{key}.output.LayerNorm",
    )


def _global_rows(path: str, keys: _LayerKeys) -> list[WeightRow]:
    """Returns the rows of Longformer's maps of global tokens."""
    rows = []
    for name in "qkv":
        map_key = f"{keys.attention}.{keys.maps[name]}_global"
        rows += linear(f"{path}/self_attention/{name}_global", map_key, bias=True)
    return rows


def _layer_rows(config: BertConfig) -> list[WeightRow]:
    """Returns the rows of the encoder's layers."""
    path = f"encoder/{SHARED if config.shares_layers else 'layers'}"
    keys = _layer_keys(config)
    rows = layer_norm(f"{path}/self_norm", keys.self_norm)
    rows += layer_norm(f"{path}/ff_norm", keys.ff_norm)
    for name, torch_name in keys.maps.items():
        map_path, map_key = f"{path}/self_attention/{name}", f"{keys.attention}.{torch_name}"
        rows += linear(map_path, map_key, inputs=2 if name == "o" else 1, bias=True)
    if config.encoder_attention == "longformer":
        rows += _global_rows(path, keys)
    inner, outer = keys.feed_forward
    rows += linear(f"{path}/feed_forward/wi", inner, bias=True)
    rows += linear(f"{path}/feed_forward/wo", outer, bias=True)
    return rows


def _embedding_rows(config: BertConfig) -> list[WeightRow]:
    """Returns the rows of the embedding tables and their norm."""
    key = f"{config.prefix}.embeddings"
    rows = []
    if config.encoder_attention == "lsg":
        rows.append(WeightRow(GLOBALS, f"{key}.global_embeddings.weight"))
    names = ["word_embeddings", "position_embeddings"]
    if config.has_token_types:
        names.append("token_type_embeddings")
    rows += [WeightRow(name, f"{key}.{name}.weight") for name in names]
    if config.maps_embeddings:
        map_key = f"{config.prefix}.{_of_class(_EMBEDDING_MAP_KEYS, config)}"
        rows += linear("encoder/embedding_map", map_key, bias=True)
    return rows + layer_norm("embedding_norm", f"{key}.LayerNorm")


_EMBEDDING_MAP_KEYS = {
    ElectraConfig: "embeddings_project",
    AlbertConfig: "encoder.embedding_hidden_mapping_in",
}
_POOLER_KEYS = {BertConfig: "pooler.dense", AlbertConfig: "pooler", BigBirdConfig: "pooler"}
# Config class -> keys of the head over the vocabulary: dense, norm, bias.
_VOCABULARY_KEYS = {
    BertConfig: (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    RobertaConfig: ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    DistilBertConfig: ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ElectraConfig: (
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
    ),
    AlbertConfig: ("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
}
# Config class -> keys of the hidden layer and of the last map of heads over a text's first state.
_TEXT_HEAD_KEYS = {
    BertConfig: ("bert.pooler.dense", "classifier"),
    RobertaConfig: ("classifier.dense", "classifier.out_proj"),
    DistilBertConfig: ("pre_classifier", "classifier"),
    ElectraConfig: ("classifier.dense", "classifier.out_proj"),
    AlbertConfig: ("albert.pooler", "classifier"),
    BigBirdConfig: ("classifier.dense", "classifier.out_proj"),
}
_CHOICE_KEYS = _TEXT_HEAD_KEYS | {
    RobertaConfig: ("roberta.pooler.dense", "classifier"),
    LongformerConfig: ("longformer.pooler.dense", "classifier"),
    ElectraConfig: ("sequence_summary.summary", "classifier"),
    BigBirdConfig: ("bert.pooler", "classifier"),
}
_BIG_BIRD_ANSWERS = "qa_classifier"
# Tied copies that files may hold, of the bias and of the embeddings.
_DECODERS = {
    BertConfig: "cls.predictions.decoder",
    RobertaConfig: "lm_head.decoder",
    DistilBertConfig: "vocab_projector",
    ElectraConfig: "generator_lm_head",
    AlbertConfig: "predictions.decoder",
}


def _of_class(table: Mapping[type[BertConfig], Any], config: BertConfig) -> Any:
    """Returns the entry of a config's class, or of the nearest class that it derives from."""
    return next(
        table[config_class] for config_class in type(config).__mro__ if config_class in table
    )


def _head_rows(config: BertConfig) -> list[WeightRow]:
    """Returns the rows of the head."""
    if config.head in VOCABULARY_HEADS:
        dense, norm, bias = _of_class(_VOCABULARY_KEYS, config)
        rows = linear("head/dense", dense, bias=True)
        rows += layer_norm("head/norm", norm)
        return [*rows, WeightRow("head/bias", bias)]
    if config.head in ("classification", "multiple_choice"):
        keys = _CHOICE_KEYS if config.head == "multiple_choice" else _TEXT_HEAD_KEYS
        dense, out = _of_class(keys, config)
        return linear("head/dense", dense, bias=True) + linear("head/out", out, bias=True)
    if config.head == "question_answering" and isinstance(config, BigBirdConfig):
        rows = linear("head/feed_forward/wi", f"{_BIG_BIRD_ANSWERS}.intermediate.dense", bias=True)
        rows += linear("head/feed_forward/wo", f"{_BIG_BIRD_ANSWERS}.output.dense", bias=True)
        rows += layer_norm("head/norm", f"{_BIG_BIRD_ANSWERS}.output.LayerNorm")
        return rows + linear("head/out", f"{_BIG_BIRD_ANSWERS}.qa_outputs", bias=True)
    if config.head in ("token_classification", "question_answering"):
        key = "qa_outputs" if config.head == "question_answering" else "classifier"
        return linear("head/out", key, bias=True)
    if config.head == "pooler":
        key = f"{config.prefix}.{_of_class(_POOLER_KEYS, config)}"
        return linear("head/dense", key, bias=True)
    return []


def _tied_keys(config: BertConfig) -> dict[str, str]:
    """Returns the keys of tied copies in files with a head over the vocabulary."""
    if config.head not in VOCABULARY_HEADS:
        return {}
    copy, bias = _of_class(_DECODERS, config), _of_class(_VOCABULARY_KEYS, config)[2]
    tied = {f"{copy}.weight": f"{config.prefix}.embeddings.word_embeddings.weight"}
    if f"{copy}.bias" != bias:
        tied[f"{copy}.bias"] = bias
    return tied


# Heads that files may hold beside the one in use: of next sentences, of the order of sentences, and
# of replaced tokens; and, in files read as bare models, those over the vocabulary.
_UNUSED_HEADS = (r"^cls\.seq_relationship\.", r"^sop_classifier\.", r"^discriminator_predictions\.")
_VOCABULARY_HEADS = (
    r"^cls\.",
    r"^lm_head\.",
    r"^vocab_(transform|layer_norm|projector)\.",
    r"^generator_(predictions|lm_head)\.",
    r"^predictions\.",
)


def weight_map(config: BertConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    prefix = f"{config.prefix}."
    rows = [*_embedding_rows(config), *_layer_rows(config), *_head_rows(config)]
    # Files of a model that was trained with several heads hold the others too; the pooler is the
    # first map of the classifier here.
    ignored = [r"embeddings\.position_ids$", *_UNUSED_HEADS]
    if not any("pooler" in row.key for row in rows):
        ignored.append(r"(^|\.)pooler\.")
    aliases = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
    if config.head not in ("none", "pooler"):
        tied = _tied_keys(config)
        return WeightMap(rows, tied, tuple(ignored), prefix=prefix, aliases=aliases)
    ignored += _VOCABULARY_HEADS
    # Bare models are written without the prefix.
    rows = [row._replace(key=row.key.removeprefix(prefix)) for row in rows]
    return WeightMap(rows, ignored=tuple(ignored), aliases=(*aliases, (rf"^{prefix}", "")))


def _family(
    name: str,
    config_class: type[BertConfig],
    attentions: tuple[str, ...] = ("full", "lsg"),
    **tiny: Any,
) -> Family:
    """Returns a family of this config; ``tiny`` as in ``presets``."""
    return Family(
        name=name,
        architecture=f"{config_class.class_name}ForMaskedLM",
        config_class=config_class,
        module_class=Bert,
        presets=presets(config_class, **tiny),
        runtime_fields=RUNTIME_FIELDS,
        read_config=partial(read_config, config_class=config_class),
        write_config=write_config,
        published_weight_map=weight_map,
        infer_from_weights=infer_from_weights,
        is_encoder_decoder=False,
        attentions=attentions,
    )


FAMILIES = (
    _family("bert", BertConfig),
    _family("roberta", RobertaConfig),
    _family("xlm-roberta", XlmRobertaConfig),
    _family("camembert", CamembertConfig),
    _family("distilbert", DistilBertConfig),
    _family("electra", ElectraConfig),
    _family("albert", AlbertConfig),
    _family(
        "longformer",
        LongformerConfig,
        ("longformer",),
        attention_window=(32,),
        max_position_embeddings=1026,
    ),
    _family(
        "big_bird",
        BigBirdConfig,
        ("bigbird", "full"),
        block_size=16,
        max_position_embeddings=1024,
    ),
)
