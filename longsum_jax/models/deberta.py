"""DeBERTaV3 (He et al. 2023): an encoder with disentangled attention.

Reproduces transformers' outputs for the published checkpoints of model_type
"deberta-v2" in which contents and positions share projections, as in all of
version 3. The most popular ones compare two texts, for example a document and a
statement about it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.layers.dense import ACTIVATIONS, LayerNorm
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.partitioning import look_up
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
    check_structure,
    shared_entries,
)
from longsum_jax.models.config import check_known
from longsum_jax.models.family import Family
from longsum_jax.models.flat_config import read_fields
from longsum_jax.models.heads import head_of, read_labels
from longsum_jax.models.weight_map import (
    WeightMap,
    WeightRow,
    layer_norm,
    linear,
)
from longsum_jax.schema import Length, Positive, PositiveFloat, Rate, shortened
from longsum_jax.typing import AnyArray

# Products in a score: content to content, content to position, position to
# content.
_NUM_PRODUCTS = 3
_JSON_NAMES = {"classifier_dropout": "cls_dropout"}
# Option of transformers -> supported value, and default in transformers.
_STRUCTURE: Mapping[str, tuple[Any, Any]] = {
    "relative_attention": (True, False),
    "share_att_key": (True, False),
    "norm_rel_ebd": ("layer_norm", "none"),
    "position_biased_input": (False, True),
    "conv_kernel_size": (0, 0),
    "type_vocab_size": (0, 0),
}
_POSITION_PRODUCTS = {"c2p", "p2c"}


@dataclass(frozen=True, kw_only=True)
class DebertaConfig(BertConfig):
    """The config of DeBERTaV3; defaults of DeBERTaV3 base.

    ``position_buckets`` and ``max_relative_positions`` are options of
    "disentangled" attention, which contains the only positions of the model, so
    that no other attention can replace it.

    Attributes:
        pooler_dropout: dropout rate before the hidden layer of a head that
            reads the first state of a text.
        pooler_hidden_act: activation function of that hidden layer.
    """

    prefix: ClassVar[str] = "deberta"
    class_name: ClassVar[str] = "DebertaV2"
    has_token_types: ClassVar[bool] = False
    heads: ClassVar[tuple[str, ...]] = tuple(
        head for head in BIDIRECTIONAL_HEADS if head != "pooler"
    )
    absent: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 128100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
    }

    encoder_attention: str = "disentangled"
    vocab_size: Positive = 128100
    layer_norm_eps: PositiveFloat = 1e-7
    max_position_embeddings: Length = 512
    pooler_dropout: Rate = 0.0
    pooler_hidden_act: str = "gelu"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known(self, "pooler_hidden_act", ACTIVATIONS)
        if self.encoder_attention != "disentangled":
            raise InputError(
                f'encoder_attention is "{self.encoder_attention}", but DeBERTa has positions only '
                "in disentangled attention; leave it out"
            )

    @property
    def head_activation(self) -> str:
        """See ``BertConfig``."""
        return self.pooler_hidden_act

    @property
    def head_input_dropout(self) -> float:
        """See ``BertConfig``."""
        return self.pooler_dropout

    @property
    def dropout_rate(self) -> float:
        """See ``BertConfig``."""
        return max(super().dropout_rate, self.pooler_dropout)

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
        d_kv = self.hidden_size // self.num_attention_heads
        return dataclasses.replace(
            super().encoder_stack,
            attention_scale=(_NUM_PRODUCTS * d_kv) ** -0.5,
        )


class Deberta(Bert):
    """DeBERTaV3; see ``Bert`` for the methods."""

    config: DebertaConfig

    def setup(self) -> None:
        c = self.config
        self.word_embeddings = self._table(
            "word_embeddings", c.vocab_size, "vocab"
        )
        self.embedding_norm = LayerNorm(c.layer_norm_eps, c.compute_dtype)
        self.encoder = Encoder(c.encoder_stack)
        self.make_head()

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
    """Returns the fields of ``DebertaConfig`` in a config.json.

    Raises:
        InputError: the file describes a model with a different structure or
            head.
    """
    values = read_fields(raw, DebertaConfig, RUNTIME_FIELDS, _JSON_NAMES)
    values.pop("type_vocab_size", None)  # 0, as checked below
    for key, (supported, default) in _STRUCTURE.items():
        check_structure({key: raw.get(key, default)}, {key: supported})
    products = raw.get("pos_att_type") or ""
    if isinstance(products, str):
        products = products.lower().split("|")
    if (
        not isinstance(products, list)
        or {str(product).strip() for product in products} != _POSITION_PRODUCTS
    ):
        raise InputError(
            f'pos_att_type is {raw.get("pos_att_type")!r}; only "p2c|c2p" is supported'
        )
    buckets = raw.get("position_buckets")
    if not isinstance(buckets, int) or buckets < 1:
        raise InputError(
            f"position_buckets is {shortened(buckets)}; only relative positions in buckets are "
            "supported (DeBERTaV3: 256)"
        )
    positions = raw.get("max_relative_positions", -1)
    # Other types are refused later, with the types of all fields.
    if isinstance(positions, int) and positions < 1:  # the number of positions
        positions = values.get(
            "max_position_embeddings", DebertaConfig.max_position_embeddings
        )
    values["max_relative_positions"] = positions
    head = head_of(raw, HEAD_SUFFIXES, "Model")
    return values | read_labels(raw) | {"head": head}


def write_config(config: DebertaConfig) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields, or that only transformers reads."""
    values = shared_entries(config) | {
        "is_decoder": None,
        "pos_att_type": ["p2c", "c2p"],
        "pooler_hidden_size": config.hidden_size,
        **{key: supported for key, (supported, _) in _STRUCTURE.items()},
    }
    for name, key in _JSON_NAMES.items():
        values |= {name: None, key: getattr(config, name)}
    return values


# State dicts


def weight_map(config: DebertaConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    path, key = "encoder/layers", "deberta.encoder.layer.{i}"
    table = "deberta.encoder.rel_embeddings.weight"
    rows = [
        WeightRow(
            "word_embeddings", "deberta.embeddings.word_embeddings.weight"
        ),
        *layer_norm("embedding_norm", "deberta.embeddings.LayerNorm"),
        WeightRow("encoder/attention/position_embeddings", table),
        *layer_norm("encoder/attention/norm", "deberta.encoder.LayerNorm"),
        *layer_norm(f"{path}/self_norm", f"{key}.attention.output.LayerNorm"),
        *layer_norm(f"{path}/ff_norm", f"{key}.output.LayerNorm"),
        *linear(
            f"{path}/self_attention/o",
            f"{key}.attention.output.dense",
            inputs=2,
            bias=True,
        ),
        *linear(
            f"{path}/feed_forward/wi", f"{key}.intermediate.dense", bias=True
        ),
        *linear(f"{path}/feed_forward/wo", f"{key}.output.dense", bias=True),
    ]
    for name, part in (("q", "query"), ("k", "key"), ("v", "value")):
        rows += linear(
            f"{path}/self_attention/{name}",
            f"{key}.attention.self.{part}_proj",
            bias=True,
        )
    # Pre-trained models also have a head for replaced tokens, and positions
    # that nothing reads.
    ignored: tuple[str, ...] = (
        r"position_(ids|embeddings)",
        r"^mask_predictions\.",
    )
    # The vocabulary head of published models has another name.
    aliases = (
        (r"^lm_predictions\.lm_head\.bias$", "cls.predictions.bias"),
        (r"^lm_predictions\.lm_head\.", "cls.predictions.transform."),
    )
    if config.head in ("none", "extraction"):
        prefix = "deberta."
        rows = [row._replace(key=row.key.removeprefix(prefix)) for row in rows]
        ignored += (r"^(cls|lm_predictions|pooler|classifier|qa_outputs)\.",)
        return WeightMap(rows, ignored=ignored, aliases=((r"^deberta\.", ""),))
    tied = {}
    if config.head in VOCABULARY_HEADS:
        head = "cls.predictions"
        rows += linear("head/dense", f"{head}.transform.dense", bias=True)
        rows += layer_norm("head/norm", f"{head}.transform.LayerNorm")
        rows.append(WeightRow("head/bias", f"{head}.bias"))
        tied = {
            f"{head}.decoder.weight": (
                "deberta.embeddings.word_embeddings.weight"
            ),
            f"{head}.decoder.bias": f"{head}.bias",
        }
    elif config.head in ("classification", "multiple_choice"):
        rows += linear("head/dense", "pooler.dense", bias=True)
        rows += linear("head/out", "classifier", bias=True)
    else:
        is_answer = config.head == "question_answering"
        name = "qa_outputs" if is_answer else "classifier"
        rows += linear("head/out", name, bias=True)
        ignored += (r"^pooler\.",)
    if config.head not in VOCABULARY_HEADS:
        ignored += (r"^(cls|lm_predictions)\.",)
    return WeightMap(rows, tied, ignored, prefix="deberta.", aliases=aliases)


_SMALL: dict[str, Any] = {"num_hidden_layers": 6}
_LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_TINY: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "position_buckets": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}

FAMILY = Family(
    name="deberta-v2",
    architecture="DebertaV2ForMaskedLM",
    config_class=DebertaConfig,
    module_class=Deberta,
    presets={
        "base": DebertaConfig(),
        "large": DebertaConfig(**_LARGE),
        "small": DebertaConfig(**_SMALL),
        "tiny": DebertaConfig.of(**_TINY),
    },
    runtime_fields=RUNTIME_FIELDS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    is_encoder_decoder=False,
    attentions=("disentangled",),
)
