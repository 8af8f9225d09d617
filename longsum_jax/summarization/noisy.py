"""Unfaithful summaries by noisy decoding, as rejected summaries for preference training."""

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.decoding.noise import noisy_cache, noisy_decoder
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.sampling import row_keys
from longsum_jax.decoding.search import Generated, generate
from longsum_jax.errors import InputError
from longsum_jax.inference.programs import (
    EncodedDocuments,
    Program,
    cached_decoder,
    empty_cache,
    replicated,
)
from longsum_jax.layers.partitioning import constrain_rows
from longsum_jax.summarization.documents import DocumentSummarizer
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_options import (
    OptionChanges,
    SummaryOptions,
    make_options,
)
from longsum_jax.typing import Array, Params


class NoisySearch:
    """Runs the compiled noisy search with two modules, see ``decoding.noise``.

    Args:
        conditional: module that reads the documents.
        unconditional: module from which the noise is sampled.
    """

    def __init__(self, conditional: Any, unconditional: Any) -> None:
        static = ("batch_size", "options")
        search = partial(_noisy_search, conditional, unconditional)
        self.program = Program(search, static_argnames=static)

    def __call__(
        self,
        conditional: EncodedDocuments,
        unconditional: EncodedDocuments,
        keys: Array,
        noise: float,
        *,
        batch_size: int,
        options: GenerationOptions,
    ) -> Generated:
        """Decodes encoded documents.

        Args:
            conditional: the documents, encoded by the module that reads them.
            unconditional: as many empty documents, encoded by the other module.
            keys: PRNG keys of the rows.
            noise: probability with which a token is sampled from the
                unconditional module.
            batch_size: number of documents.
            options: generation options with sampling.
        """
        arguments = conditional, unconditional, keys, jnp.float32(noise)
        return self.program(*arguments, batch_size=batch_size, options=options)


class NoisySummarizer(Model):
    """Summarizes documents by ``decoding.noise``: a share of the tokens ignores the document.

    A summary depends on the document, the seed and the options, not on the
    other documents of a batch. The unconditional model reads an empty document
    in its prompt.

    Args:
        model: model that reads the documents.
        unconditional: model that the noise is drawn from, with the same
            tokenizer; None for ``model``. SCOPE uses the model before
            fine-tuning.
        noise: probability with which a token is drawn from ``unconditional``.

    Raises:
        InputError: a probability outside [0, 1], a model without a decoder or
            that reads segment by segment, or another tokenizer or vocabulary.
    """

    def __init__(
        self, model: Model, unconditional: Model | None = None, *, noise: float
    ) -> None:
        if not 0 <= noise <= 1:
            raise InputError(
                f"noise={noise} is a probability; give a number between 0 and 1"
            )
        # The same model, with its programs; only its search differs.
        vars(self).update(vars(model))
        self._model = model
        self._other = unconditional
        self._unconditional = unconditional or model
        self._noise = noise
        for checked_model in (model, self._unconditional):
            _check_model(checked_model)
        _check_same_tokens(model, self._unconditional)

    def summaries(
        self,
        texts: Sequence[str | list[str]] | str,
        options: SummaryOptions | None = None,
        *,
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        join: bool = False,
        **changes: Unpack[OptionChanges],
    ) -> list[Summary]:
        """Returns a noisy summary of every document; arguments as for ``Model.summaries``.

        Documents are read in one piece, and tokens are sampled.

        Raises:
            InputError: as ``Model.summaries``, or a strategy other than
                "direct".
        """
        options = make_options(options, **changes)
        if options.strategy not in ("auto", "direct"):
            raise InputError(
                f'strategy="{options.strategy}", but noisy decoding reads documents in one piece; '
                "leave it out"
            )
        options = make_options(options, strategy="direct")
        return super().summaries(
            texts, options, names=names, queries=queries, join=join
        )

    @property
    def document_summarizer(self) -> DocumentSummarizer:
        """The summarizer for documents that are read in one piece."""
        return DocumentSummarizer(
            self.config,
            self.tokenizer.plain,
            generate=self._generate,
            make_slots=None,
        )

    @contextlib.contextmanager
    def on_all_devices(
        self, devices: Sequence[jax.Device] | None = None
    ) -> Iterator["NoisySummarizer"]:
        """Yields a summarizer that splits batches over devices, see ``Model.on_all_devices``."""
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            model = enter(self._model.on_all_devices(devices))
            other = None
            if self._other is not None:
                other = enter(self._other.on_all_devices(devices))
            yield NoisySummarizer(model, other, noise=self._noise)

    def _replace(self, config: Any, params: Params) -> "NoisySummarizer":
        model = self._model._replace(config, params)
        return NoisySummarizer(model, self._other, noise=self._noise)

    def summary_options(self, **options: Any) -> GenerationOptions:
        """Returns generation options with sampling enabled."""
        return super().summary_options(
            **{"do_sample": True, "num_beams": 1} | options
        )

    @cached_property
    def _search(self) -> NoisySearch:
        return NoisySearch(self.module, self._unconditional.module)

    @cached_property
    def _empty_ids(self) -> list[int]:
        """The ids of an empty document for the unconditional model."""
        prompt = self._unconditional.prompt()
        tokenizer = self.tokenizer.plain
        return prompt.source(tokenizer, prompt.encode(tokenizer, "", None))

    def _generate(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        options: GenerationOptions,
        seed: int,
    ) -> Generated:
        if not options.do_sample:
            raise InputError(
                "do_sample=False, but noisy decoding samples; leave it out"
            )
        # The unconditional model reads the same empty document in every row.
        empty = np.tile(np.array(self._empty_ids, np.int32), (len(ids), 1))
        return self._search(
            self.encoded_documents(ids, mask),
            self._unconditional.encoded_documents(
                empty, np.ones(empty.shape, bool)
            ),
            _document_keys(ids, mask, seed),
            self._noise,
            batch_size=len(ids),
            options=options,
        )


def _noisy_search(
    conditional_module: Any,
    unconditional_module: Any,
    conditional: EncodedDocuments,
    unconditional: EncodedDocuments,
    keys: Array,
    noise: Array,
    *,
    batch_size: int,
    options: GenerationOptions,
) -> Generated:
    # Each decoder has its own source and cache.
    decoders, caches = [], []
    for module, encoded in (
        (conditional_module, conditional),
        (unconditional_module, unconditional),
    ):
        params, weights, source = encoded
        source = constrain_rows(source)
        decoders.append(cached_decoder(module, params, weights, source))
        caches.append(
            constrain_rows(empty_cache(module, params, source, options))
        )
    # One key per beam [batch * beams], so that beams draw independent noise.
    beam_keys = row_keys(keys, batch_size, options.decoder_beams)
    decoder = noisy_decoder(
        decoders[0], decoders[1], noise=noise, keys=beam_keys
    )
    cache = noisy_cache(caches[0], caches[1], batch_size)
    out = generate(
        decoder, cache, batch_size=batch_size, options=options, rng=keys
    )
    return replicated(out)


def _document_keys(ids: np.ndarray, mask: np.ndarray, seed: int) -> jax.Array:
    """Returns a key for every document [batch], which depends on its ids and the seed only."""
    # Hash the ids, so that a summary does not depend on the batch.
    numbers = [
        zlib.crc32(row[is_token].tobytes())
        for row, is_token in zip(ids, mask, strict=True)
    ]
    fold_in = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return fold_in(jax.random.key(seed), jnp.array(numbers, jnp.uint32))


def _check_model(model: Model) -> None:
    if model.config.head != "language_model":
        raise InputError(
            f"{model!r} generates no text; give an encoder-decoder that was trained on summaries"
        )
    if model.trained_strategy == "memory":
        raise InputError(
            "the model reads documents segment by segment, but noisy decoding reads them in one "
            "piece; give a model that was trained to do so"
        )


def _check_same_tokens(model: Model, unconditional: Model) -> None:
    """Raises InputError unless the ids of both models stand for the same tokens."""
    tokens, other_tokens = (
        model.tokenizer.fingerprint,
        unconditional.tokenizer.fingerprint,
    )
    if tokens != other_tokens:
        raise InputError(
            f"the unconditional model has the tokenizer {other_tokens}, the model {tokens}; give "
            "models with the same tokenizer, such as the model before and after fine-tuning"
        )
    size, other_size = model.config.vocab_size, unconditional.config.vocab_size
    if size != other_size:
        raise InputError(
            f"the unconditional model has vocab_size={other_size}, the model {size}; give models "
            "with the same vocabulary"
        )
