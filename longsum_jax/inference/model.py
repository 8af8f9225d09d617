"""A loaded model: encode, logits, generate, summarise, save."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.checkpoints import huggingface
from longsum_jax.conversion.cross_attention import with_cross_attention
from longsum_jax.conversion.lsg import to_lsg, with_lsg_options
from longsum_jax.conversion.positions import Extension, extend_positions
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate, trim
from longsum_jax.errors import InputError
from longsum_jax.inference.kernel_cache import KernelCache
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.decoder import DecoderCache
from longsum_jax.models.family import Family
from longsum_jax.models.registry import max_input_length
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Array, Params

if TYPE_CHECKING:
    from longsum_jax.inference.segments import SegmentSummarizer

from longsum_jax.inference.padding import check_length, global_indices, like_ids, padded_length
from longsum_jax.inference.summary import Overflow, Summary

_INPUTS = (
    "global_attention_mask",
    "token_type_ids",
)  # of encoders that take more than ids and a mask
MAX_KERNEL_CACHE_BYTES = (
    2**31
)  # of state-space kernels that a loaded model keeps, see ``kept_kernels``


class Model:
    """A model family's module with parameters and a tokenizer.

    Arrays of ids may have any length: they are padded to one of a few lengths (``bucket_length``),
    one compilation each, and neither padding nor other rows change the result of a row.

    Attributes:
        config: the family's config dataclass.
        module: the Flax module.
        params: its parameter tree.
        tokenizer: None when the directory had none; then only ids go in and out.
        generation_config: defaults of ``generate`` by their generation_config names.
        summarization: what the checkpoint's config.json asks for when summarising: "prefix",
            options of ``generate``.
    """

    def __init__(
        self,
        family: Family,
        config: Any,
        params: Params,
        tokenizer: Tokenizer | None = None,
        generation_config: dict[str, Any] | None = None,
        summarization: dict[str, Any] | None = None,
    ) -> None:
        self.family, self.config, self.params, self.tokenizer = family, config, params, tokenizer
        self.module = family.module_class(config)
        self.generation_config = family.generation_config(config, generation_config or {})
        self.summarization = summarization or {}

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    @property
    def fingerprint(self) -> str:
        """A short hash of the parameters; equal fingerprints, equal weights."""
        digest = hashlib.blake2b(digest_size=8)
        for leaf in jax.tree.leaves(self.params):
            digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8))
        return digest.hexdigest()

    def encode(self, input_ids: Any, attention_mask: Any = None, **inputs: Any) -> Array:
        """Encoder states float32 [B, L, D] of ids int [B, L].

        Encoder-decoders with LSG attention and ``pass_global_tokens_to_decoder`` give [B, G + L,
        D], G global tokens
        first: all that their decoders see.

        ``attention_mask`` as for ``generate``. Some models take more, under Hugging Face names,
        both [B, L]: LED ``global_attention_mask``, nonzero on tokens that see and are seen
        everywhere; BERT ``token_type_ids``.
        """
        ids, mask = self._inputs(input_ids, attention_mask)
        padded = self.padded(ids, mask, inputs)
        states = self._encode(self._variables(padded), *padded)
        padding = padded[0].shape[1] - ids.shape[1]
        return states[:, : states.shape[1] - padding].astype(jnp.float32)

    def logits(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        decoder_input_ids: Any = None,
        **inputs: Any,
    ) -> Array:
        """Teacher-forced logits float32 [B, T, V] for ``decoder_input_ids`` int [B, T]; ``inputs``
        as for ``encode``.

        Encoders take no ``decoder_input_ids``. Theirs are [B, L, V] with a masked-language-model
        head and [B, num_labels] with a classification head.
        """
        ids, mask = self._inputs(input_ids, attention_mask)
        if not self.family.is_encoder_decoder:
            return self._encoder_logits(ids, mask, decoder_input_ids, inputs)
        decoder_ids = self._checked(decoder_input_ids, "decoder_input_ids")
        if len(decoder_ids) != len(ids):
            raise InputError(
                f"decoder_input_ids has {len(decoder_ids)} rows, input_ids {len(ids)}; they must agree"
            )
        check_length(decoder_ids.shape[1], self.config.max_target_length, "decoder_input_ids")
        padded = self.padded(ids, mask, inputs)
        return self._logits(self._variables(padded), *padded, decoder_ids)

    def _encoder_logits(
        self, ids: np.ndarray, mask: np.ndarray, decoder_ids: Any, inputs: dict[str, Any]
    ) -> Array:
        if decoder_ids is not None:
            raise InputError(
                f"decoder_input_ids is given, but {self.family.name} has no decoder; leave it out"
            )
        if self.config.head == "extraction":
            raise InputError(
                "this model gives a score to every sentence of a document; use extract"
            )
        if self.config.head not in ("masked_lm", "classification"):
            raise InputError("this model has no head, so it gives no logits; use encode")
        padded = self.padded(ids, mask, inputs)
        logits = self._logits(self._variables(padded), *padded)
        return logits[:, : ids.shape[1]] if self.config.head == "masked_lm" else logits

    def generate(
        self, input_ids: Any, attention_mask: Any = None, *, seed: int = 0, **options: Any
    ) -> np.ndarray:
        """Decodes summaries.

        Args:
            input_ids: int [B, L].
            attention_mask: [B, L], nonzero on real tokens; by default all but padding ids.
            seed: of sampling.
            **options: what ``encode`` takes besides, and options under their generation_config
                names (max_new_tokens, num_beams, length_penalty, no_repeat_ngram_size,
                early_stopping, min_new_tokens, repetition_penalty, do_sample, temperature, top_k,
                top_p, ...); the rest comes from ``generation_config``, and None switches one off.

        Returns:
            int32 [B * num_return_sequences, <= 1 + max_new_tokens], laid out as transformers'
            generate does: start token first, padding after the end.

        Raises:
            InputError: unknown or impossible options, ids outside the vocabulary, shapes that
                differ.
        """
        inputs = {name: options.pop(name) for name in _INPUTS if name in options}
        return trim(
            self._generated(
                input_ids, attention_mask, self.generation_options(**options), seed, inputs
            )
        )

    def generation_options(self, **options: Any) -> GenerationOptions:
        """The options that ``generate`` would use."""
        if not self.family.is_encoder_decoder:
            raise InputError(
                f"{self.family.name} has no decoder, so it cannot generate; use encode or logits"
            )
        found = GenerationOptions.from_config(self.generation_config, **options)
        check_length(found.max_new_tokens, self.config.max_target_length, "max_new_tokens")
        return found

    def summary_options(self, **options: Any) -> GenerationOptions:
        """The options that ``summarize`` would use: the checkpoint's for summaries go before its
        general ones."""
        own = {
            name: value
            for name, value in self.summarization.items()
            if name not in ("prefix", "segments")
        }
        return self.generation_options(**{"num_return_sequences": None} | own | options)

    def summarize(self, texts: Sequence[str] | str, **options: Any) -> list[str]:
        """Summaries of documents; see ``summaries``, which tells what was read and dropped
        besides."""
        return [summary.text for summary in self.summaries(texts, **options)]

    def summaries(
        self,
        texts: Sequence[str] | str,
        *,
        max_source_length: int | None = None,
        on_overflow: Overflow = "truncate",
        batch_size: int = 1,
        seed: int = 0,
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        **options: Any,
    ) -> list[Summary]:
        """Summarises documents one after another, ``batch_size`` at a time.

        What the checkpoint asks for when summarising (``summarization``) is heeded: a prefix is put
        before every document, and its options count where none are given here. With "segments" in
        it, documents of any length are read and summarised segment by segment
        (``segment_summaries``).

        Args:
            texts: documents, or one.
            max_source_length: tokens to read of each, special ones included, at least 2; None reads
                everything, or as much as the model has positions for. Segment by segment it ends
                after whole segments.
            on_overflow: what to do with longer documents: read their beginning, or raise.
            batch_size: documents decoded together; it changes speed and memory, not results.
            seed: of sampling.
            names: what error messages call the documents; by default they are counted.
            queries: what to look for in each document, or None; a query stands before its document
                or every segment.
            **options: as for ``generate``.

        Raises:
            InputError: no tokenizer, an empty text, a document that is too long with
                on_overflow="error", a batch_size or max_source_length out of range.
        """
        if self.tokenizer is None:
            raise InputError("the model directory holds no tokenizer; load it with tokenizer=PATH")
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size} must be at least 1")
        if max_source_length is not None and max_source_length < 2:
            raise InputError(
                f"max_source_length={max_source_length} must be at least 2, the end of sequence included"
            )
        generation = self.summary_options(**options)
        texts = [texts] if isinstance(texts, str) else list(texts)
        names = names or [f"document {i}" for i in range(1, len(texts) + 1)]
        queries = queries or [None] * len(texts)
        if "segments" in self.summarization:
            rest = {
                "max_tokens": max_source_length,
                "on_overflow": on_overflow,
                "batch_size": batch_size,
                "seed": seed,
            }
            return self._by_segments.summaries(texts, names, queries, generation, **rest)
        if max_source_length is None:
            max_source_length = max_input_length(self.config)
        else:
            check_length(max_source_length, self.config.max_source_length, "max_source_length")
        documents = [
            self._read(text, name, query, max_source_length, on_overflow)
            for text, name, query in zip(texts, names, queries, strict=True)
        ]
        results: list[Summary] = []
        for start in range(0, len(documents), batch_size):
            results += self._summarize_batch(
                documents[start : start + batch_size], batch_size, generation, seed
            )
        return results

    def extract(
        self, documents: Sequence[str | Sequence[str]] | str, **options: Any
    ) -> list[list[int]]:
        """Chooses sentences of documents, with a model that ``configs/extractor.py`` trained.

        Args:
            documents: texts, which are split into sentences (``text.sentences``), or lists of their
                sentences.
            **options: ``queries``, a text or None for each document, as the model was trained with;
                ``threshold``, the probability above which a sentence is taken (0.5), and ``top_k``,
                how many are where none is above it (3); ``batch_size``, sentences encoded together
                (64).

        Returns:
            For each document the numbers of its chosen sentences, from 0 on, ascending.

        Raises:
            InputError: another kind of model, no tokenizer, a document without a sentence, an
                option out of range.
        """
        from longsum_jax.inference.sentences import extract

        return extract(self, documents, **options)

    def extended(self, max_source_length: int, extension: Extension = "tiled") -> "Model":
        """This model with positions for ``max_source_length`` tokens; see
        ``conversion.positions``."""
        config, params = extend_positions(
            self.family, self.config, self.params, max_source_length, extension
        )
        return Model(
            self.family, config, params, self.tokenizer, self.generation_config, self.summarization
        )

    def to_lsg(self, max_source_length: int | None = None, **options: Any) -> "Model":
        """This model with LSG attention in place of full attention, see ``conversion.lsg.to_lsg``.

        The tokenizer knows the tokens that global ones are made of; ``first_id`` and ``mask_id`` go
        before it.
        """
        ids = {name: options.pop(name) for name in ("first_id", "mask_id") if name in options}
        if self.tokenizer is None and len(ids) < 2:
            raise InputError(
                "the model directory holds no tokenizer, which LSG's global tokens need to know the first and the mask "
                "token; load it with tokenizer=PATH"
            )
        if self.tokenizer is not None:
            first = next(iter(self.tokenizer.prefix_ids), None)
            ids = {"first_id": first, "mask_id": self.tokenizer.mask_id} | ids
        parts = self.family, self.config, self.params
        config, params = to_lsg(*parts, **ids, max_source_length=max_source_length, **options)
        return Model(
            self.family, config, params, self.tokenizer, self.generation_config, self.summarization
        )

    def with_lsg_options(self, **options: Any) -> "Model":
        """This model with other options of its LSG attention; more global tokens among them."""
        config = with_lsg_options(self.config, **options)
        return Model(
            self.family,
            config,
            self.params,
            self.tokenizer,
            self.generation_config,
            self.summarization,
        )

    def with_cross_attention(self, cross_attention: str, **options: Any) -> "Model":
        """This model with a decoder that reads the encoder otherwise, over the same parameters.

        Args:
            cross_attention: of ``layers.attention.cross.CROSS_ATTENTIONS``, without parameters of
                its own.
            **options: what it reads, ``hepos_stride``.

        Raises:
            InputError: the model has no decoder, the kind is unknown or has parameters of its own,
                or an option is out of range.
        """
        config = with_cross_attention(self.family, self.config, cross_attention, **options)
        return Model(
            self.family,
            config,
            self.params,
            self.tokenizer,
            self.generation_config,
            self.summarization,
        )

    def save(self, path: str | Path) -> None:
        """Writes config.json, generation_config.json, model.safetensors and tokenizer files to a
        new directory."""
        parts = (
            self.family,
            self.config,
            self.params,
            self.generation_config,
            self.tokenizer,
            self.summarization,
        )
        huggingface.write_model(path, *parts)

    def _read(
        self, text: str, name: str, query: str | None, limit: int | None, on_overflow: Overflow
    ) -> tuple[list[int], int]:
        """Ids to read, and the length of the whole document."""
        if not text.strip():
            raise InputError(f"{name} is empty; give it some text or leave it out")
        text = f"{query}\n{text}" if query else text
        ids = self.tokenizer.encode(self.summarization.get("prefix", "") + text)
        whole = len(self.tokenizer.add_special_tokens(ids))
        if limit is None or whole <= limit:
            return self.tokenizer.add_special_tokens(ids), whole
        if on_overflow == "error":
            raise InputError(
                f"{name} has {whole} tokens, more than max_source_length={limit}; "
                "raise it, or allow on_overflow=truncate"
            )
        return self.tokenizer.add_special_tokens(ids, limit), whole

    def _summarize_batch(
        self,
        documents: list[tuple[list[int], int]],
        batch_size: int,
        options: GenerationOptions,
        seed: int,
    ) -> list[Summary]:
        # The last batch is filled up with copies, so that it runs through the same compiled
        # program.
        rows = documents + documents[-1:] * (batch_size - len(documents))
        longest = max(len(ids) for ids, _ in rows)
        ids = np.full((len(rows), longest), self.config.pad_token_id, np.int32)
        mask = np.zeros(ids.shape, bool)
        for row, (document, _) in enumerate(rows):
            ids[row, : len(document)], mask[row, : len(document)] = document, True
        out = jax.device_get(self._generated(ids, mask, options, seed))
        return [
            self._summary(document, whole, sequence, int(length), bool(ended))
            for (document, whole), sequence, length, ended in zip(
                documents, out.sequences, out.lengths, out.ended, strict=False
            )
        ]

    def _summary(
        self, document: list[int], whole: int, sequence: np.ndarray, length: int, ended: bool
    ) -> Summary:
        text = self.tokenizer.decode(sequence[1 : 1 + length].tolist())
        return Summary(
            text, whole, len(document), whole - len(document), length, "eos" if ended else "limit"
        )

    def _generated(
        self,
        input_ids: Any,
        attention_mask: Any,
        options: GenerationOptions,
        seed: int,
        inputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Generated:
        padded = self.padded(*self._inputs(input_ids, attention_mask), inputs)
        # One key per row, the same for each: what a row draws does not depend on its place in a
        # batch.
        keys = (
            jnp.broadcast_to(jax.random.key(seed), (len(padded[0]),)) if options.do_sample else None
        )
        return self._generate(self._variables(padded), *padded, keys, options=options)

    def _inputs(self, input_ids: Any, attention_mask: Any) -> tuple[np.ndarray, np.ndarray]:
        ids = self._checked(input_ids, "input_ids")
        check_length(ids.shape[1], self.config.max_source_length, "input_ids")
        if attention_mask is None:
            return ids, ids != self.config.pad_token_id
        mask = np.asarray(attention_mask).astype(bool)
        if mask.shape != ids.shape:
            raise InputError(
                f"attention_mask has shape {mask.shape}, input_ids {ids.shape}; they must agree"
            )
        return ids, mask

    def _checked(self, ids: Any, name: str) -> np.ndarray:
        ids = np.asarray(ids)
        if ids.ndim != 2 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
            raise InputError(
                f"{name} has shape {ids.shape} and type {ids.dtype}; give integers [batch, length]"
            )
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise InputError(
                f"{name} holds {ids.min() if ids.min() < 0 else ids.max()}, outside the vocabulary of "
                f"{self.config.vocab_size}; was it made with another tokenizer?"
            )
        return ids.astype(np.int32)

    def padded(
        self, ids: np.ndarray, mask: np.ndarray, inputs: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Ids, mask and further inputs as the module takes them, at a length that is compiled
        once."""
        kind = get_encoder_attention(self.config)
        multiple = getattr(self.config, kind.pads_to) if kind.pads_to else 0
        extra = (
            (0, 0),
            (
                0,
                padded_length(ids.shape[1], max_input_length(self.config), multiple) - ids.shape[1],
            ),
        )
        further = {}
        for name, value in inputs.items():
            if name == "global_attention_mask" and "global_indices" in kind.inputs:
                further["global_indices"] = global_indices(like_ids(ids, value, name))
            elif name == "token_type_ids" and self.config.has_token_types:
                further[name] = np.pad(like_ids(ids, value, name), extra)
            else:
                raise InputError(
                    f"{name} is given, but {self.family.name} with this attention does not take it"
                )
        return (
            np.pad(ids, extra, constant_values=self.config.pad_token_id),
            np.pad(mask, extra),
            further,
        )

    def _variables(self, padded: tuple[np.ndarray, ...]) -> Mapping[str, Any]:
        """What the module is applied to: parameters, and the kernels that are kept for this
        length."""
        return {"params": self.params, **self._kernels(self.params, padded[0].shape[1])}

    def forget_kernels(self) -> None:
        """Frees the memory of the state-space kernels that are kept; the next call computes its own
        again."""
        self.__dict__.pop("_kernels", None)

    @cached_property
    def _kernels(self) -> KernelCache:
        return KernelCache(self.module, MAX_KERNEL_CACHE_BYTES)

    @cached_property
    def _by_segments(self) -> "SegmentSummarizer":
        from longsum_jax.inference.segments import SegmentSummarizer

        return SegmentSummarizer(self)

    @cached_property
    def _encode(self) -> Callable[..., Array]:
        return jax.jit(
            lambda variables, ids, mask, inputs: self.module.apply(
                variables, ids, mask, method="encode", **inputs
            )
        )

    @cached_property
    def _logits(self) -> Callable[..., Array]:
        return jax.jit(
            lambda variables, ids, mask, inputs, *rest: self.module.apply(
                variables, ids, mask, *rest, **inputs
            )
        )

    @cached_property
    def _generate(self) -> Callable[..., Generated]:
        return jax.jit(partial(_encode_and_decode, self.module), static_argnames="options")


def _encode_and_decode(
    module: Any,
    variables: Mapping[str, Any],
    ids: Array,
    mask: Array,
    inputs: Mapping[str, Array],
    keys: Array | None,
    *,
    options: GenerationOptions,
) -> Generated:
    """One compiled program from ids to sequences."""
    apply = partial(module.apply, variables)
    states = apply(ids, mask, method="encode", **inputs)
    cache = apply(states, mask, options.decoder_beams, options.max_new_tokens, method="init_cache")
    decoder = Decoder(partial(apply, method="decode_step"), DecoderCache.reorder)
    out = generate(decoder, cache, batch_size=ids.shape[0], options=options, rng=keys)
    if jax.sharding.get_abstract_mesh().empty:
        return out
    return jax.lax.with_sharding_constraint(out, PartitionSpec())  # whole on every host
