import dataclasses
import inspect

import numpy as np
import pytest

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError

# The generation_config.json of a published BART summariser.
_BART = {
    "_from_model_config": True,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "early_stopping": True,
    "eos_token_id": 2,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "length_penalty": 2.0,
    "max_length": 142,
    "min_length": 56,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
    "pad_token_id": 1,
    "transformers_version": "4.27.0.dev0",
}
_SMALL = {"max_new_tokens": 8, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def test_a_published_config_counts_its_start_token():
    options = GenerationOptions.from_config(_BART)
    assert (options.max_new_tokens, options.min_new_tokens) == (141, 55)
    assert (options.num_beams, options.early_stopping, options.length_penalty) == (4, True, 2.0)
    assert (options.eos_token_id, options.forced_eos_token_id, options.forced_bos_token_id) == (
        (2,),
        (2,),
        0,
    )


def test_drafts_match_as_many_tokens_as_in_transformers():
    from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

    theirs = inspect.signature(PromptLookupCandidateGenerator).parameters
    default = GenerationOptions(**_SMALL).max_matching_ngram_size
    assert default == theirs["max_matching_ngram_size"].default


def test_overrides_win_and_none_switches_off():
    options = GenerationOptions.from_config(
        _BART,
        max_new_tokens=30,
        min_length=None,
        forced_bos_token_id=None,
        num_beams=None,
        length_penalty=1,
    )
    assert (options.max_new_tokens, options.min_new_tokens) == (30, 0)
    assert (options.forced_bos_token_id, options.num_beams, options.length_penalty) == (
        None,
        1,
        1.0,
    )
    assert GenerationOptions.from_config(_SMALL, eos_token_id=None).eos_token_id == ()


def test_numbers_of_numpy_are_those_of_python():
    given = {"max_new_tokens": np.int64(30), "length_penalty": np.float32(0.5), "num_beams": 2}
    options = GenerationOptions.from_config(_SMALL, **given, early_stopping=np.bool_(True))
    assert (options.max_new_tokens, options.length_penalty) == (30, 0.5)
    assert type(options.max_new_tokens) is int
    assert options.early_stopping is True


def test_lengths_given_in_the_other_unit_win_too():
    assert GenerationOptions.from_config(_SMALL, max_length=100).max_new_tokens == 99
    config = _SMALL | {"min_new_tokens": 4, "min_length": 9}
    assert GenerationOptions.from_config(config).min_new_tokens == 4
    assert GenerationOptions.from_config(config, min_length=3).min_new_tokens == 2
    assert GenerationOptions.from_config(config, min_length=None).min_new_tokens == 0
    assert GenerationOptions.from_config(config, min_new_tokens=None).min_new_tokens == 0


def test_the_shortest_length_of_a_config_gives_way_to_the_longest():
    """transformers lets no sequence end before the limit then."""
    options = GenerationOptions.from_config(_BART, max_new_tokens=30)
    assert (options.min_new_tokens, options.max_new_tokens) == (30, 30)
    options = GenerationOptions.from_config(_BART, max_length=20)
    assert (options.min_new_tokens, options.max_new_tokens) == (19, 19)
    with pytest.raises(InputError, match="min_new_tokens=55 must be at most max_new_tokens=30"):
        GenerationOptions.from_config(_BART, max_new_tokens=30, min_length=56)


def test_none_for_the_limit_leaves_what_the_checkpoint_says():
    for name in ("max_new_tokens", "max_length"):
        assert GenerationOptions.from_config(_SMALL, **{name: None}).max_new_tokens == 8
        assert GenerationOptions.from_config(_BART, **{name: None}).max_new_tokens == 141


def test_top_k_defaults_to_50_and_none_is_off():
    assert GenerationOptions.from_config(_SMALL | {"top_k": None}).top_k == 50
    assert GenerationOptions.from_config(_SMALL, top_k=None).top_k == 0


def test_missing_special_tokens():
    options = GenerationOptions.from_config(
        {"max_new_tokens": 3, "bos_token_id": 5, "eos_token_id": [7, 8]}
    )
    assert (options.decoder_start_token_id, options.eos_token_id, options.pad_token_id) == (
        5,
        (7, 8),
        7,
    )
    options = GenerationOptions.from_config({"max_new_tokens": 3, "decoder_start_token_id": 0})
    assert (options.eos_token_id, options.pad_token_id) == ((), 0)


def test_options_hash_and_compare_by_value():
    config = _SMALL | {"bad_words_ids": [[3], [4, 5]], "suppress_tokens": [6]}
    one, other = GenerationOptions.from_config(config), GenerationOptions.from_config(dict(config))
    assert one == other
    assert hash(one) == hash(other)
    assert one.bad_words_ids == ((3,), (4, 5))


def test_rows_of_the_cache():
    assert (
        GenerationOptions.from_config(_SMALL, num_beams=4, num_return_sequences=2).decoder_beams
        == 4
    )
    assert (
        GenerationOptions.from_config(_SMALL, do_sample=True, num_return_sequences=3).decoder_beams
        == 3
    )
    assert GenerationOptions.from_config(_SMALL).decoder_beams == 1


def test_every_neutral_key_is_accepted():
    neutral = {
        "typical_p": 1.0,
        "renormalize_logits": False,
        "num_beam_groups": 1,
        "use_cache": True,
        "return_legacy_cache": True,
    }
    neutral |= {
        "begin_suppress_tokens": [],
        "guidance_scale": None,
        "something_new": None,
        "diversity_penalty": 0,
    }
    assert GenerationOptions.from_config(_SMALL | neutral) == GenerationOptions.from_config(_SMALL)


def test_sampling_keys_matter_only_when_sampling():
    config = _SMALL | {"typical_p": 0.9}
    GenerationOptions.from_config(config)
    with pytest.raises(InputError, match=r"generation_config\.typical_p=0\.9 is not supported"):
        GenerationOptions.from_config(config, do_sample=True)
    GenerationOptions.from_config(config, do_sample=True, typical_p=None)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"num_beam": 4}, r'generate: unknown option "num_beam"; did you mean "num_beams"\?'),
        ({"num_beams": 0}, "num_beams=0 must be at least 1"),
        ({"num_beams": 2.5}, "num_beams: expected int, got 2.5"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be at least 1"),
        ({"max_length": 1}, "max_new_tokens=0 must be at least 1"),
        ({"max_length": "long"}, "max_length: expected int, got 'long'"),
        ({"min_new_tokens": -1}, "min_new_tokens=-1 must be at least 0"),
        ({"min_new_tokens": 9}, "min_new_tokens=9 must be at most max_new_tokens=8"),
        ({"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"top_p": 0.0}, "top_p=0.0 must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p=1.5 must be above 0 and at most 1"),
        ({"top_k": -1}, "top_k=-1 must be at least 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0 must be above 0"),
        ({"length_penalty": float("nan")}, "length_penalty=nan must be a finite number"),
        ({"no_repeat_ngram_size": -2}, "no_repeat_ngram_size=-2 must be at least 0"),
        # Longer ones would take hours to compile.
        ({"no_repeat_ngram_size": 5000}, "no_repeat_ngram_size=5000 must be .* at most 64"),
        ({"encoder_no_repeat_ngram_size": 65}, "encoder_no_repeat_.*=65 must be .* at most 64"),
        ({"segments_no_repeat_ngram_size": 65}, "segments_no_repeat_.*=65 must be .* at most 64"),
        ({"max_matching_ngram_size": 10**9}, "max_matching_ngram_size=.* must be .* at most 64"),
        ({"early_stopping": "always"}, "early_stopping"),
        ({"bad_words_ids": [[]]}, "bad_words_ids=.* must be lists of at least one token id"),
        ({"bad_words_ids": [[3], [4, -1]]}, "bad_words_ids=.* must be .* token id, from 0 on"),
        ({"pad_token_id": -1}, "pad_token_id=-1 must be at least 0"),
        ({"do_sample": True, "num_beams": 2}, "do_sample=True with num_beams=2 is not supported"),
        ({"num_return_sequences": 0}, "num_return_sequences=0 must be at least 1"),
        ({"num_return_sequences": 2}, "num_return_sequences=2 needs num_beams"),
        (
            {"forced_bos_token_id": 3, "suppress_tokens": [3, 4]},
            r"forced_bos_token_id=3 forces what suppress_tokens=\(3, 4\) forbids; leave either out",
        ),
        (
            {"forced_eos_token_id": [1, 5], "suppress_tokens": [5, 1]},
            r"forced_eos_token_id=\(1, 5\) forces what suppress_tokens",
        ),
        (
            {"renormalize_logits": True},
            "renormalize_logits=True is not supported; pass renormalize_logits=None",
        ),
    ],
)
def test_bad_options_are_named(overrides, sentence):
    with pytest.raises(InputError, match=sentence):
        GenerationOptions.from_config(_SMALL, **overrides)


def test_unknown_key_of_a_config_is_named():
    with pytest.raises(InputError, match=r'unknown key "num_beam"=4; did you mean "num_beams"\?'):
        GenerationOptions.from_config(_SMALL | {"num_beam": 4})


def test_nothing_falls_back_to_a_hidden_limit():
    with pytest.raises(
        InputError, match="max_new_tokens is set neither here nor in generation_config"
    ):
        GenerationOptions.from_config({"decoder_start_token_id": 0})
    with pytest.raises(InputError, match="missing decoder_start_token_id"):
        GenerationOptions.from_config({"max_new_tokens": 4})


def test_direct_construction_checks_too():
    with pytest.raises(InputError, match="num_beams=0"):
        GenerationOptions(max_new_tokens=4, decoder_start_token_id=0, num_beams=0)
    with pytest.raises(
        InputError, match=r'early_stopping=.sometimes. must be true, false or "never"'
    ):
        dataclasses.replace(GenerationOptions.from_config(_SMALL), early_stopping="sometimes")
