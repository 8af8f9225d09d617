"""The configs of BERT and related models: fields and presets.

These models differ in their positions, token types, embeddings and heads, in
parameter sharing between layers, and in the encoder's attention.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.options import (
    LsgOptions,
    check_num_windows,
)
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.dense import ACTIVATIONS
from longsum_jax.layers.layer_groups import is_hybrid
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.config import (
    ModelConfig,
    check_attention,
    check_divisible,
    check_known,
    check_token_ids,
)
from longsum_jax.models.heads import (
    LabelOptions,
    check_labels,
)
from longsum_jax.schema import (
    Count,
    Layers,
    Length,
    LengthOrNone,
    Positive,
    PositiveFloat,
    Rate,
    Size,
    Weight,
)

Head = Literal[
    "none",
    "pooler",
    "masked_lm",
    "causal_lm",
    "classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
    "extraction",
]
GlobalTokens = Literal["none", "first", "question", "choice"]
HEADS: tuple[Head, ...] = get_args(Head)
BIDIRECTIONAL_HEADS = tuple(head for head in HEADS if head != "causal_lm")
_MPNET_DISTANCE = 128  # distance from which all keys share a bucket
VOCABULARY_HEADS: tuple[Head, ...] = ("masked_lm", "causal_lm")


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig, LabelOptions):
    """The config of BERT; keys as in config.json, defaults of BERT base.

    Attributes:
        head: model head; in checkpoints it is given by the architecture's name.
        is_decoder: True if tokens see no later tokens, as in language models
            that generate text. There is no cross-attention.
        extraction_heads, sentence_positions: options of
            ``extraction_head.ExtractionHead``.
        max_sentence_length: maximum number of tokens read per sentence
            ("extraction").
        sentence_chunk: number of sentences of a document encoded at a time,
            with gradients that recompute their states; 0 for all.

    Class attributes define properties that are fixed per model type:
        class_name: name of the classes in transformers, without the head.
        shares_layers: True if all layers have the same parameters.
        always_projects_embeddings: True if a projection follows the embeddings
            even if they have the size of the states.
        vocabulary_activation: activation in the vocabulary head; None for
            hidden_act.
        drops_head_input: True if the head over the labels of a text has dropout
            before its first layer.
    """

    prefix: ClassVar[str] = "bert"
    class_name: ClassVar[str] = "Bert"
    has_token_types: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = HEADS
    shares_layers: ClassVar[bool] = False
    always_projects_embeddings: ClassVar[bool] = False
    vocabulary_activation: ClassVar[str | None] = None
    drops_head_input: ClassVar[bool] = False

    vocab_size: Positive = 30522
    hidden_size: Size = 768
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
    is_decoder: bool = False
    extraction_heads: Size = 8
    sentence_positions: bool = False
    max_sentence_length: Length = 128

    head: Head = "masked_lm"
    sentence_chunk: LengthOrNone = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_token_ids(self)
        check_divisible(self, "hidden_size", "num_attention_heads")
        if self.head == "extraction":
            check_divisible(self, "hidden_size", "extraction_heads")
            if self.sentence_positions and self.hidden_size % 2:
                raise InputError(
                    f"hidden_size is {self.hidden_size}, but sentence_positions are pairs of sine "
                    "and cosine; make it even"
                )
        check_known(self, "hidden_act", ACTIVATIONS)
        check_known(self, "head", self.heads)
        check_labels(self)
        check_attention(self)
        attention = get_encoder_attention(self.encoder_attention)
        if self.is_decoder and "causal_lm" not in self.heads:
            raise InputError(
                f"is_decoder is true, but {self.prefix} reads in both directions"
            )
        if self.is_decoder and not attention.can_be_causal:
            raise InputError(
                f"is_decoder is true, but {self.encoder_attention} attention sees later tokens; "
                "give full or lsg"
            )

    @property
    def layer_options(self) -> dict[str, Any]:
        options = super().layer_options
        if isinstance(self.attention, LsgOptions):
            # There is no decoder to pass global tokens to.
            options["attention"] = dataclasses.replace(
                self.attention, pass_global_tokens_to_decoder=False
            )
        return options

    @property
    def d_model(self) -> int:
        """``hidden_size``, under the name common to all families."""
        return self.hidden_size

    @property
    def embedding_size(self) -> int:
        """Size of an embedding, which is projected to ``hidden_size`` if they differ."""
        return self.hidden_size

    @property
    def head_activation(self) -> str:
        """The activation in heads over the first state of a text."""
        return "tanh"

    @property
    def sep_token_id(self) -> int:
        """Token after a question, for configs whose models look for it."""
        raise NotImplementedError

    @property
    def max_global_tokens(self) -> int:
        """Maximum number of global tokens of a question or choice, see ``LongformerConfig``."""
        raise NotImplementedError

    @property
    def global_tokens(self) -> GlobalTokens:
        """Tokens that are global by default, in encoders with attention "longformer"."""
        return "first"

    @property
    def projects_embeddings(self) -> bool:
        """True if a projection follows the embeddings."""
        return (
            self.always_projects_embeddings
            or self.embedding_size != self.hidden_size
        )

    @property
    def dropout_rate(self) -> float:
        """The largest of the dropout rates; 0 if the model has no dropout."""
        classifier = self.classifier_dropout or 0.0
        return max(
            self.hidden_dropout_prob,
            self.attention_probs_dropout_prob,
            classifier,
        )

    @property
    def head_dropout(self) -> float:
        """Dropout rate before the last layer of the head."""
        if self.head == "question_answering":
            return 0.0
        rate = self.classifier_dropout
        if rate is None:
            return self.hidden_dropout_prob
        return rate

    @property
    def head_input_dropout(self) -> float:
        """Dropout rate before the hidden layer of a head over the first state of a text."""
        has_dropout = self.drops_head_input and self.head == "classification"
        return self.head_dropout if has_dropout else 0.0

    @property
    def max_source_length(self) -> int:
        """Maximum input length in tokens, special tokens included."""
        return self.max_position_embeddings - self.position_offset

    def with_max_source_length(self, length: int) -> "BertConfig":
        """Returns this config with positions for ``length`` tokens."""
        return dataclasses.replace(
            self, max_position_embeddings=length + self.position_offset
        )

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
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
            embedding_size=self.embedding_size
            if self.projects_embeddings
            else None,
            shares_layers=self.shares_layers,
            dropout_rate=self.hidden_dropout_prob,
            attention_dropout_rate=self.attention_probs_dropout_prob,
            causal=self.is_decoder,
            **self.layer_options,
            length_chunk=self.length_chunk,
        )


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertConfig):
    """The config of RoBERTa; defaults of RoBERTa base.

    The first rows of its position table are for padding.
    """

    prefix: ClassVar[str] = "roberta"
    class_name: ClassVar[str] = "Roberta"
    vocabulary_activation: ClassVar[str] = "gelu"
    drops_head_input: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }

    vocab_size: Positive = 50265
    max_position_embeddings: Length = 514
    type_vocab_size: Size = 1
    layer_norm_eps: PositiveFloat = 1e-5
    pad_token_id: int = 1
    bos_token_id: Count = 0
    eos_token_id: Count = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_source_length < 1:
            raise InputError(
                f"max_position_embeddings is {self.max_position_embeddings}, but texts begin "
                f"after position pad_token_id={self.pad_token_id}; raise the one or lower the "
                "other"
            )

    @property
    def position_offset(self) -> int:
        """Number of rows of the position table before the row of the first token."""
        return self.pad_token_id + 1

    @property
    def head_dropout(self) -> float:
        """See ``BertConfig``; for choices it is the dropout rate of the layers."""
        if self.head == "multiple_choice":
            return self.hidden_dropout_prob
        return super().head_dropout


@dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """The config of XLM-RoBERTa; defaults of XLM-RoBERTa base."""

    class_name: ClassVar[str] = "XLMRoberta"
    absent: ClassVar[Mapping[str, Any]] = {
        **RobertaConfig.absent,
        "vocab_size": 30522,
    }

    vocab_size: Positive = 250002


@dataclass(frozen=True, kw_only=True)
class CamembertConfig(RobertaConfig):
    """The config of CamemBERT; defaults of CamemBERT base."""

    class_name: ClassVar[str] = "Camembert"
    absent: ClassVar[Mapping[str, Any]] = {
        **XlmRobertaConfig.absent,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }

    vocab_size: Positive = 32005
    bos_token_id: Count = 5
    eos_token_id: Count = 6


@dataclass(frozen=True, kw_only=True)
class MpnetConfig(RobertaConfig):
    """The config of MPNet (Song et al. 2020); defaults of MPNet base.

    It has T5's relative positions besides the position table, and no token
    types.

    Attributes:
        relative_attention_num_buckets: number of buckets of the relative
            positions.
    """

    prefix: ClassVar[str] = "mpnet"
    class_name: ClassVar[str] = "MPNet"
    has_token_types: ClassVar[bool] = False
    heads: ClassVar[tuple[str, ...]] = BIDIRECTIONAL_HEADS
    absent: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12,
    }

    vocab_size: Positive = 30527
    relative_attention_num_buckets: Size = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        # The published code does not read these two from config.json.
        for name, value in (
            ("relative_attention_num_buckets", 32),
            ("pad_token_id", 1),
        ):
            if getattr(self, name) != value:
                raise InputError(
                    f"{name} is {getattr(self, name)}, but MPNet supports only {value}; give that"
                )

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
        buckets = (self.relative_attention_num_buckets, _MPNET_DISTANCE)
        return dataclasses.replace(
            super().encoder_stack, relative_attention=buckets
        )


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(BertConfig):
    """The config of DistilBERT; defaults of DistilBERT base.

    Its config.json has different names for the sizes, see ``models.bert_json``.

    Attributes:
        qa_dropout: dropout rate before the head for question answering.
    """

    prefix: ClassVar[str] = "distilbert"
    class_name: ClassVar[str] = "DistilBert"
    has_token_types: ClassVar[bool] = False
    heads: ClassVar[tuple[str, ...]] = BIDIRECTIONAL_HEADS
    head_activation: ClassVar[str] = "relu"
    fixed: ClassVar[tuple[str, ...]] = ("layer_norm_eps",)

    num_hidden_layers: Layers = 6
    classifier_dropout: float | None = 0.2
    qa_dropout: Rate = 0.1

    @property
    def head_dropout(self) -> float:
        """See ``BertConfig``; for labels of tokens it is the dropout rate of the layers."""
        rates = {
            "question_answering": self.qa_dropout,
            "token_classification": self.hidden_dropout_prob,
        }
        return rates.get(self.head, super().head_dropout)


@dataclass(frozen=True, kw_only=True)
class ElectraConfig(BertConfig):
    """The config of ELECTRA; defaults of ELECTRA base.

    Attributes:
        embedding_size: size of an embedding, which is projected to
            ``hidden_size`` if they differ.
        summary_last_dropout: dropout rate before the last layer of the head for
            multiple choice.
    """

    prefix: ClassVar[str] = "electra"
    class_name: ClassVar[str] = "Electra"
    vocabulary_activation: ClassVar[str] = "gelu"
    head_activation: ClassVar[str] = "gelu"
    drops_head_input: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, Any]] = {
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }

    embedding_size: Size = 768
    summary_last_dropout: Rate = 0.1

    @property
    def dropout_rate(self) -> float:
        """See ``BertConfig``."""
        if self.head != "multiple_choice":
            return super().dropout_rate
        return max(super().dropout_rate, self.summary_last_dropout)

    @property
    def head_dropout(self) -> float:
        """See ``BertConfig``; choices have a separate rate."""
        is_choice = self.head == "multiple_choice"
        if is_choice:
            return self.summary_last_dropout
        return super().head_dropout


@dataclass(frozen=True, kw_only=True)
class AlbertConfig(BertConfig):
    """The config of ALBERT; defaults of ALBERT base.

    All layers have the same parameters, and therefore the same attention. In
    training, dropout also follows the feed-forwards, as in BERT, but not in
    transformers.

    Attributes:
        embedding_size: size of an embedding, which is projected to
            ``hidden_size``.
    """

    prefix: ClassVar[str] = "albert"
    class_name: ClassVar[str] = "Albert"
    heads: ClassVar[tuple[str, ...]] = BIDIRECTIONAL_HEADS
    shares_layers: ClassVar[bool] = True
    always_projects_embeddings: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
    }

    vocab_size: Positive = 30000
    embedding_size: Size = 128
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0
    classifier_dropout: float | None = 0.1
    bos_token_id: Count = 2
    eos_token_id: Count = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        windows = self.option("attention_window")
        if is_hybrid(self.encoder_attention) or len(windows) > 1:
            raise InputError(
                f'encoder_attention "{self.encoder_attention}" with windows '
                f"{windows} differs from layer to layer, but the layers of ALBERT "
                "share their parameters; give one attention and one window"
            )


@dataclass(frozen=True, kw_only=True)
class LongformerConfig(RobertaConfig):
    """The config of Longformer; defaults of Longformer base.

    ``attention_window`` has one number for all layers or one per layer. Unless
    ``global_attention_mask`` is given, the global tokens are the first token in
    classification, the question for answers, the second text for choices, and
    none otherwise.

    Attributes:
        sep_token_id: id of the token after the question, which also occurs
            twice between two texts.
        max_global_tokens: maximum number of global tokens of a question or
            choice; in a longer one, only its first tokens are global.
    """

    prefix: ClassVar[str] = "longformer"
    class_name: ClassVar[str] = "Longformer"
    heads: ClassVar[tuple[str, ...]] = BIDIRECTIONAL_HEADS
    absent: ClassVar[Mapping[str, Any]] = XlmRobertaConfig.absent
    published_options: ClassVar[tuple[str, ...]] = ("attention_window",)

    encoder_attention: str = "longformer"
    max_position_embeddings: Length = 4098
    sep_token_id: Count = 2
    max_global_tokens: Size = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_windows(
            self.option("attention_window"), self.num_hidden_layers
        )

    @property
    def global_tokens(self) -> GlobalTokens:
        """See ``BertConfig``."""
        by_head: dict[str, GlobalTokens] = {
            "classification": "first",
            "question_answering": "question",
            "multiple_choice": "choice",
        }
        return by_head.get(self.head, "none")


@dataclass(frozen=True, kw_only=True)
class BigBirdConfig(BertConfig):
    """The config of BigBird; defaults of BigBird base.

    In training, dropout follows the norm of the embeddings, as in BERT; in
    transformers it precedes it.

    Attributes:
        rescale_embeddings: True if embeddings of tokens are multiplied by
            sqrt(hidden_size).
        sep_token_id: id of the token after the question.
    """

    class_name: ClassVar[str] = "BigBird"
    drops_head_input: ClassVar[bool] = True

    vocab_size: Positive = 50358
    hidden_act: str = "gelu_new"
    max_position_embeddings: Length = 4096
    encoder_attention: str = "bigbird"
    rescale_embeddings: bool = False
    bos_token_id: Count = 1
    eos_token_id: Count = 2
    sep_token_id: Count = 66

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head == "question_answering" and self.type_vocab_size < 2:
            raise InputError(
                f"type_vocab_size is {self.type_vocab_size}, but tokens after a question are of "
                "type 1 here; give at least 2"
            )

    @property
    def head_dropout(self) -> float:
        """See ``BertConfig``; for answers it is the dropout rate of the layers."""
        if self.head == "question_answering":
            return self.hidden_dropout_prob
        return super().head_dropout

    @property
    def scale_embedding(self) -> bool:
        """``rescale_embeddings``, under the name used by related models."""
        return self.rescale_embeddings

    @property
    def head_activation(self) -> str:
        """The activation of the layers; for choices the one of BERT."""
        if self.head == "multiple_choice":
            return "tanh"
        return self.hidden_act


_SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
_TINY: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}


def presets(
    config_class: type[BertConfig], **tiny: Any
) -> dict[str, BertConfig]:
    """Returns the base, small and tiny models of a config class.

    ``tiny`` contains additional fields of the tiny model, such as smaller
    blocks.
    """
    fields = {field.name for field in dataclasses.fields(config_class)}
    has_own_size = "embedding_size" in fields
    small = _SMALL | ({"embedding_size": 128} if has_own_size else {})
    tiny = _TINY | ({"embedding_size": 32} if has_own_size else {}) | tiny
    return {
        "base": config_class(),
        "small": config_class(**small),
        "tiny": config_class.of(**tiny),
    }
