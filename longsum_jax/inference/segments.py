"""Summaries of documents of any length in constant device memory: segment by segment, as the model
was trained."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate
from longsum_jax.errors import InputError
from longsum_jax.inference.model import Model
from longsum_jax.inference.sentences import encoder_at, extractor_at
from longsum_jax.inference.summary import Overflow, Summary
from longsum_jax.layers.decoder import DecoderCache
from longsum_jax.models.encoder_decoder import DocumentMemory, EncoderDecoder
from longsum_jax.models.salient_vectors import keep_vectors, no_vectors, seen_vectors
from longsum_jax.schema import from_dict
from longsum_jax.text.segment_inputs import SegmentInputOptions, SegmentInputs, read_segment_inputs
from longsum_jax.typing import Array, Params


class SegmentSummarizer:
    """Reads and summarises with a model whose config.json says how it reads segments.

    Every segment goes through the same compiled program: it is encoded with what is remembered, its
    summary is searched for with the decoder's memory as it is, and the summary that was found goes
    through the decoder once more, to be remembered. Summaries of segments are joined (AWESOME,
    appendix A).
    """

    def __init__(self, model: Model) -> None:
        self._model, self._module = model, model.module
        self._options = from_dict(
            SegmentInputOptions, model.summarization["segments"], "config.json: segments"
        )
        self._start = jax.jit(partial(_start, self._module), static_argnums=(1, 2, 3))
        self._step = jax.jit(
            partial(_step, self._module), static_argnames="options", donate_argnames="memory"
        )
        self._keep = jax.jit(partial(_keep, self._module), donate_argnames="kept")

    def summaries(
        self,
        texts: Sequence[str],
        names: Sequence[str],
        queries: Sequence[str | None],
        generation: GenerationOptions,
        *,
        max_tokens: int | None,
        on_overflow: Overflow,
        batch_size: int,
        seed: int,
    ) -> list[Summary]:
        """As ``Model.summaries``; ``max_tokens`` of a document are read, in whole segments."""
        given = list(zip(texts, names, queries, strict=True))
        results: list[Summary] = []
        for start in range(0, len(given), batch_size):
            readings = [
                self._read(*each, max_tokens, on_overflow)
                for each in given[start : start + batch_size]
            ]
            results += self._summarize(readings, batch_size, generation, seed)
        return results

    def _read(
        self, text: str, name: str, query: str | None, limit: int | None, on_overflow: Overflow
    ) -> SegmentInputs:
        if not text.strip():
            raise InputError(f"{name} is empty; give it some text or leave it out")
        reading = read_segment_inputs(
            text,
            self._model.tokenizer,
            self._options,
            prefix=self._model.summarization.get("prefix", ""),
            query=query,
            max_tokens=limit,
            extract=partial(extractor_at(self._options.extractor), query=query),
            encoder=encoder_at(self._options.sentence_encoder),
        )
        if on_overflow == "error" and limit is not None and reading.total_tokens > limit:
            raise InputError(
                f"{name} has {reading.total_tokens} tokens, more than max_source_length={limit}; "
                "raise it, or allow on_overflow=truncate"
            )
        return reading

    def _summarize(
        self, readings: list[SegmentInputs], rows: int, generation: GenerationOptions, seed: int
    ) -> list[Summary]:
        params = self._model.params
        count, given = max(len(reading.sources) for reading in readings), len(readings)
        # The last batch is filled up with copies, so that it runs through the same compiled
        # programs.
        readings = readings + readings[-1:] * (rows - given)
        segments = [self._segment(readings, index) for index in range(count)]
        memory, kept = self._start(
            params, rows, segments[0]["ids"].shape[1], generation.max_new_tokens
        )
        if self._options.salient == "vectors":
            for segment in segments:
                kept = self._keep(params, kept, segment["ids"], segment["mask"], segment["slots"])
        keys = jnp.broadcast_to(jax.random.key(seed), (rows,)) if generation.do_sample else None
        found = []
        for segment in segments:
            salient = (kept, segment["reads"]) if "reads" in segment else None
            inputs = segment["ids"], segment["mask"], memory, salient, keys
            out, memory = self._step(params, *inputs, options=generation)
            found.append(jax.device_get(out))
        return [self._summary(reading, row, found) for row, reading in enumerate(readings[:given])]

    def _segment(self, readings: Sequence[SegmentInputs], index: int) -> dict[str, np.ndarray]:
        """Arrays of segment ``index`` of all documents; rows of documents that have ended are
        padding."""
        options, rows = self._options, len(readings)
        there = [
            (row, reading) for row, reading in enumerate(readings) if index < len(reading.sources)
        ]
        ids = np.full((rows, options.segment_length), self._model.config.pad_token_id, np.int32)
        mask = np.zeros(ids.shape, bool)
        for row, reading in there:
            source = reading.sources[index]
            ids[row, : len(source)], mask[row, : len(source)] = source, True
        ids, mask, _ = self._model.padded(ids, mask, {})
        segment = {"ids": ids, "mask": mask}
        if options.salient == "vectors":
            segment |= {"slots": np.full(ids.shape, -1, np.int32)}
            segment |= {"reads": np.full((rows, options.num_vectors), -1, np.int32)}
            for row, reading in there:
                slots, reads = reading.vectors(options)
                segment["slots"][row, : slots.shape[1]], segment["reads"][row] = (
                    slots[index],
                    reads[index],
                )
        return segment

    def _summary(self, reading: SegmentInputs, row: int, found: Sequence[Generated]) -> Summary:
        found = found[: len(reading.sources)]
        lengths = [int(out.lengths[row]) for out in found]
        ids = [
            out.sequences[row, 1 : 1 + length].tolist()
            for out, length in zip(found, lengths, strict=True)
        ]
        texts = [self._model.tokenizer.decode(part).strip() for part in ids]
        ended = all(bool(out.ended[row]) for out in found)
        return Summary(
            text=" ".join(text for text in texts if text),
            document_tokens=reading.total_tokens,
            read_tokens=reading.read_tokens,
            dropped_tokens=reading.total_tokens - reading.read_tokens,
            summary_tokens=sum(lengths),
            ended="eos" if ended else "limit",
        )


def _start(
    module: EncoderDecoder, params: Params, rows: int, length: int, target_length: int
) -> tuple[DocumentMemory, Array]:
    """What is remembered, and what is kept of important tokens, before the first segment."""
    memory = module.apply({"params": params}, rows, length, target_length, method="init_memory")
    return memory, no_vectors(module.config, rows)


def _keep(
    module: EncoderDecoder, params: Params, kept: Array, ids: Array, mask: Array, slots: Array
) -> Array:
    return module.apply({"params": params}, kept, ids, mask, slots, method=keep_vectors)


def _step(
    module: EncoderDecoder,
    params: Params,
    ids: Array,
    mask: Array,
    memory: DocumentMemory,
    salient: tuple[Array, Array] | None,
    keys: Array | None,
    *,
    options: GenerationOptions,
) -> tuple[Generated, DocumentMemory]:
    """One compiled program for every segment: what is generated, and what is remembered after it.

    ``salient`` are what was kept of important tokens and which of it this segment sees.
    """
    apply = partial(module.apply, {"params": params})
    inputs = {} if salient is None else {"salient": seen_vectors(*salient)}
    states, memory = apply(ids, mask, memory, method="read_segment", **inputs)
    cache = apply(
        states, mask, options.decoder_beams, options.max_new_tokens, memory, method="init_cache"
    )
    decoder = Decoder(partial(apply, method="decode_step"), DecoderCache.reorder)
    out = generate(decoder, cache, batch_size=ids.shape[0], options=options, rng=keys)
    written = (jnp.arange(options.max_new_tokens) < out.lengths[:, None]) & mask.any(
        1, keepdims=True
    )
    _, memory = apply(out.sequences[:, :-1], written, states, mask, memory, method="write_segment")
    if not jax.sharding.get_abstract_mesh().empty:
        out = jax.lax.with_sharding_constraint(out, PartitionSpec())  # whole on every host
    return out, memory
