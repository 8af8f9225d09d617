import base64
import json

import pytest

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.json_checks import check_regex, check_tokenizer_json

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"


@pytest.mark.parametrize(
    "pattern",
    [
        # GPT-2, Llama 3, and GPT-4o's first alternatives.
        rf"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
        rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}]*[\p{{Ll}}]+(?i:{CONTRACTIONS})?|\p{{N}}{{1,3}}",
        "a?" * 10,
        r"\w{1,30}\w{1,30}",
        " {2,}a{0,99}b*?",
        "((?:a|b)c)d",
        "a" * 1000,
    ],
)
def test_patterns_that_take_little_time(pattern):
    check_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 11,
        "(?:a|b)" * 11,
        "(?:a|b|c|d)" * 6,
        "(?:a?b?c?d?e?|f)(?:g|h)?i?j?k?l?",
        r"\w{1,30}\w{1,30}\w{1,30}",
        "(?:a|b)?" * 7,
    ],
)
def test_too_many_ways_to_match_are_refused(pattern):
    with pytest.raises(ValueError, match="match in more than 1024 ways"):
        check_regex(pattern)


def test_long_patterns_are_refused():
    with pytest.raises(ValueError, match="a pattern of more than 1000 characters"):
        check_regex("a" * 1001)


def test_a_table_of_normalization_is_at_least_as_long_as_its_trie():
    def check(trie, length):
        table = base64.b64encode(length.to_bytes(4, "little") + trie).decode()
        step = {"type": "Precompiled", "precompiled_charsmap": table}
        check_tokenizer_json(json.dumps({"model": {"vocab": {}}, "normalizer": step}), "a.json")

    check(b"trie", 4)
    with pytest.raises(InputError, match="precompiled_charsmap is damaged"):
        check(b"trie", 8)
