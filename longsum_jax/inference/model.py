"""A loaded model: encode, logits, generate, summarize, save."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.sentence_modules import (
    SentenceModules,
    write_sentence_modules,
)
from longsum_jax.conversion.cross_attention import with_cross_attention
from longsum_jax.conversion.lsg import to_lsg, with_lsg_options
from longsum_jax.conversion.positions import Extension, extend_positions
from longsum_jax.conversion.warm_start import warm_start
from longsum_jax.decoding.options import GenerationOptions, of_whole_texts
from longsum_jax.decoding.search import Generated, trim
from longsum_jax.errors import InputError
from longsum_jax.inference import answers, forward, sentences
from longsum_jax.inference.auxiliary import AuxiliaryModels
from longsum_jax.inference.decoder_storage import check_storage
from longsum_jax.inference.description import describe
from longsum_jax.inference.devices import on_devices
from longsum_jax.inference.documents import (
    DocumentSummarizer,
)
from longsum_jax.inference.memory_engine import MemoryEngine
from longsum_jax.inference.padding import (
    BUCKET,
    PaddedInputs,
    check_target_length,
    document_inputs,
)
from longsum_jax.inference.programs import EncodedDocuments
from longsum_jax.inference.runner import Runner
from longsum_jax.inference.segments import SegmentSummarizer, segment_options
from longsum_jax.inference.stream import Result, summarize_stream
from longsum_jax.inference.summarizer import make_engine, summarize_all
from longsum_jax.inference.summary import (
    BatchSize,
    Overflow,
    Request,
    Strategy,
    Summary,
)
from longsum_jax.inference.summary_options import (
    SummaryOptions,
    check_arguments,
    make_requests,
)
from longsum_jax.models.family import Family
from longsum_jax.models.registry import FAMILIES
from longsum_jax.ops.storage import Storage
from longsum_jax.ranking.selection import Length
from longsum_jax.text.joining import BLANK_LINE, document_token_id
from longsum_jax.text.prompts import Prompt, make_prompt
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.files import DOCUMENT_TOKEN
from longsum_jax.typing import Array, Params

# Optional inputs of some encoders, in addition to ids and mask.
_EXTRA_INPUTS = ("global_attention_mask", "token_type_ids")
# The method to call instead of ``generate``, by head.
_OTHER_USES = {"extraction": "extract", "question_answering": "answer"}


class Model:
    """A model family's module with parameters and a tokenizer.

    Arrays of ids may have any length: they are padded to one of a few lengths
    (``bucket_length``), each compiled once, and neither padding nor other rows
    change the result of a row. Threads may share a model; a process forked
    after the model was loaded gets an InputError when it uses it.

    Attributes:
        config: the family's config dataclass.
        module: the Flax module.
        params: the module's parameter tree, which may be replaced.
        tokenizer: the tokenizer; InputError if the directory has none, in which
            case only ids are accepted and returned.
        generation_config: defaults of ``generate`` under their
            generation_config names.
        summarization: settings of ``summarize`` in the checkpoint's
            config.json: "prefix", options of ``generate``, and "segments" for
            models that read segment by segment.
        auxiliary: extractor and sentence encoder of a model that reads segment
            by segment.
        decoder_storage: storage type of the decoder's weights and the
            document's keys in decoding, see ``load``.
        sentence_modules: modules of a directory of sentence-transformers, which
            make the vectors of sentences; None for mean states.
    """

    def __init__(
        self,
        family: Family,
        config: Any,
        params: Params | None,
        tokenizer: Tokenizer | None = None,
        generation_config: dict[str, Any] | None = None,
        summarization: dict[str, Any] | None = None,
        auxiliary: AuxiliaryModels | None = None,
        decoder_storage: Storage = "float32",
        sentence_modules: SentenceModules | None = None,
    ) -> None:
        check_storage(config, decoder_storage)
        self.family = family
        self.config = config
        self._tokenizer = tokenizer
        self._runner = Runner(family, config, params, decoder_storage)
        self.module = self._runner.module
        self.generation_config = family.generation_config(
            config, generation_config or {}
        )
        self.summarization = summarization or {}
        self.auxiliary = auxiliary or AuxiliaryModels()
        self.decoder_storage = decoder_storage
        self.sentence_modules = sentence_modules

    @property
    def has_tokenizer(self) -> bool:
        """True if the model has a tokenizer, so that it accepts text and not only ids."""
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            InputError: the model directory has no tokenizer, and none was
                passed to ``load``.
        """
        if self._tokenizer is None:
            raise InputError(
                "the model directory holds no tokenizer; load it with tokenizer=PATH"
            )
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def params(self) -> Params:
        return self._runner.params

    @params.setter
    def params(self, params: Params) -> None:
        self._runner.params = params

    def __repr__(self) -> str:
        """Returns family, parameters, attention, longest input and dtype in one line."""
        return f"Model({describe(self)})"

    def __reduce__(self) -> Any:
        """Raises InputError: compiled programs can be neither pickled nor copied."""
        raise InputError(
            "a model cannot be pickled or copied; give processes the path of its directory, and "
            "let each load it"
        )

    @property
    def num_parameters(self) -> int:
        """The number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    @property
    def first_id(self) -> int | None:
        """Id of the tokenizer's first prefix token; None without tokenizer or prefix."""
        if self.has_tokenizer:
            return next(iter(self.tokenizer.prefix_ids), None)
        return None

    @property
    def fingerprint(self) -> str:
        """A short hash of the parameters; equal fingerprints mean equal weights."""
        digest = hashlib.blake2b(digest_size=8)
        for leaf in jax.tree.leaves(self.params):
            # As bytes, because bfloat16 arrays do not support the buffer
            # protocol.
            digest.update(
                np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data
            )
        return digest.hexdigest()

    @property
    def config_fingerprint(self) -> str:
        """A short hash of the model's config and its summarization settings."""
        settings = self.family.config_json(self.config), self.summarization
        text = json.dumps(settings, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def encode(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        layer: int | None = None,
        bucket: int = BUCKET,
        **inputs: Any,
    ) -> Array:
        """Returns encoder states, float32 [batch, length, d_model].

        Encoder-decoders with LSG attention and
        ``pass_global_tokens_to_decoder`` return [batch, num_globals + length,
        d_model], global tokens first: the full input of their decoders.

        Args:
            input_ids: int [batch, length].
            attention_mask: mask as for ``generate``.
            layer: number of layers to apply, from 0 (embeddings) to the number
                of layers; None for all. The states are equal to the output of
                an encoder with only this many layers: if the encoder ends with
                a final norm (T5, mBART, PEGASUS), the norm is applied to them.
            bucket: token count to whose multiples the inputs are padded; a
                smaller one computes less and compiles more.
            **inputs: further inputs of some models under their Hugging Face
                names, [batch, length]: for LED and Longformer
                ``global_attention_mask``, nonzero on tokens with global
                attention (LED defaults to the first token, transformers to no
                token); for BERT ``token_type_ids``.

        Raises:
            InputError: ids outside the vocabulary, mismatched shapes, or an
                invalid layer.
        """
        return forward.encode(
            self._runner, input_ids, attention_mask, inputs, layer, bucket
        )

    def logits(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        decoder_input_ids: Any = None,
        *,
        bucket: int = BUCKET,
        **inputs: Any,
    ) -> Array:
        """Returns teacher-forced logits, float32 [batch, target_length, vocab].

        Models without a decoder accept no ``decoder_input_ids``. Their logits
        depend on the head:

            masked_lm               [batch, length, vocab]
            causal_lm               [batch, length, vocab], next-token logits
            token_classification    [batch, length, num_labels]
            question_answering      [batch, length, 2], start and end of an answer
            classification          [batch, num_labels]
            multiple_choice         [batch, choices]

        Args:
            input_ids, attention_mask, bucket, **inputs: inputs as for
                ``encode``; [batch, choices, length] for "multiple_choice".
            decoder_input_ids: int [batch, target_length].
        """
        return forward.logits(
            self._runner,
            input_ids,
            attention_mask,
            decoder_input_ids,
            inputs,
            bucket,
        )

    def log_probs(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        target_ids: Any = None,
        *,
        bucket: int = BUCKET,
        **inputs: Any,
    ) -> Array:
        """Returns the log-probability of every target token given the input and earlier targets.

        Their sum is the log-likelihood of the target text given the input.
        Padding at the end of a row of targets is scored like any token and does
        not affect earlier positions.

        Args:
            input_ids, attention_mask, bucket, **inputs: inputs as for
                ``encode``.
            target_ids: int [batch, target_length], special tokens included.

        Returns:
            float32 [batch, target_length].

        Raises:
            InputError: a model without a decoder, ids outside the vocabulary,
                mismatched shapes.
        """
        return forward.log_probs(
            self._runner, input_ids, attention_mask, target_ids, inputs, bucket
        )

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        seed: int = 0,
        **options: Any,
    ) -> np.ndarray:
        """Decodes summaries.

        Args:
            input_ids: int [batch, length].
            attention_mask: [batch, length], nonzero on real tokens; default:
                all except padding ids.
            seed: random seed for sampling.
            **options: further inputs as for ``encode``, and generation options
                under their generation_config names (max_new_tokens, num_beams,
                length_penalty, no_repeat_ngram_size, early_stopping,
                min_new_tokens, repetition_penalty, do_sample, temperature,
                top_k, top_p, ...). Defaults come from ``generation_config``;
                None disables an option.

        Returns:
            int32 [batch * num_return_sequences, <= 1 + max_new_tokens], in the
            layout of transformers' ``generate``: start token first, padding
            after the end.

        Raises:
            InputError: unknown or invalid options, ids outside the vocabulary,
                mismatched shapes.
        """
        # Separate the encoder's inputs from generation options.
        inputs = {
            name: options.pop(name) for name in _EXTRA_INPUTS if name in options
        }
        generation = of_whole_texts(
            self.generation_options(**options), options, "generate"
        )
        return trim(
            self._runner.generate(
                input_ids, attention_mask, generation, seed, inputs
            )
        )

    def generation_options(self, **options: Any) -> GenerationOptions:
        """Returns the options that ``generate`` would use."""
        return self._options(self.generation_config, options)

    def _options(
        self, generation_config: Mapping[str, Any], options: Mapping[str, Any]
    ) -> GenerationOptions:
        if self.config.head != "language_model":
            other = _OTHER_USES.get(self.config.head, "encode or logits")
            raise InputError(
                f"this model ({self._runner.name}) cannot generate; use {other}"
            )
        limit = self.config.max_target_length
        shortest = options.get("min_new_tokens")
        # beyond the limit, no max_new_tokens is long enough
        if isinstance(shortest, int):
            check_target_length(shortest, limit, "min_new_tokens")
        result = GenerationOptions.from_config(generation_config, **options)
        check_target_length(result.max_new_tokens, limit, "max_new_tokens")
        return result

    def summary_options(self, **options: Any) -> GenerationOptions:
        """Returns the options that ``summarize`` would use.

        Options for summaries in the checkpoint override its general generation
        options.

        Raises:
            InputError: as ``generation_options``, or num_return_sequences above
                1.
        """
        settings = huggingface.summary_generation_config(
            self.generation_config, self.summarization
        )
        # Some checkpoints set num_return_sequences; a document has exactly one
        # summary.
        settings["num_return_sequences"] = None
        result = self._options(settings, options)
        if result.num_return_sequences > 1:
            raise InputError(
                f"num_return_sequences={result.num_return_sequences}: a document gets one summary; "
                "use generate for several sequences"
            )
        return result

    def summarize(
        self, texts: Sequence[str] | str, **options: Any
    ) -> list[str]:
        """Returns a summary of every document; takes the arguments of ``summaries``."""
        return [summary.text for summary in self.summaries(texts, **options)]

    def summaries(
        self,
        texts: Sequence[str | list[str]] | str,
        *,
        strategy: Strategy | str = "auto",
        length: str | int | Length | None = None,
        max_source_length: int | None = None,
        segment_length: int | None = None,
        on_overflow: Overflow = "truncate",
        batch_size: BatchSize = 1,
        seed: int = 0,
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        prompt: str | None = None,
        join: bool = False,
        **options: Any,
    ) -> list[Summary]:
        """Summarizes documents in batches of ``batch_size`` documents of similar length.

        A finished document is replaced by the next one
        (``inference.continuous``). With segment memories and on a mesh, the
        documents of a batch start and end together instead.

        The checkpoint's settings (``summarization``) are the defaults: its
        prefix is prepended to every input, and its options apply unless
        overridden here. If they contain "segments", documents of any length are
        read and summarized segment by segment (``segments``).

        Args:
            texts: one or more documents; a list of several documents is read as
                one, as with ``join``.
            strategy: strategy for reading documents (``inference.strategies``);
                ``Summary.strategy`` records the strategy that was used:

                    direct        the whole document, or its beginning
                    extract       sentences that fit, selected by the ranker
                    segments      each segment; summaries are concatenated
                    hierarchical  each segment, then the summaries of segments
                    refine        each segment with the summary of earlier ones
                    memory        segments with a memory, as in training
                    auto          memory if the model has segment settings,
                                  otherwise direct for documents that fit, and
                                  hierarchical for longer ones
            length: length of each whole summary: "short" (75 words), "medium"
                (150), "long" (400), "250 words", "7 sentences" or "5%" of the
                document's words; a number counts words. Summaries are cut at
                sentence ends and have at least one sentence. None leaves the
                length to the model.
            max_source_length: maximum tokens to read of each document,
                including special tokens, at least 2. None reads everything, or
                with "direct" up to the model's number of positions. With
                "memory", reading ends after a complete segment.
            segment_length: tokens of an input when documents are cut; default:
                the model's number of positions, or 1,024. With "auto", longer
                documents are cut.
            on_overflow: behavior for documents longer than
                ``max_source_length``, or with "direct" than the model's
                positions: "truncate" reads their beginning, "error" raises.
            batch_size: documents or segments decoded together; affects speed
                and memory, not results. "auto" picks the fastest number on
                CPUs, at most 16, reduced if keys and values would take more
                than 2 GiB; with "memory" it is 1.
            seed: random seed for sampling.
            names: document names for error messages; default: "document 1",
                "document 2", ...
            queries: question or topic of each summary, or None; a query is
                prepended to its document or to every segment, or replaces
                "{query}" in the prompt.
            prompt: text around each document or segment, with the field
                "{document}" and possibly "{query}". None uses the checkpoint's
                prefix; models with a chat template and without a prefix get an
                instruction to summarize. With a chat template, the prompt is
                the message of the user. Special tokens in documents are read as
                text.
            join: True to read all documents as one, with the first name and
                query. If the tokenizer has PRIMERA's document token, this token
                follows each document and has global attention; otherwise an
                empty line separates the documents.
            **options: options of ``generate``, but with one sequence per
                document.

        Returns:
            A summary of every document, or one of all documents with ``join``,
            and statistics on the tokens read.

        Raises:
            InputError: no tokenizer, an empty text, a document that is too long
                with on_overflow="error" or for the model, an unknown or
                unsupported strategy, a number or length out of range, or
                num_return_sequences above 1.
        """
        check_arguments(options)
        call = SummaryOptions(
            strategy=strategy,
            length=length,
            max_source_length=max_source_length,
            segment_length=segment_length,
            on_overflow=on_overflow,
            batch_size=batch_size,
            seed=seed,
            prompt=prompt,
        )
        engine = make_engine(self, call, options)
        requests = make_requests(
            texts, names, queries, self.separator, join=join
        )
        return summarize_all(engine, requests, longest_first=batch_size != 1)

    def read_lengths(
        self,
        texts: Sequence[str | list[str]] | str,
        *,
        strategy: Strategy | str = "auto",
        max_source_length: int | None = None,
        segment_length: int | None = None,
        on_overflow: Overflow = "truncate",
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        prompt: str | None = None,
        join: bool = False,
    ) -> list[int]:
        """Returns the token count of the longest input that ``summaries`` makes of each document.

        Args:
            texts, strategy, max_source_length, segment_length: as for
                ``summaries``.
            on_overflow, names, queries, prompt, join: as for ``summaries``.

        Raises:
            InputError: as ``summaries``, or the model reads segment by segment.
        """
        call = SummaryOptions(
            strategy=strategy,
            max_source_length=max_source_length,
            segment_length=segment_length,
            on_overflow=on_overflow,
            prompt=prompt,
        )
        engine = make_engine(self, call, {})
        if isinstance(engine, MemoryEngine):
            raise InputError(
                f"this model ({self._runner.name}) reads segment by segment, so its memory does "
                "not depend on a document's length"
            )
        requests = make_requests(
            texts, names, queries, self.separator, join=join
        )
        return [engine.longest_input(request) for request in requests]

    def stream(
        self,
        requests: Iterable[Request],
        *,
        strategy: Strategy | str = "auto",
        length: str | int | Length | None = None,
        max_source_length: int | None = None,
        segment_length: int | None = None,
        on_overflow: Overflow = "truncate",
        batch_size: BatchSize = 1,
        seed: int = 0,
        prompt: str | None = None,
        on_segment: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Iterator[list[Result]]:
        """Summarizes a stream of documents; a thread reads and tokenizes ahead.

        Args:
            requests: documents with their names and queries
                (``summary.Request``); may be a generator.
            strategy, length, max_source_length, segment_length: options of
                ``summaries``.
            on_overflow, seed, prompt, **options: options of ``summaries``.
            batch_size: batch size as for ``summaries``. With "auto", documents
                of similar lengths are grouped within a window of 64.
            on_segment: callback with the summary of each segment as soon as it
                is finished; for strategies "segments" and "memory" with
                batch_size=1.

        Yields:
            In order of completion, lists of document indices in ``requests``
            with their summaries, or with the InputError for a document that
            cannot be summarized.

        Raises:
            InputError: as ``summaries``, except for errors that concern a
                single document.
        """
        call = SummaryOptions(
            strategy=strategy,
            length=length,
            max_source_length=max_source_length,
            segment_length=segment_length,
            on_overflow=on_overflow,
            batch_size=batch_size,
            seed=seed,
            prompt=prompt,
        )
        engine = make_engine(self, call, options, on_segment)
        return summarize_stream(engine.work(), requests, batch_size)

    @property
    def trained_strategy(self) -> Strategy:
        """The strategy that the model was trained for: "memory" or "direct"."""
        if "segments" in self.summarization:
            return "memory"
        return "direct"

    def prompt(self, template: str | None = None) -> Prompt:
        """Returns the text around every document, see ``summaries``.

        Args:
            template: prompt of the user; None for the model's default.

        Raises:
            InputError: the template has no field for the document, or the
                model's chat template fails.
        """
        return make_prompt(
            self.tokenizer, template, self.summarization.get("prefix")
        )

    @property
    def separator(self) -> str:
        """The separator between documents that are read as one, see ``text.joining``."""
        if self._document_id is None:
            return BLANK_LINE
        return DOCUMENT_TOKEN

    @cached_property
    def _document_id(self) -> int | None:
        if self.has_tokenizer:
            return document_token_id(self.tokenizer)
        return None

    def extract(
        self, documents: Sequence[str | list[str]] | str, **options: Any
    ) -> list[list[int]]:
        """Selects sentences of documents with a model trained by ``configs/extractor.py``.

        Args:
            documents: texts, which are split into sentences
                (``text.sentences``), or lists of sentences.
            **options: ``queries``, a text or None for each document, as in
                training; ``threshold``, the probability above which a sentence
                is selected (0.5); ``top_k``, the number of sentences selected
                if none is above the threshold (3); ``batch_size``, sentences
                encoded together (64).

        Returns:
            For each document the indices of the selected sentences, ascending.

        Raises:
            InputError: a model of another kind, no tokenizer, a document
                without sentences, an option out of range.
        """
        return sentences.extract(self, documents, **options)

    def answer(
        self,
        questions: Sequence[str] | str,
        documents: Sequence[str] | str,
        **options: Any,
    ) -> list[answers.Answer]:
        """Finds the answer to each question in its document with a question answering head.

        Args:
            questions, documents: one question per document, or a single pair of
                texts.
            **options: ``max_answer_length``, maximum answer length in tokens
                (30); ``batch_size``, document windows read together (16).

        Raises:
            InputError: a model of another kind, no tokenizer, a value that is
                not a text, an empty document, a question that leaves no room
                for the document, an option out of range.
        """
        return answers.answer(self, questions, documents, **options)

    def extended(
        self, max_source_length: int, extension: Extension = "tiled"
    ) -> "Model":
        """Returns this model with positions for ``max_source_length`` tokens.

        See ``conversion.positions``.
        """
        config, params = extend_positions(
            self.family, self.config, self.params, max_source_length, extension
        )
        return self._replace(config, params)

    def to_lsg(
        self, max_source_length: int | None = None, **options: Any
    ) -> "Model":
        """Returns this model with LSG attention in place of full attention.

        See ``conversion.lsg.to_lsg``. Global tokens are initialized from the
        tokenizer's first and mask tokens unless ``first_id`` and ``mask_id``
        are passed.
        """
        # Explicit ids override the tokenizer's.
        ids: dict[str, Any] = {
            name: options.pop(name)
            for name in ("first_id", "mask_id")
            if name in options
        }
        if not self.has_tokenizer and len(ids) < 2:
            raise InputError(
                "the model directory holds no tokenizer, which defines the first and the mask "
                "token for LSG's global tokens; load it with tokenizer=PATH"
            )
        if self.has_tokenizer:
            ids = {
                "first_id": self.first_id,
                "mask_id": self.tokenizer.mask_id,
            } | ids
        config, params = to_lsg(
            self.family,
            self.config,
            self.params,
            **ids,
            max_source_length=max_source_length,
            **options,
        )
        return self._replace(config, params)

    def with_decoder(
        self,
        decoder: "Model",
        *,
        start_id: int | None = None,
        end_id: int | None = None,
        seed: int = 0,
    ) -> "Model":
        """Returns an encoder-decoder of this encoder and a second one, to be fine-tuned.

        The second model becomes the decoder, with random cross-attentions; see
        ``conversion.warm_start``. A summary begins and ends with the special
        tokens of this model's tokenizer unless ``start_id`` and ``end_id`` are
        given.

        Args:
            decoder: encoder with the same vocabulary, possibly this model.
            start_id, end_id: ids of the tokens that begin and end a summary.
            seed: seed of the random parameters.

        Raises:
            InputError: see ``conversion.warm_start``.
        """
        if self.has_tokenizer:
            special = self.tokenizer.add_special_tokens([])
        else:
            special = []
        if len(special) > 1:
            if start_id is None:
                start_id = special[0]
            if end_id is None:
                end_id = special[-1]
        encoder, other = (
            (m.family, m.config, m.params) for m in (self, decoder)
        )
        config, params = warm_start(
            encoder, other, start_id=start_id, end_id=end_id, seed=seed
        )
        return Model(
            FAMILIES["encoder-decoder"], config, params, self._tokenizer
        )

    def with_lsg_options(self, **options: Any) -> "Model":
        """Returns this model with other options of its LSG attention, such as the global tokens."""
        return self._replace(
            with_lsg_options(self.config, **options), self.params
        )

    def with_cross_attention(
        self, cross_attention: str, **options: Any
    ) -> "Model":
        """Returns this model with another cross-attention over the same parameters.

        Args:
            cross_attention: name in
                ``layers.attention.registry.CROSS_ATTENTIONS`` of a
                cross-attention without additional parameters.
            **options: options of the cross-attention, such as ``hepos_stride``.

        Raises:
            InputError: the model has no decoder, the cross-attention is unknown
                or has additional parameters, or an option is out of range.
        """
        config = with_cross_attention(
            self.family, self.config, cross_attention, **options
        )
        return self._replace(config, self.params)

    @contextmanager
    def on_all_devices(
        self, devices: Sequence[jax.Device] | None = None
    ) -> Iterator["Model"]:
        """Yields a model that splits every batch over devices for the duration of the block.

            with model.on_all_devices() as parallel:
                summaries = parallel.summaries(texts, batch_size="auto")

        The documents of a batch then start and end together. With one device,
        it yields this model.

        Args:
            devices: devices to use, by default all local ones; each stores all
                parameters.
        """
        if devices is None:
            devices = jax.local_devices()
        else:
            devices = list(devices)
        if len(devices) == 1:
            yield self
            return
        with on_devices(self.params, devices) as params:
            yield self.with_params(params)

    def with_params(self, params: Params) -> "Model":
        """Returns the same model with other parameters."""
        return self._replace(self.config, params)

    def _replace(self, config: Any, params: Params) -> "Model":
        model = Model(
            self.family,
            config,
            params,
            self._tokenizer,
            self.generation_config,
            self.summarization,
            self.auxiliary,
            self.decoder_storage,
            self.sentence_modules,
        )
        # Programs depend only on the config; parameters are their arguments.
        if config is self.config:
            model._runner.share_programs(self._runner)
        return model

    def save(
        self,
        path: str | Path,
        *,
        dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    ) -> None:
        """Writes config.json, generation_config.json, model.safetensors and tokenizer files.

        Auxiliary models are written to the subdirectories ``extractor`` and
        ``sentence_encoder``. Parameters that are None are omitted.

        Args:
            path: a new directory.
            dtype: dtype of the weights in the file; state-space kernels and
                auxiliary models keep theirs. None keeps the dtype of
                ``params``.

        Raises:
            InputError: the directory is not empty or not writable, a weight is
                out of range for ``dtype``, or an auxiliary model cannot be
                loaded.
        """
        huggingface.write_model(
            path,
            self.family,
            self.config,
            self.params,
            self.generation_config,
            self._tokenizer,
            self.auxiliary.named_inside(self.summarization),
            self._writers(),
            dtype,
        )

    def _writers(self) -> dict[str, Callable[[Path], None]]:
        """Returns functions that write further files, by their subdirectory."""
        writers = self.auxiliary.writers()
        if self.sentence_modules is None:
            return writers
        write = partial(
            write_sentence_modules,
            modules=self.sentence_modules,
            d_model=self.config.d_model,
        )
        return {".": write, **writers}

    def padded(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        inputs: Mapping[str, Any],
        bucket: int = BUCKET,
    ) -> PaddedInputs:
        """Returns padded inputs of the module; see ``padding.pad_inputs``."""
        return self._runner.padded(ids, mask, inputs, bucket)

    def check_process(self) -> None:
        """Raises InputError in a process that was forked after the model was loaded."""
        self._runner.check_process()

    def to_host(self) -> None:
        """Moves the parameters to host memory; calls then copy them to the device every time."""
        self._runner.to_host()

    def to_device(self) -> None:
        """Moves parameters from host memory to the device."""
        self._runner.to_device()

    def forget_kernels(self) -> None:
        """Frees the cached state-space kernels; the next call recomputes them."""
        self._runner.kernels.forget()

    @property
    def segment_summarizer(self) -> SegmentSummarizer:
        """The summarizer for models that were trained to read segment by segment."""
        # it compiles programs of its own, outside of the runner
        self.check_process()
        return self._segment_summarizer

    @cached_property
    def _segment_summarizer(self) -> SegmentSummarizer:
        options = segment_options(self.summarization)
        self.auxiliary.check(options)
        return SegmentSummarizer(
            self.module,
            self.tokenizer.plain,
            options,
            pad=partial(self.padded, inputs={}),
            auxiliary=self.auxiliary.functions(),
            storage=self.decoder_storage,
        )

    @property
    def segment_decoder(self) -> DocumentSummarizer:
        """The summarizer for segments that carry no memory."""
        return DocumentSummarizer(
            self.config,
            self.tokenizer.plain,
            generate=partial(self._runner.generate, inputs={}),
            make_slots=partial(
                self._runner.slots, partial(self.padded, inputs={})
            ),
        )

    @property
    def document_summarizer(self) -> DocumentSummarizer:
        """The summarizer for documents that fit in one input."""
        return DocumentSummarizer(
            self.config,
            self.tokenizer.plain,
            generate=self._generate,
            make_slots=partial(self._runner.slots, self.padded_document),
        )

    def _generate(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        options: GenerationOptions,
        seed: int,
    ) -> Generated:
        return self._runner.generate(
            ids, mask, options, seed, self._document_inputs(ids)
        )

    def padded_document(
        self, ids: np.ndarray, mask: np.ndarray
    ) -> PaddedInputs:
        """Returns the padded encoder inputs of documents, with their global attention."""
        return self.padded(ids, mask, self._document_inputs(ids))

    def encoded_documents(
        self, ids: np.ndarray, mask: np.ndarray
    ) -> EncodedDocuments:
        """Returns encoded documents for ``programs.NoisySearch``.

        Args:
            ids: int32 [batch, length].
            mask: bool [batch, length], True on real tokens.
        """
        return self._runner.encoded(self.padded_document(ids, mask))

    def _document_inputs(self, ids: np.ndarray) -> Mapping[str, np.ndarray]:
        return document_inputs(ids, self._document_id, self.config)
