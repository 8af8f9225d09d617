"""Generation options with their generation_config names, and reading of generation_config.json."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, cast

import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.schema import (
    Count,
    Positive,
    PositiveFloat,
    Range,
    SizeOrNone,
    check_ranges,
    from_dict,
)

_CONFIG = "generation_config"
MAX_NEW_TOKENS = 2**16  # far more than any decoder was trained to generate
_Beams = Annotated[int, Range(1, 1024)]
_Drafted = Annotated[int, Range(0, 64)]
# Each token of an n-gram takes operations of its own. Thousands of tokens
# would take long to compile: 1,500 take 20 s on a CPU.
_LONGEST_NGRAM = 64
_Ngram = Annotated[int, Range(1, _LONGEST_NGRAM)]
_NgramOrNone = Annotated[int, Range(0, _LONGEST_NGRAM)]
_TopP = Annotated[float, Range(0, 1, above=True)]

# Options of transformers that are not implemented here, with the values
# (besides None) that have no effect.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "assistant_early_exit": (),
    "begin_suppress_tokens": ([],),
    "constraints": (),
    "diversity_penalty": (0.0,),
    "dola_layers": (),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1.0,),
    "low_memory": (False,),
    "max_time": (),
    "num_beam_groups": (1,),
    "penalty_alpha": (0.0,),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
    "sequence_bias": (),
    "stop_strings": (),
    "token_healing": (False,),
    "use_mtp": (False,),
    "watermarking_config": (),
}
_NEUTRAL_UNLESS_SAMPLING: dict[str, tuple[Any, ...]] = {
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "min_p": (0.0,),
    "top_h": (),
    "typical_p": (1.0,),
}
_UNIMPLEMENTED = _NEUTRAL.keys() | _NEUTRAL_UNLESS_SAMPLING.keys()

# Keys of a generation_config that never change the ids that this library
# generates.
_NO_EFFECT = frozenset(
    {
        "assistant_confidence_threshold",
        "assistant_ensemble_weight",
        "assistant_lookbehind",
        "bos_token_id",
        "cache_config",
        "cache_implementation",
        "compile_config",
        "continuous_batching_config",
        "disable_compile",
        "is_assistant",
        "max_cache_len",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "prefill_chunk_size",
        "return_dict_in_generate",
        "return_legacy_cache",
        "speculation_type",
        "target_lookbehind",
        "transformers_version",
        "use_cache",
    }
)

# Lengths that include the start token, and the options that count only new
# tokens.
_LENGTHS = {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}

_REQUIRED = ("max_length", "max_new_tokens", "decoder_start_token_id")
# Options for which an absent value differs from a disabled option.
_OFF = {"top_k": 0, "min_new_tokens": 0, "prompt_lookup_num_tokens": 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options of generation; hashable, so that they can be a static argument of ``jax.jit``.

    Names and meanings are the same as in transformers' GenerationConfig, except
    for ``segments_no_repeat_ngram_size``, which is specific to this library.
    Lengths are in new tokens: the start token is not counted.

    Attributes:
        max_new_tokens: maximum number of new tokens.
        decoder_start_token_id: id of the start token.
        eos_token_id: end-of-sequence id or ids; stored as a tuple.
        pad_token_id: id after the end of a sequence; None for the first
            end-of-sequence id or, without one, the start token.
        min_new_tokens: minimum number of new tokens before the end.
        num_beams: number of beams; 1 for greedy search or sampling.
        length_penalty: exponent p of beam scores, log-probability / length**p
            (``num_beams`` > 1); a larger p favors longer beams.
        early_stopping: time at which a beam search ends (``num_beams`` > 1):
            True for as soon as ``num_beams`` sequences are finished; False for
            when no running beam has a better score at its current length than
            the worst of them; "never" for when none can have one at any length.
        no_repeat_ngram_size: size of n-grams that a sequence does not repeat;
            0 for no limit.
        encoder_no_repeat_ngram_size: size of n-grams that are not copied from
            the document; 0 for no limit.
        segments_no_repeat_ngram_size: size of n-grams that are not repeated
            from summaries of earlier segments, for models that read a document
            segment by segment; 0 for no limit.
        repetition_penalty: factor above 1 against tokens that occur in the
            sequence; 1 for none.
        do_sample: True to sample tokens instead of choosing the best ones.
        temperature: divisor of the logits (``do_sample``).
        top_k: number of most likely tokens to sample from; 0 for all
            (``do_sample``).
        top_p: probability mass of the most likely tokens to sample from
            (``do_sample``).
        forced_bos_token_id: id of the first new token; None for any.
        forced_eos_token_id: id or ids allowed at the maximum length; stored as
            a tuple.
        bad_words_ids: sequences of tokens that are not generated.
        suppress_tokens: ids that are not generated.
        num_return_sequences: number of sequences per document.
        prompt_lookup_num_tokens: number of tokens that a step of greedy search
            drafts from the document or the sequence (``decoding.drafts``). The
            step keeps the drafted tokens that greedy search would have chosen.
            0 for none.
        max_matching_ngram_size: maximum length of the n-gram at the end of the
            sequence that is looked up in the document and in the sequence. The
            draft consists of the tokens that followed it there.

    Raises:
        InputError: a value out of range, or incompatible options.
    """

    max_new_tokens: Annotated[int, Range(1, MAX_NEW_TOKENS)]
    decoder_start_token_id: Count
    eos_token_id: Count | tuple[Count, ...] | None = None
    pad_token_id: Count | None = None
    min_new_tokens: SizeOrNone = 0
    num_beams: _Beams = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    no_repeat_ngram_size: _NgramOrNone = 0
    encoder_no_repeat_ngram_size: _NgramOrNone = 0
    segments_no_repeat_ngram_size: _NgramOrNone = 0
    repetition_penalty: PositiveFloat = 1.0
    do_sample: bool = False
    temperature: PositiveFloat = 1.0
    top_k: Count = 50
    top_p: _TopP = 1.0
    forced_bos_token_id: Count | None = None
    forced_eos_token_id: Count | tuple[Count, ...] | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[Count, ...] = ()
    num_return_sequences: Positive = 1
    prompt_lookup_num_tokens: _Drafted = 0
    max_matching_ngram_size: _Ngram = 2

    def __post_init__(self) -> None:
        for name in ("eos_token_id", "forced_eos_token_id"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))
        if self.pad_token_id is None:
            if self.eos_ids:
                first_eos = self.eos_ids[0]
            else:
                first_eos = self.decoder_start_token_id
            object.__setattr__(self, "pad_token_id", first_eos)
        check_ranges(self)
        _check_values(self)
        _check_combinations(self)

    @property
    def padding_id(self) -> int:
        """``pad_token_id``, with None resolved."""
        return cast(int, self.pad_token_id)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], **overrides: Any
    ) -> "GenerationOptions":
        """Builds options from a mapping in the format of generation_config.json and ``overrides``.

        Args:
            config: parsed file; ``max_length`` and ``min_length`` include the
                start token, and are used if ``max_new_tokens`` and
                ``min_new_tokens`` are absent. Null means "not set". Without
                ``decoder_start_token_id``, ``bos_token_id`` is the start token.
                A minimum length above the maximum is lowered to it, as in
                transformers: no sequence then ends before the maximum.
            **overrides: options by name; they override ``config``. None
                disables an option, but leaves the maximum length and the start
                token as they are. A minimum length above the maximum is an
                error here.

        Raises:
            InputError: an unknown name, a value of the wrong type or out of
                range, an option that this library does not implement with a
                value that would change the output, or no length limit.
        """
        _check_names(config, overrides)
        values = _merge(config, overrides)
        _refuse_unimplemented(values)
        values.setdefault("decoder_start_token_id", values.get("bos_token_id"))
        for length, new_tokens in _LENGTHS.items():
            if (
                values.get(new_tokens) is None
                and values.get(length) is not None
            ):
                values[new_tokens] = max(_count(length, values[length]) - 1, 0)
        if values.get("max_new_tokens") is None:
            raise InputError(
                f"max_new_tokens is set neither here nor in {_CONFIG}; give the longest output in "
                "tokens"
            )
        if overrides.keys().isdisjoint(("min_length", "min_new_tokens")):
            longest = _count("max_new_tokens", values["max_new_tokens"])
            shortest = _count("min_new_tokens", values.get("min_new_tokens", 0))
            values["min_new_tokens"] = min(shortest, longest)
        fields = {f.name for f in dataclasses.fields(cls)}
        return from_dict(
            cls,
            {k: v for k, v in values.items() if k in fields and v is not None},
            _CONFIG,
        )

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """``eos_token_id`` as a tuple."""
        return _as_tuple(self.eos_token_id)

    @property
    def forced_eos_ids(self) -> tuple[int, ...]:
        """``forced_eos_token_id`` as a tuple."""
        return _as_tuple(self.forced_eos_token_id)

    @property
    def decoder_beams(self) -> int:
        """Number of beams per document in the decoder's cache."""
        if self.do_sample:
            return self.num_return_sequences
        return self.num_beams


def of_whole_texts(
    options: GenerationOptions, explicit: Mapping[str, Any], how: str
) -> GenerationOptions:
    """Returns ``options`` without the options for segments, for models that read whole texts.

    Args:
        options: generation options.
        explicit: options passed explicitly in the call.
        how: description of the call, for the error message.

    Raises:
        InputError: an option for segments in ``explicit``.
    """
    name = "segments_no_repeat_ngram_size"
    if explicit.get(name):
        raise InputError(
            f'{name}={explicit[name]} is for strategy="memory" of models that were trained to read '
            f"segment by segment, not for {how}; give no_repeat_ngram_size"
        )
    return dataclasses.replace(options, segments_no_repeat_ngram_size=0)


def _as_tuple(ids: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{_CONFIG}.{name}: expected int, got {value!r}")
    return value


def check_option_names(
    names: Iterable[str], also: Collection[str] = ()
) -> None:
    """Raises InputError for a name that is not a generation option.

    Args:
        names: option names as passed by the caller.
        also: other argument names of the function, to suggest in the message.
    """
    options = _options()
    for name in names:
        if name in also:
            raise InputError(
                f'generate: "{name}" is not an option of generation; leave it out'
            )
        if name not in options | _UNIMPLEMENTED:
            meant = did_you_mean(name, options.union(also))
            raise InputError(f'generate: unknown option "{name}"; {meant}')


def _options() -> set[str]:
    return {f.name for f in dataclasses.fields(GenerationOptions)}.union(
        _LENGTHS
    )


def _check_names(
    config: Mapping[str, Any], overrides: Mapping[str, Any]
) -> None:
    check_option_names(overrides)
    options = _options()
    for name, value in config.items():
        is_known = (
            name in options | _UNIMPLEMENTED | _NO_EFFECT
            or name.startswith("_")
        )
        if not is_known and value is not None:
            raise InputError(
                f'{_CONFIG}: unknown key "{name}"={value!r}; {did_you_mean(name, options)}'
            )


def _merge(
    config: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values that are set; overrides take precedence over ``config``.

    An override of ``max_length`` also replaces ``max_new_tokens`` and vice versa,
    and likewise the minimum.
    """
    values = {
        name: value for name, value in config.items() if value is not None
    }
    values = _without_other_name(values, overrides)
    for name, value in overrides.items():
        if isinstance(value, np.generic):
            value = value.item()
        if value is None and name in _REQUIRED:
            continue  # required for decoding: None keeps the checkpoint's value
        if value is None:
            values[name] = _OFF.get(name)
        else:
            values[name] = value
    return {name: value for name, value in values.items() if value is not None}


def with_options(
    config: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a generation config in which ``options`` replace values.

    A length has two names: ``max_length`` and ``min_length`` count the start
    token of the decoder, ``max_new_tokens`` and ``min_new_tokens`` do not. An
    option under one name also removes the value under the other name.

    Args:
        config: content of generation_config.json.
        options: values by name.
    """
    return {**_without_other_name(config, options), **options}


def _without_other_name(
    values: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values without lengths that an override sets under the other name."""
    left = dict(values)
    for length, new_tokens in _LENGTHS.items():
        if (
            overrides.get(length) is not None
            and overrides.get(new_tokens) is None
        ):
            left.pop(new_tokens, None)
        if overrides.get(new_tokens) is not None:
            left.pop(length, None)
        is_off = length in overrides and overrides[length] is None
        if (
            is_off
            and new_tokens not in overrides
            and new_tokens not in _REQUIRED
        ):
            left.pop(new_tokens, None)
    return left


def _refuse_unimplemented(values: Mapping[str, Any]) -> None:
    neutral = _NEUTRAL | (
        _NEUTRAL_UNLESS_SAMPLING if values.get("do_sample") else {}
    )
    for name, allowed in neutral.items():
        value = values.get(name)
        if value is not None and value not in allowed:
            raise InputError(
                f"{_CONFIG}.{name}={value!r} is not supported; pass {name}=None to decode without "
                "it"
            )


def _check_values(o: GenerationOptions) -> None:
    if o.early_stopping not in (True, False, "never"):
        raise InputError(
            f'early_stopping={o.early_stopping!r} must be true, false or "never"'
        )
    if not all(word and min(word) >= 0 for word in o.bad_words_ids):
        raise InputError(
            f"bad_words_ids={o.bad_words_ids!r} must be lists of at least one token id, from 0 on"
        )


def _check_combinations(o: GenerationOptions) -> None:
    if o.min_new_tokens > o.max_new_tokens:
        raise InputError(
            f"min_new_tokens={o.min_new_tokens} must be at most max_new_tokens={o.max_new_tokens}; "
            "lower the one or raise the other"
        )
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        forced = _as_tuple(getattr(o, name))
        if forced and set(forced) <= set(o.suppress_tokens):
            raise InputError(
                f"{name}={getattr(o, name)} forces what suppress_tokens={o.suppress_tokens} "
                "forbids; leave either out"
            )
    if o.do_sample and o.num_beams > 1:
        raise InputError(
            f"do_sample=True with num_beams={o.num_beams} is not supported; set num_beams=1"
        )
    if o.prompt_lookup_num_tokens and (o.do_sample or o.num_beams > 1):
        if o.do_sample:
            search = "do_sample=True"
            greedy = "do_sample=False"
        else:
            search = f"num_beams={o.num_beams}"
            greedy = "num_beams=1"
        raise InputError(
            f"prompt_lookup_num_tokens={o.prompt_lookup_num_tokens} is for greedy search, not for "
            f"{search}; set it to 0, or {greedy}"
        )
    if not o.do_sample and o.num_return_sequences > o.num_beams:
        raise InputError(
            f"num_return_sequences={o.num_return_sequences} needs num_beams of at least that many, "
            f"or do_sample=True, not num_beams={o.num_beams}"
        )
