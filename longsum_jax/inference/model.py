"""A loaded model: encode, logits, generate, save."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import jax
import numpy as np

from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.sentence_modules import (
    SentenceModules,
    write_sentence_modules,
)
from longsum_jax.decoding.options import GenerationOptions, of_whole_texts
from longsum_jax.decoding.search import trim
from longsum_jax.errors import InputError
from longsum_jax.inference import forward
from longsum_jax.inference.decoder_storage import check_storage
from longsum_jax.inference.padding import (
    BUCKET,
    PaddedInputs,
    check_target_length,
    kernel_limit,
)
from longsum_jax.inference.runner import Runner
from longsum_jax.models.family import Family
from longsum_jax.models.registry import max_input_length
from longsum_jax.ops.storage import Storage
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Array, Params

# Optional inputs of some encoders, in addition to ids and mask.
_EXTRA_INPUTS = ("global_attention_mask", "token_type_ids")
# The method to call instead of ``generate``, by head.
_OTHER_USES = {"extraction": "extract", "question_answering": "answer"}


class AuxiliaryModels(NamedTuple):
    """Functions that load the auxiliary models of a model; None for methods without a model.

    The field names match ``SegmentInputOptions`` and the subdirectories of a
    model directory.

    Attributes:
        extractor: loader of a model that selects important sentences; None to
            select central sentences (``text.salient_text``).
        sentence_encoder: loader of a model that embeds sentences; None for
            TF-IDF vectors.
    """

    extractor: "Callable[[], LoadedModel] | None" = None
    sentence_encoder: "Callable[[], LoadedModel] | None" = None

    def loaders(self) -> "dict[str, Callable[[], LoadedModel]]":
        """Returns the functions by the names of their models, without None."""
        loaders = self._asdict().items()
        return {name: load for name, load in loaders if load is not None}

    def fingerprints(self) -> dict[str, str]:
        """Loads the models; returns hashes of weights and tokenizers by name."""
        return {
            name: load().text_fingerprint
            for name, load in self.loaders().items()
        }

    def writers(self) -> dict[str, Callable[[Path], None]]:
        """Returns functions that save the models, by the names of their subdirectories."""
        return {
            name: partial(_save, load) for name, load in self.loaders().items()
        }

    def named_inside(self, summarization: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``summarization`` with each model name replaced by its subdirectory."""
        inside = {name: name for name in self.loaders()}
        if not inside or "segments" not in summarization:
            return dict(summarization)
        return {
            **summarization,
            "segments": {**summarization["segments"], **inside},
        }


class LoadedModel:
    """A model family's module with parameters and a tokenizer.

    Arrays of ids may have any length up to the model's maximum: they are padded
    to one of a few lengths (``inference.padding.bucket_length``), each compiled
    once, and neither padding nor other rows change the result of a row. Results
    are without the padding. Threads may share a model; a process forked after
    the model was loaded gets an InputError when it uses the model.

    Attributes:
        family: the model family, see ``models.registry``.
        config: the family's config dataclass, a ``ModelConfig``.
        module: the Flax module.
        params: the module's parameter tree, which may be replaced.
        tokenizer: the tokenizer. A model that was loaded without one
            (``has_tokenizer`` is False) reads and generates token ids, but not
            texts; accessing this attribute then raises InputError. It may be
            set.
        generation_config: defaults of ``generate`` under their
            generation_config names.
        summarization: settings of ``summarize`` in the checkpoint's
            config.json: "prefix", options of ``generate``, and "segments" for
            models that read segment by segment.
        auxiliary: functions that load the extractor and the sentence encoder of
            a model that reads segment by segment.
        decoder_storage: storage type of the decoder's weights and of the
            document's keys and values in decoding, see ``load``.
        sentence_modules: pooling, dense layers and normalization that map the
            encoder states to the embedding of a sentence, from the modules.json
            of a sentence-transformers directory; None without that file, for
            the mean of the states.
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
        """The tokenizer that was passed to ``load``, or the model directory's.

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
        """The module's parameter tree."""
        return self._runner.params

    @params.setter
    def params(self, params: Params) -> None:
        self._runner.params = params

    def __repr__(self) -> str:
        """Returns family, parameters, attention, longest input and dtype in one line."""
        about = [
            self.family.name,
            f"{_short_count(self.num_parameters)} parameters",
            f"{self.config.encoder_attention} encoder attention",
            self._longest_input(),
            self.config.dtype,
        ]
        return f"{type(self).__name__}({', '.join(about)})"

    def _longest_input(self) -> str:
        # The model's positions, and the length up to which kernels are exact.
        limits = (max_input_length(self.config), kernel_limit(self.config))
        finite = [limit for limit in limits if limit is not None]
        if finite:
            return f"up to {min(finite):,} tokens"
        return "inputs of any length"

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
    def text_fingerprint(self) -> str:
        """A short hash of everything that determines the vectors of texts."""
        fingerprint = f"{self.fingerprint}-{self.tokenizer.fingerprint}"
        if self.sentence_modules is None:
            return fingerprint
        return f"{fingerprint}-{self.sentence_modules.fingerprint}"

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
        ``pass_global_tokens_to_decoder`` return [batch, num_global_tokens +
        length, d_model], global tokens first: the states that their decoders
        attend to.

        Args:
            input_ids: int [batch, length].
            attention_mask: [batch, length], nonzero on real tokens; default:
                all except padding ids.
            layer: number of layers to apply, from 0 (embeddings) to the number
                of layers; None for all. The states are equal to the output of
                an encoder with only this many layers: if the encoder ends with
                a final norm (T5, mBART, PEGASUS), the norm is applied to them.
            bucket: padding unit; inputs are padded to a multiple of this number
                of tokens, above eight buckets to a larger multiple
                (``inference.padding.bucket_length``). A smaller value means
                less padding, but more compilations. Without effect if the
                attention itself requires padded lengths.
            **inputs: further inputs of some models under their Hugging Face
                names, [batch, length]: for LED and Longformer
                ``global_attention_mask``, nonzero on tokens with global
                attention (LED defaults to the first token, transformers to no
                token); for BERT ``token_type_ids``.

        Raises:
            InputError: ids outside the vocabulary, more tokens than the model
                reads, mismatched shapes, or an invalid layer.
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

        Entry [b, i] scores the token after ``decoder_input_ids[b, i]``. Models
        with a head other than "language_model" accept no ``decoder_input_ids``;
        their logits depend on the head:

            masked_lm               [batch, length, vocab]
            causal_lm               [batch, length, vocab], next-token logits
            token_classification    [batch, length, num_labels]
            question_answering      [batch, length, 2], start and end of an answer
            classification          [batch, num_labels]
            multiple_choice         [batch, choices]

        Args:
            input_ids, attention_mask, bucket, **inputs: inputs as for
                ``encode``; [batch, choices, length] for "multiple_choice".
            decoder_input_ids: int [batch, target_length], beginning with the
                start token (``config.decoder_start_token_id``).

        Raises:
            InputError: as ``encode``; missing, superfluous or mismatched
                ``decoder_input_ids``; or a model without a head.
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
        """Generates a sequence of token ids for every row of input ids.

        Args:
            input_ids: int [batch, length].
            attention_mask: [batch, length], nonzero on real tokens; default:
                all except padding ids.
            seed: random seed for sampling.
            **options: further inputs as for ``encode``, and generation options
                under their generation_config names, such as ``num_beams``, see
                ``decoding.options.GenerationOptions``. Defaults come from the
                attribute ``generation_config``. None disables an option, except
                for the maximum length and the start token, which keep their
                defaults.

        Returns:
            int32 [batch * num_return_sequences, <= 1 + max_new_tokens], in the
            layout of transformers' ``generate``: start token first, padding
            after the end, and the sequences of a row in succession.

        Raises:
            InputError: a model that generates no text, unknown or invalid
                options, ids outside the vocabulary, more tokens than the model
                reads, mismatched shapes.
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
        """Returns the options that ``generate`` would use.

        Raises:
            InputError: a model that generates no text, or unknown or invalid
                options.
        """
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

    def with_params(self, params: Params) -> Self:
        """Returns the same model with other parameters."""
        return self._replace(self.config, params)

    def _replace(self, config: Any, params: Params) -> Self:
        model = type(self)(
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

        The directory is in Hugging Face layout, for ``longsum_jax.load``.
        Auxiliary models (``AuxiliaryModels``), which select and embed sentences
        of segments, are written to the subdirectories ``extractor`` and
        ``sentence_encoder``. No weights are written for a model whose
        ``params`` is None.

        Args:
            path: directory to create; an existing one must be empty.
            dtype: dtype of the weights in the file; state-space kernels and
                auxiliary models keep theirs. None for the dtype of ``params``.

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


def _save(load: Callable[[], LoadedModel], directory: Path) -> None:
    load().save(directory)


def _short_count(number: int) -> str:
    """Returns "34.2M" for 34,200,000."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)
