"""Reads and writes config.json of BERT and related models."""

from collections.abc import Mapping
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.models.bert_config import (
    AlbertConfig,
    BertConfig,
    BigBirdConfig,
    DistilBertConfig,
    ElectraConfig,
    Head,
    LongformerConfig,
)
from longsum_jax.models.flat_config import (
    read_bigbird_attention,
    read_fields,
    read_windows,
    write_bigbird_attention,
    write_windows,
)
from longsum_jax.models.heads import head_of, read_labels, write_labels
from longsum_jax.models.lsg_layout import plain_architecture

# Config fields without an entry in config.json: how to compute, and the head,
# which is given by the class in "architectures".
RUNTIME_FIELDS = (
    "dtype",
    "matmul_precision",
    "remat",
    "length_chunk",
    "sentence_chunk",
    "head",
)

# Config class to field name to key in config.json, if they differ.
_JSON_NAMES: Mapping[type[BertConfig], Mapping[str, str]] = {
    DistilBertConfig: {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    AlbertConfig: {"classifier_dropout": "classifier_dropout_prob"},
}

# Suffix of class names in ``architectures`` to head.
HEAD_SUFFIXES: dict[str, Head] = {
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "masked_lm",
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "question_answering",
    "ForMultipleChoice": "multiple_choice",
    "ForSentenceExtraction": "extraction",
    "Model": "none",
}

# Supported values of transformers' options, for all encoders and for ELECTRA's
# choices.
_PLAIN = {
    "position_embedding_type": "absolute",
    "add_cross_attention": False,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "use_bias": True,
}
_ELECTRA_CHOICE = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "gelu",
}


def read_config(
    raw: Mapping[str, Any], config_class: type[BertConfig]
) -> dict[str, Any]:
    """Returns the fields of ``config_class`` in a config.json.

    Raises:
        InputError: the file describes a model with a different structure or
            head.
    """
    values = read_fields(
        raw, config_class, RUNTIME_FIELDS, _JSON_NAMES.get(config_class)
    )
    if "attention_window" in values:
        values["attention_window"] = read_windows(values["attention_window"])
    if config_class is BigBirdConfig and "encoder_attention" not in values:
        values["encoder_attention"] = read_bigbird_attention(raw)
    check_structure(raw, _PLAIN)
    if config_class is ElectraConfig and _is_discriminator(raw):
        return values | {"head": "none"}
    head = head_of(raw, HEAD_SUFFIXES, "Model")
    if config_class is ElectraConfig and head == "multiple_choice":
        check_structure(raw, _ELECTRA_CHOICE)
    return values | read_labels(raw) | {"head": head}


def _is_discriminator(raw: Mapping[str, Any]) -> bool:
    """Returns True for an ELECTRA with the head that detects replaced tokens."""
    return "ElectraForPreTraining" in _architectures(raw)


def _architectures(raw: Mapping[str, Any]) -> list[str]:
    """Returns the class names of a config.json, without the prefix "LSG"."""
    return [plain_architecture(name) for name in raw.get("architectures") or ()]


def check_structure(raw: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    """Raises an InputError for options of transformers other than the supported ones."""
    for key, value in plain.items():
        if raw.get(key) not in (value, None):
            raise InputError(
                f"{key} is {raw[key]!r}; only {value!r} is supported"
            )


def write_config(config: BertConfig) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields with different names or formats."""
    values = shared_entries(config)
    values["is_decoder"] = config.is_decoder or None
    if isinstance(config, AlbertConfig):
        values |= {"num_hidden_groups": 1, "inner_group_num": 1}
    if isinstance(config, LongformerConfig):
        values["attention_window"] = write_windows(
            config, config.num_hidden_layers
        )
    if isinstance(config, BigBirdConfig):
        values |= {
            "attention_type": write_bigbird_attention(config.encoder_attention),
            "use_bias": True,
        }
    for name, key in _JSON_NAMES.get(type(config), {}).items():
        values |= {name: None, key: getattr(config, name)}
    if not config.has_token_types:
        values["type_vocab_size"] = None
    if isinstance(config, DistilBertConfig):
        values["layer_norm_eps"] = None
    return values


def shared_entries(config: BertConfig) -> dict[str, Any]:
    """Returns the entries of config.json that every encoder writes in the same way.

    They name the class and the labels, and leave out the options of the
    extraction head if there is none.
    """
    values: dict[str, Any] = {
        "architectures": [architecture(config)],
        "tie_word_embeddings": True,
        "is_encoder_decoder": False,
        **write_labels(config),
    }
    if config.head != "extraction":
        fields = (
            "extraction_heads",
            "sentence_positions",
            "max_sentence_length",
        )
        values |= dict.fromkeys(fields)
    return values


def architecture(config: BertConfig) -> str:
    """Returns the name of the class in transformers."""
    if type(config) is BertConfig and config.head == "causal_lm":
        return "BertLMHeadModel"
    # The first suffix of a head wins, so later ones are inserted before it.
    suffixes = {
        head: suffix for suffix, head in reversed(HEAD_SUFFIXES.items())
    }
    return config.class_name + suffixes.get(config.head, "Model")
