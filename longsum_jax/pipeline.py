"""A loaded model: encode, logits, generate, summarise, save."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.checkpoints import huggingface
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate, trim
from longsum_jax.errors import InputError
from longsum_jax.models.t5 import DecoderCache
from longsum_jax.registry import Family
from longsum_jax.text.tokenizers import Tokenizer, load_tokenizer
from longsum_jax.typing import Array, Params

Overflow = Literal["truncate", "error"]
TRAINING_MODEL = "model"  # inside a training workdir: the model directory, its weights being in checkpoints/


class Summary(NamedTuple):
    """A summary and what became of its document; lengths in tokens, end of sequence included.

    Attributes:
        ended: "eos" when the summary ended by itself, "limit" when it was cut at ``max_new_tokens``.
    """

    text: str
    document_tokens: int
    read_tokens: int
    dropped_tokens: int
    summary_tokens: int
    ended: Literal["eos", "limit"]

    def report(self) -> dict[str, Any]:
        """Everything but the text, ready for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "text"}


class Model:
    """A model family's module with parameters and a tokenizer.

    Arrays of ids may have any length: they are padded to one of a few lengths (``bucket_length``), one compilation
    each, and neither padding nor other rows change the result of a row.

    Attributes:
        config: the family's config dataclass.
        module: the Flax module.
        params: its parameter tree.
        tokenizer: None when the directory had none; then only ids go in and out.
        generation_config: defaults of ``generate`` by their generation_config names.
    """

    def __init__(
        self,
        family: Family,
        config: Any,
        params: Params,
        tokenizer: Tokenizer | None = None,
        generation_config: dict[str, Any] | None = None,
    ) -> None:
        self.family, self.config, self.params, self.tokenizer = family, config, params, tokenizer
        self.module = family.module_class(config)
        self.generation_config = family.generation_config(config, generation_config or {})

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    @property
    def fingerprint(self) -> str:
        """A short hash of the parameters; equal fingerprints, equal weights."""
        digest = hashlib.blake2b(digest_size=8)
        for leaf in jax.tree.leaves(self.params):
            digest.update(np.ascontiguousarray(leaf).data)
        return digest.hexdigest()

    def encode(self, input_ids: Any, attention_mask: Any = None) -> Array:
        """Encoder states float32 [B, L, D] of ids int [B, L]; ``attention_mask`` as for ``generate``."""
        ids, mask = self._inputs(input_ids, attention_mask)
        states = self._encode(self.params, *_pad_to_bucket(ids, mask, self.config.pad_token_id))
        return states[:, : ids.shape[1]].astype(jnp.float32)

    def logits(self, input_ids: Any, attention_mask: Any, decoder_input_ids: Any) -> Array:
        """Teacher-forced logits float32 [B, T, V] for ``decoder_input_ids`` int [B, T]."""
        ids, mask = self._inputs(input_ids, attention_mask)
        decoder_ids = self._checked(decoder_input_ids, "decoder_input_ids")
        if len(decoder_ids) != len(ids):
            raise InputError(f"decoder_input_ids has {len(decoder_ids)} rows, input_ids {len(ids)}; they must agree")
        return self._logits(self.params, *_pad_to_bucket(ids, mask, self.config.pad_token_id), decoder_ids)

    def generate(self, input_ids: Any, attention_mask: Any = None, *, seed: int = 0, **options: Any) -> np.ndarray:
        """Decodes summaries.

        Args:
            input_ids: int [B, L].
            attention_mask: [B, L], nonzero on real tokens; by default all but padding ids.
            seed: of sampling.
            **options: under their generation_config names (max_new_tokens, num_beams, length_penalty,
                no_repeat_ngram_size, early_stopping, min_new_tokens, repetition_penalty, do_sample, temperature,
                top_k, top_p, ...); the rest comes from ``generation_config``, and None switches one off.

        Returns:
            int32 [B * num_return_sequences, <= 1 + max_new_tokens], laid out as transformers' generate does: start
            token first, padding after the end.

        Raises:
            InputError: unknown or impossible options, ids outside the vocabulary, shapes that differ.
        """
        return trim(self._generated(input_ids, attention_mask, self.generation_options(**options), seed))

    def generation_options(self, **options: Any) -> GenerationOptions:
        """The options that ``generate`` would use."""
        return GenerationOptions.from_config(self.generation_config, **options)

    def summarize(self, texts: Sequence[str] | str, **options: Any) -> list[str]:
        """Summaries of documents; see ``summaries``, which tells what was read and dropped besides."""
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
        **options: Any,
    ) -> list[Summary]:
        """Summarises documents one after another, ``batch_size`` at a time.

        Args:
            texts: documents, or one.
            max_source_length: tokens to read of each, end of sequence included, at least 2; None reads everything.
            on_overflow: what to do with longer documents: read their beginning, or raise.
            batch_size: documents decoded together; it changes speed and memory, not results.
            seed: of sampling.
            names: what error messages call the documents; by default they are counted.
            **options: as for ``generate``.

        Raises:
            InputError: no tokenizer, an empty text, a document that is too long with on_overflow="error", a
                batch_size or max_source_length out of range.
        """
        if self.tokenizer is None:
            raise InputError("the model directory holds no tokenizer; load it with tokenizer=PATH")
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size} must be at least 1")
        if max_source_length is not None and max_source_length < 2:
            raise InputError(f"max_source_length={max_source_length} must be at least 2, the end of sequence included")
        generation = self.generation_options(**{"num_return_sequences": None, **options})
        texts = [texts] if isinstance(texts, str) else list(texts)
        names = names or [f"document {i}" for i in range(1, len(texts) + 1)]
        documents = [
            self._read(text, name, max_source_length, on_overflow) for text, name in zip(texts, names, strict=True)
        ]
        results: list[Summary] = []
        for start in range(0, len(documents), batch_size):
            results += self._summarize_batch(documents[start : start + batch_size], batch_size, generation, seed)
        return results

    def save(self, path: str | Path) -> None:
        """Writes config.json, generation_config.json, model.safetensors and tokenizer files to a new directory."""
        huggingface.write_model(path, self.family, self.config, self.params, self.generation_config, self.tokenizer)

    def _read(self, text: str, name: str, limit: int | None, on_overflow: Overflow) -> tuple[list[int], int]:
        """Ids to read, and the length of the whole document."""
        if not text.strip():
            raise InputError(f"{name} is empty; give it some text or leave it out")
        ids = [*self.tokenizer.encode(text), self.config.eos_token_id]
        if limit is None or len(ids) <= limit:
            return ids, len(ids)
        if on_overflow == "error":
            raise InputError(
                f"{name} has {len(ids)} tokens, more than max_source_length={limit}; "
                "raise it, or allow on_overflow=truncate"
            )
        return [*ids[: limit - 1], self.config.eos_token_id], len(ids)

    def _summarize_batch(
        self, documents: list[tuple[list[int], int]], batch_size: int, options: GenerationOptions, seed: int
    ) -> list[Summary]:
        # The last batch is filled up with copies, so that it runs through the same compiled program.
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

    def _summary(self, document: list[int], whole: int, sequence: np.ndarray, length: int, ended: bool) -> Summary:
        text = self.tokenizer.decode(sequence[1 : 1 + length].tolist())
        return Summary(text, whole, len(document), whole - len(document), length, "eos" if ended else "limit")

    def _generated(self, input_ids: Any, attention_mask: Any, options: GenerationOptions, seed: int) -> Generated:
        ids, mask = self._inputs(input_ids, attention_mask)
        ids, mask = _pad_to_bucket(ids, mask, self.config.pad_token_id)
        # One key per row, the same for each: what a row draws does not depend on its place in a batch.
        keys = jnp.broadcast_to(jax.random.key(seed), (ids.shape[0],)) if options.do_sample else None
        return self._generate(self.params, ids, mask, keys, options=options)

    def _inputs(self, input_ids: Any, attention_mask: Any) -> tuple[np.ndarray, np.ndarray]:
        ids = self._checked(input_ids, "input_ids")
        if attention_mask is None:
            return ids, ids != self.config.pad_token_id
        mask = np.asarray(attention_mask).astype(bool)
        if mask.shape != ids.shape:
            raise InputError(f"attention_mask has shape {mask.shape}, input_ids {ids.shape}; they must agree")
        return ids, mask

    def _checked(self, ids: Any, name: str) -> np.ndarray:
        ids = np.asarray(ids)
        if ids.ndim != 2 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
            raise InputError(f"{name} has shape {ids.shape} and type {ids.dtype}; give integers [batch, length]")
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise InputError(
                f"{name} holds {ids.min() if ids.min() < 0 else ids.max()}, outside the vocabulary of "
                f"{self.config.vocab_size}; was it made with another tokenizer?"
            )
        return ids.astype(np.int32)

    @cached_property
    def _encode(self) -> Callable[..., Array]:
        return jax.jit(lambda params, ids, mask: self.module.apply({"params": params}, ids, mask, method="encode"))

    @cached_property
    def _logits(self) -> Callable[..., Array]:
        return jax.jit(lambda params, *inputs: self.module.apply({"params": params}, *inputs))

    @cached_property
    def _generate(self) -> Callable[..., Generated]:
        return jax.jit(partial(_encode_and_decode, self.module), static_argnames="options")


def _encode_and_decode(
    module: Any, params: Params, ids: Array, mask: Array, keys: Array | None, *, options: GenerationOptions
) -> Generated:
    """One compiled program from ids to sequences."""
    apply = partial(module.apply, {"params": params})
    states = apply(ids, mask, method="encode")
    cache = apply(states, mask, options.decoder_beams, options.max_new_tokens, method="init_cache")
    decoder = Decoder(partial(apply, method="decode_step"), DecoderCache.reorder)
    out = generate(decoder, cache, batch_size=ids.shape[0], options=options, rng=keys)
    if jax.sharding.get_abstract_mesh().empty:
        return out
    return jax.lax.with_sharding_constraint(out, PartitionSpec())  # whole on every host


def bucket_length(length: int) -> int:
    """The padded length of ``length`` tokens: multiples of 64, above 512 at most an eighth longer."""
    step = max(64, 2 ** (length - 1).bit_length() // 16)
    return -(-length // step) * step


def _pad_to_bucket(ids: np.ndarray, mask: np.ndarray, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    extra = ((0, 0), (0, bucket_length(ids.shape[1]) - ids.shape[1]))
    return np.pad(ids, extra, constant_values=pad_id), np.pad(mask, extra)


def load(
    path: str | Path,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    tokenizer: str | Path | None = None,
    which: Literal["best", "latest"] = "best",
) -> Model:
    """Loads a model directory or a training workdir.

    Args:
        path: a directory in Hugging Face layout (as published, or written by ``save`` or ``convert``), or the workdir
            of a training run.
        dtype: of the computation; parameters stay float32.
        tokenizer: a .model file or directory to use instead of the one in ``path``.
        which: of a training run: the best checkpoint by its evaluation, or the latest.

    Raises:
        InputError: names the file that is missing, damaged or does not fit.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path}: no such directory; give a model directory or a training workdir")
    run = path / TRAINING_MODEL
    directory = run if (run / huggingface.CONFIG).exists() else path
    family, config = huggingface.read_config(directory, dtype=dtype)
    if directory is run:
        params = _trained_params(path, family, config, which)
    else:
        params = huggingface.read_params(directory, family, config)
    return Model(
        family,
        config,
        jax.tree.map(jnp.asarray, params),
        _tokenizer(tokenizer, directory, config.vocab_size),
        huggingface.read_generation_config(directory),
    )


def _trained_params(workdir: Path, family: Family, config: Any, which: Literal["best", "latest"]) -> Params:
    """Parameters of a training run, which must be those of the config beside them."""
    from longsum_jax.checkpoints.training import check_names, describe, restore_params

    params = restore_params(workdir, which=which)
    wanted = {name: [list(shape), ""] for name, shape in family.parameter_shapes(config).items()}
    check_names(wanted, describe(params), str(workdir), "parameters of the checkpoint")
    return params


def _tokenizer(given: str | Path | None, directory: Path, vocab_size: int) -> Tokenizer | None:
    if given is not None:
        return load_tokenizer(given, vocab_size=vocab_size)
    names = ("spiece.model", "tokenizer_config.json", "tokenizer.json")
    if any((directory / name).exists() for name in names):
        return load_tokenizer(directory, vocab_size=vocab_size)
    return None
