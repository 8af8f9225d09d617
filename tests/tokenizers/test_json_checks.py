import pytest

from longsum_jax.tokenizers.json_checks import check_regex

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
