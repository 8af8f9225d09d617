"""BERT and related models: RoBERTa, XLM-RoBERTa, CamemBERT, MPNet, DistilBERT, ELECTRA, ALBERT,
Longformer and BigBird.

Papers: BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), XLM-RoBERTa
(Conneau et al. 2020), CamemBERT (Martin et al. 2020), MPNet (Song et al. 2020),
DistilBERT (Sanh et al. 2019), ELECTRA (Clark et al. 2020), ALBERT (Lan et al.
2020), Longformer (Beltagy et al. 2020), BigBird (Zaheer et al. 2020).

One encoder with one of several heads; its configs are in
``models.bert_config``. ``head`` selects the output: states ("none", or "pooler"
with the pooling layer of plain BERT checkpoints), logits of the vocabulary at
every token ("masked_lm", "causal_lm"), of the labels of a text
("classification") or of every token ("token_classification"), of the start and
the end of an answer at every token ("question_answering"), of one text among
several ("multiple_choice"), or a score of every sentence of a document
("extraction").
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.layers.attention.global_tokens import NO_TOKEN
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import LayerNorm, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.partitioning import constrain, logical
from longsum_jax.models.bert_config import (
    VOCABULARY_HEADS,
    AlbertConfig,
    BertConfig,
    BigBirdConfig,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    LongformerConfig,
    MpnetConfig,
    RobertaConfig,
    XlmRobertaConfig,
    presets,
)
from longsum_jax.models.bert_embeddings import (
    EmbeddingTables,
    position_rows,
    sum_embeddings,
)
from longsum_jax.models.bert_heads import (
    BigBirdAnswerHead,
    Pooler,
    VocabularyHead,
)
from longsum_jax.models.bert_json import (
    RUNTIME_FIELDS,
    read_config,
    write_config,
)
from longsum_jax.models.bert_weights import infer_from_weights, weight_map
from longsum_jax.models.extraction_head import ExtractionHead, mean_state
from longsum_jax.models.family import Family
from longsum_jax.models.heads import (
    SPAN_OUTPUTS,
    TOKEN_HEADS,
    TextHead,
    TokenHead,
)
from longsum_jax.models.precision import PreciseModule
from longsum_jax.models.vocabulary import score_labels
from longsum_jax.ops.losses import TokenScores
from longsum_jax.typing import AnyArray

# subtracted from logits of tokens that cannot begin or end an answer, as
# published
_REFUSED = 1e6


class Bert(PreciseModule):
    """BERT and related models.

    ``attention_mask`` is nonzero on real tokens; it may be of any type.
    """

    config: BertConfig

    def setup(self) -> None:
        c = self.config
        self.word_embeddings = self._table(
            "word_embeddings", c.vocab_size, "vocab"
        )
        self.position_embeddings = self._table(
            "position_embeddings", c.max_position_embeddings, "positions"
        )
        if c.has_token_types:
            self.token_type_embeddings = self._table(
                "token_type_embeddings", c.type_vocab_size, "types"
            )
        self.embedding_norm: Callable[..., Array] = LayerNorm(
            c.layer_norm_eps, c.compute_dtype
        )
        self.encoder = Encoder(c.encoder_stack)
        self.make_head()

    def make_head(self) -> None:
        """Makes the head; call it in ``setup``."""
        c = self.config
        if c.head in VOCABULARY_HEADS:
            self.head: nn.Module = VocabularyHead(c)
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
            self.head = ExtractionHead(
                c.encoder_stack, c.extraction_heads, c.sentence_positions
            )

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
            c.hidden_size,
            outputs,
            c.initializer_range,
            c.head_dropout,
            c.compute_dtype,
        )

    def _table(
        self, name: str, rows: int, axis: str
    ) -> Float[Array, "rows embedding_size"]:
        """Makes an embedding table; call it in ``setup``."""
        init = logical(normal(self.config.initializer_range), axis, "embed")
        return self.param(name, init, (rows, self.config.embedding_size))

    def __call__(
        self,
        input_ids: Int[AnyArray, "*leading length"],
        attention_mask: Shaped[AnyArray, "*leading length"],
        deterministic: bool = True,
        token_type_ids: Int[AnyArray, "*leading length"] | None = None,
        **inputs: Any,
    ) -> Float[AnyArray, "..."]:
        """Returns the output selected by ``head``.

        Logits float32 [batch, length, vocab], [batch, length, num_labels] or
        [batch, num_labels]; logits of answers [batch, length, 2], starts first;
        or states [batch, length, d_model]. With "multiple_choice" inputs are
        [batch, choices, length], and the output is a score of every choice,
        float32 [batch, choices] (for inputs [batch, length] one score per row).
        With "extraction" ids and mask are [batch, sentences, length] (or
        [batch, length], one sentence each), and the output is scores float32
        [batch, sentences].
        """
        head = self.config.head
        if head == "multiple_choice":
            return self._score_choices(
                input_ids,
                attention_mask,
                deterministic,
                token_type_ids,
                **inputs,
            )
        if head == "extraction":
            vectors, mask = self.encode_sentences(
                input_ids, attention_mask, deterministic
            )
            return self.score_sentences(vectors, mask, deterministic)
        if head == "question_answering" and isinstance(
            self.config, BigBirdConfig
        ):
            return self._answer_behind_question(
                input_ids,
                attention_mask,
                deterministic,
                token_type_ids,
                **inputs,
            )
        states = self.encode(
            input_ids, attention_mask, deterministic, token_type_ids, **inputs
        )
        if head in VOCABULARY_HEADS:
            return self.head(states, self.word_embeddings)
        if head == "classification":
            state = self.text_state(
                states, jnp.asarray(attention_mask).astype(bool)
            )
            return self.head(state, deterministic)
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
        """Returns losses and top predictions of the tokens that a vocabulary head predicts.

        Args:
            labels: ids of the correct tokens; IGNORED_LABEL is left out.
            **inputs: keyword arguments of ``encode``.
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
        """Encodes every choice separately, and returns a score of each."""
        length = input_ids.shape[-1]
        ids, mask = (
            input_ids.reshape(-1, length),
            attention_mask.reshape(-1, length),
        )
        if token_type_ids is None:
            types = None
        else:
            types = token_type_ids.reshape(-1, length)
        states = self.encode(ids, mask, deterministic, types, **inputs)
        state = self.text_state(states, jnp.asarray(mask).astype(bool))
        return self.head(state, deterministic).reshape(input_ids.shape[:-1])

    def text_state(
        self,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> Float[AnyArray, "batch d_model"]:
        """Returns the state that represents a text: the first token's."""
        del mask
        return states[:, 0]

    def _answer_behind_question(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool,
        token_type_ids: Int[AnyArray, "batch length"] | None,
        **inputs: Any,
    ) -> Float[Array, "batch length 2"]:
        """Returns logits of answers, which cannot be in the question except at the first token, as
        in BigBird.

        By default the tokens after the question have type 1.
        """
        positions = jnp.arange(input_ids.shape[1])
        question_end = first_place(
            input_ids == self.config.sep_token_id, default=0
        )
        in_question = positions <= question_end[:, None]
        if token_type_ids is None:
            token_type_ids = jnp.where(in_question, 0, 1)
        states = self.encode(
            input_ids, attention_mask, deterministic, token_type_ids, **inputs
        )
        is_refused = in_question & (positions > 0)
        return (
            self.head(states, deterministic) - _REFUSED * is_refused[..., None]
        )

    def encode_sentences(
        self,
        input_ids: Int[AnyArray, "*leading length"],
        attention_mask: Shaped[AnyArray, "*leading length"],
        deterministic: bool = True,
    ) -> tuple[
        Float[Array, "batch sentences d_model"], Bool[Array, "batch sentences"]
    ]:
        """Returns the mean state of every sentence, and a mask of the sentences that have a token.

        Args:
            input_ids, attention_mask: ids and mask [batch, sentences, length],
                or [batch, length] for one sentence per row.
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
        if chunk and not self.is_initializing():
            encode = nn.remat(encode)
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
    ) -> Float[AnyArray, "batch length d_model"]:
        """Returns the states of the encoder; ``token_type_ids`` are zeros by default.

        Args:
            **inputs: keyword arguments of
                ``layers.encoder.Encoder.with_memory``.
        """
        mask = jnp.asarray(attention_mask).astype(bool)
        if (
            "global_indices"
            in get_encoder_attention(self.config.encoder_attention).inputs
        ):
            inputs.setdefault("global_indices", self._global_indices(input_ids))
        x = constrain(
            self.embed(input_ids, token_type_ids),
            "batch",
            "length",
            "act_embed",
        )
        return self.encoder(
            x, mask, deterministic, embedding_norm=self.embedding_norm, **inputs
        )

    def _global_indices(
        self, ids: Int[AnyArray, "batch length"]
    ) -> Int[Array, "batch num_globals"]:
        """Returns the positions of the tokens that are global by default, -1 for none."""
        c, (rows, length) = self.config, ids.shape
        if c.global_tokens in ("none", "first"):
            if c.global_tokens == "none":
                token = NO_TOKEN
            else:
                token = 0
            return jnp.full((rows, 1), token, jnp.int32)
        is_question = c.global_tokens == "question"
        # A question ends at the first separator; a choice begins after two of
        # them.
        separator = first_place(
            ids == c.sep_token_id, default=0 if is_question else length
        )
        first, stop = (0, separator) if is_question else (separator + 2, length)
        first, stop = (jnp.reshape(x, (-1, 1)) for x in (first, stop))
        positions = first + jnp.arange(min(c.max_global_tokens, length))
        return jnp.where(positions < stop, positions, NO_TOKEN)

    def embed(
        self,
        ids: Int[AnyArray, "batch length"],
        token_type_ids: Int[AnyArray, "batch length"] | None,
    ) -> Float[Array, "batch length embedding_size"]:
        """Returns the normalized sum of word, position and token type embeddings."""
        has_types = self.config.has_token_types
        types = None
        if has_types:
            types = self.token_type_embeddings
        tables = EmbeddingTables(
            self.word_embeddings, self.position_embeddings, types
        )
        rows = position_rows(self.config, ids)
        return self.embedding_norm(
            sum_embeddings(self.config, tables, ids, rows, token_type_ids)
        )


def first_place(
    mask: Bool[AnyArray, "batch length"], *, default: int
) -> Int[Array, " batch"]:
    """Returns the first True position of every row, ``default`` in rows without one."""
    return jnp.where(mask.any(-1), mask.argmax(-1), default)


def _family(
    name: str,
    config_class: type[BertConfig],
    attentions: tuple[str, ...] = ("full", "lsg"),
    **tiny: Any,
) -> Family:
    """Returns a family of this config; for ``tiny`` see ``presets``."""
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


BERT = _family("bert", BertConfig)
ROBERTA = _family("roberta", RobertaConfig)
XLM_ROBERTA = _family("xlm-roberta", XlmRobertaConfig)
CAMEMBERT = _family("camembert", CamembertConfig)
MPNET = _family("mpnet", MpnetConfig)
DISTILBERT = _family("distilbert", DistilBertConfig)
ELECTRA = _family("electra", ElectraConfig)
ALBERT = _family("albert", AlbertConfig)
LONGFORMER = _family(
    "longformer",
    LongformerConfig,
    ("longformer",),
    attention_window=(32,),
    max_position_embeddings=1026,
)
BIG_BIRD = _family(
    "big_bird",
    BigBirdConfig,
    ("bigbird", "full"),
    block_size=16,
    max_position_embeddings=1024,
)
