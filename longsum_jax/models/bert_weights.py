"""Names of the parameters of BERT and related models in state dicts of transformers."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from longsum_jax.layers.layer_groups import SHARED
from longsum_jax.models.bert_config import (
    VOCABULARY_HEADS,
    AlbertConfig,
    BertConfig,
    BigBirdConfig,
    DistilBertConfig,
    ElectraConfig,
    LongformerConfig,
    MpnetConfig,
    RobertaConfig,
)
from longsum_jax.models.lsg_layout import GLOBALS
from longsum_jax.models.weight_map import (
    WeightMap,
    WeightRow,
    layer_norm,
    linear,
)

_EMBEDDING_PROJECTION_KEYS = {
    ElectraConfig: "embeddings_project",
    AlbertConfig: "encoder.embedding_hidden_mapping_in",
}
_POOLER_KEYS = {
    BertConfig: "pooler.dense",
    AlbertConfig: "pooler",
    BigBirdConfig: "pooler",
}
# Config class to keys of the vocabulary head: dense, norm, bias.
_VOCABULARY_KEYS = {
    BertConfig: (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    RobertaConfig: ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    DistilBertConfig: (
        "vocab_transform",
        "vocab_layer_norm",
        "vocab_projector.bias",
    ),
    ElectraConfig: (
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
    ),
    AlbertConfig: (
        "predictions.dense",
        "predictions.LayerNorm",
        "predictions.bias",
    ),
}
# Config class to keys of the hidden and the last layer of heads over the first
# state of a text.
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
    MpnetConfig: ("mpnet.pooler.dense", "classifier"),
    LongformerConfig: ("longformer.pooler.dense", "classifier"),
    ElectraConfig: ("sequence_summary.summary", "classifier"),
    BigBirdConfig: ("bert.pooler", "classifier"),
}
_BIG_BIRD_ANSWERS = "qa_classifier"
# Tied copies of the bias and the embeddings that files may contain.
_DECODERS = {
    BertConfig: "cls.predictions.decoder",
    RobertaConfig: "lm_head.decoder",
    DistilBertConfig: "vocab_projector",
    ElectraConfig: "generator_lm_head",
    AlbertConfig: "predictions.decoder",
}
# Unused heads that files may also contain: for next sentences, the order of
# sentences, and replaced tokens; and, in files read as plain models, heads over
# the vocabulary and over labels.
_UNUSED_HEADS = (
    r"^cls\.seq_relationship\.",
    r"^sop_classifier\.",
    r"^discriminator_predictions\.",
)
_HEADS = (
    r"^cls\.",
    r"^lm_head\.",
    r"^vocab_(transform|layer_norm|projector)\.",
    r"^generator_(predictions|lm_head)\.",
    r"^predictions\.",
    r"^(pre_)?classifier\.",
    r"^(qa_outputs|qa_classifier|sequence_summary)\.",
)


def weight_map(config: BertConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    prefix = f"{config.prefix}."
    rows = [*_embedding_rows(config), *_layer_rows(config), *_head_rows(config)]
    # Files of a model trained with several heads also contain the other heads;
    # the pooler is the first layer of the classifier here.
    ignored = [r"embeddings\.position_ids$", *_UNUSED_HEADS]
    if not any("pooler" in row.key for row in rows):
        ignored.append(r"(^|\.)pooler\.")
    aliases = (
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
    )
    if config.head not in ("none", "pooler"):
        tied = _tied_keys(config)
        return WeightMap(
            rows, tied, tuple(ignored), prefix=prefix, aliases=aliases
        )
    ignored += _HEADS
    # Plain models are written without the prefix.
    rows = [row._replace(key=row.key.removeprefix(prefix)) for row in rows]
    return WeightMap(
        rows, ignored=tuple(ignored), aliases=(*aliases, (rf"^{prefix}", ""))
    )


def infer_from_weights(
    config: BertConfig, tensors: Mapping[str, Any]
) -> BertConfig:
    """Returns the config with head "pooler" if a plain model's state dict contains a pooler."""
    pooler = _of_class(_POOLER_KEYS, config) + ".weight"
    if config.head != "none" or not any(
        key.endswith(pooler) for key in tensors
    ):
        return config
    return dataclasses.replace(config, head="pooler")


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
    if config.projects_embeddings:
        map_key = (
            f"{config.prefix}.{_of_class(_EMBEDDING_PROJECTION_KEYS, config)}"
        )
        rows += linear("encoder/embedding_map", map_key, bias=True)
    return rows + layer_norm("embedding_norm", f"{key}.LayerNorm")


def _layer_rows(config: BertConfig) -> list[WeightRow]:
    """Returns the rows of the encoder's layers."""
    path = f"encoder/{SHARED if config.shares_layers else 'layers'}"
    keys = _layer_keys(config)
    rows = layer_norm(f"{path}/self_norm", keys.self_norm)
    rows += layer_norm(f"{path}/ff_norm", keys.ff_norm)
    for name, torch_name in keys.projections.items():
        map_path, map_key = (
            f"{path}/self_attention/{name}",
            f"{keys.attention}.{torch_name}",
        )
        rows += linear(
            map_path, map_key, inputs=2 if name == "o" else 1, bias=True
        )
    if config.encoder_attention == "longformer":
        rows += _global_rows(path, keys)
    inner, outer = keys.feed_forward
    rows += linear(f"{path}/feed_forward/wi", inner, bias=True)
    rows += linear(f"{path}/feed_forward/wo", outer, bias=True)
    if isinstance(config, MpnetConfig):
        bias = f"{config.prefix}.encoder.relative_attention_bias.weight"
        rows.append(
            WeightRow("encoder/relative_attention_bias/embedding", bias)
        )
    return rows


class _LayerKeys(NamedTuple):
    """Keys of one layer in state dicts; ``projections`` are the keys of q, k, v and o
    below ``attention``.
    """

    attention: str
    projections: Mapping[str, str]
    self_norm: str
    feed_forward: tuple[str, str]
    ff_norm: str


def _layer_keys(config: BertConfig) -> _LayerKeys:
    if isinstance(config, DistilBertConfig):
        key = f"{config.prefix}.transformer.layer.{{i}}"
        return _LayerKeys(
            attention=f"{key}.attention",
            projections={
                "q": "q_lin",
                "k": "k_lin",
                "v": "v_lin",
                "o": "out_lin",
            },
            self_norm=f"{key}.sa_layer_norm",
            feed_forward=(f"{key}.ffn.lin1", f"{key}.ffn.lin2"),
            ff_norm=f"{key}.output_layer_norm",
        )
    if isinstance(config, AlbertConfig):
        key = f"{config.prefix}.encoder.albert_layer_groups.0.albert_layers.0"
        return _LayerKeys(
            attention=f"{key}.attention",
            projections={"q": "query", "k": "key", "v": "value", "o": "dense"},
            self_norm=f"{key}.attention.LayerNorm",
            feed_forward=(f"{key}.ffn", f"{key}.ffn_output"),
            ff_norm=f"{key}.full_layer_layer_norm",
        )
    key = f"{config.prefix}.encoder.layer.{{i}}"
    if isinstance(config, MpnetConfig):
        return _LayerKeys(
            attention=f"{key}.attention.attn",
            projections={name: name for name in "qkvo"},
            self_norm=f"{key}.attention.LayerNorm",
            feed_forward=(f"{key}.intermediate.dense", f"{key}.output.dense"),
            ff_norm=f"{key}.output.LayerNorm",
        )
    return _LayerKeys(
        attention=f"{key}.attention",
        projections={
            "q": "self.query",
            "k": "self.key",
            "v": "self.value",
            "o": "output.dense",
        },
        self_norm=f"{key}.attention.output.LayerNorm",
        feed_forward=(f"{key}.intermediate.dense", f"{key}.output.dense"),
        ff_norm=f"{key}.output.LayerNorm",
    )


def _global_rows(path: str, keys: _LayerKeys) -> list[WeightRow]:
    """Returns the rows of Longformer's projections of global tokens."""
    rows = []
    for name in "qkv":
        map_key = f"{keys.attention}.{keys.projections[name]}_global"
        rows += linear(
            f"{path}/self_attention/{name}_global", map_key, bias=True
        )
    return rows


def _head_rows(config: BertConfig) -> list[WeightRow]:
    """Returns the rows of the head."""
    if config.head in VOCABULARY_HEADS:
        dense, norm, bias = _of_class(_VOCABULARY_KEYS, config)
        rows = linear("head/dense", dense, bias=True)
        rows += layer_norm("head/norm", norm)
        return [*rows, WeightRow("head/bias", bias)]
    if config.head in ("classification", "multiple_choice"):
        if config.head == "multiple_choice":
            keys = _CHOICE_KEYS
        else:
            keys = _TEXT_HEAD_KEYS
        dense, out = _of_class(keys, config)
        return linear("head/dense", dense, bias=True) + linear(
            "head/out", out, bias=True
        )
    if config.head == "question_answering" and isinstance(
        config, BigBirdConfig
    ):
        rows = linear(
            "head/feed_forward/wi",
            f"{_BIG_BIRD_ANSWERS}.intermediate.dense",
            bias=True,
        )
        rows += linear(
            "head/feed_forward/wo",
            f"{_BIG_BIRD_ANSWERS}.output.dense",
            bias=True,
        )
        rows += layer_norm("head/norm", f"{_BIG_BIRD_ANSWERS}.output.LayerNorm")
        return rows + linear(
            "head/out", f"{_BIG_BIRD_ANSWERS}.qa_outputs", bias=True
        )
    if config.head in ("token_classification", "question_answering"):
        if config.head == "question_answering":
            key = "qa_outputs"
        else:
            key = "classifier"
        return linear("head/out", key, bias=True)
    if config.head == "pooler":
        key = f"{config.prefix}.{_of_class(_POOLER_KEYS, config)}"
        return linear("head/dense", key, bias=True)
    return []


def _tied_keys(config: BertConfig) -> dict[str, str]:
    """Returns the keys of tied copies in files with a vocabulary head."""
    if config.head not in VOCABULARY_HEADS:
        return {}
    copy, bias = (
        _of_class(_DECODERS, config),
        _of_class(_VOCABULARY_KEYS, config)[2],
    )
    tied = {
        f"{copy}.weight": f"{config.prefix}.embeddings.word_embeddings.weight"
    }
    if f"{copy}.bias" != bias:
        tied[f"{copy}.bias"] = bias
    return tied


def _of_class(table: Mapping[type[BertConfig], Any], config: BertConfig) -> Any:
    """Returns the entry of a config's class, or of its nearest base class."""
    return next(
        table[config_class]
        for config_class in type(config).__mro__
        if config_class in table
    )
