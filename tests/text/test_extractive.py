import math
import random
import weakref

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.extractive import (
    extractiveness,
    fragments,
    mean_extractiveness,
    mean_salient_ngrams,
    salient_ngrams,
)

DOCUMENT = "The cat sat on the mat. A dog barked, and the cat ran away."


def all_runs(document, summary):
    """Fragments from their definition: at each place the longest run of the summary that is a part
    of the document."""
    runs = {
        tuple(document[i:j]) for i in range(len(document)) for j in range(i + 1, len(document) + 1)
    }
    lengths, start = [], 0
    while start < len(summary):
        ends = range(start + 1, len(summary) + 1)
        longest = max((end - start for end in ends if tuple(summary[start:end]) in runs), default=0)
        lengths += [longest] * bool(longest)
        start += max(longest, 1)
    return lengths


@pytest.mark.parametrize("words", [2, 5, 30])
def test_fragments_equal_all_runs(words):
    rng = random.Random(words)
    for _ in range(60):
        document, summary = (
            [b"%d" % rng.randrange(words) for _ in range(rng.randrange(1, 25))] for _ in range(2)
        )
        assert fragments(document, summary) == all_runs(document, summary)


def test_the_numbers_of_a_sentence():
    """ "the cat" and "on the mat" are copied, "slept" is not."""
    result = extractiveness(DOCUMENT, "The cat slept on the MAT!")
    assert result._asdict() == {
        "document_words": 14,
        "summary_words": 6,
        "compression": pytest.approx(14 / 6),
        "coverage": pytest.approx(5 / 6),
        "density": pytest.approx((2**2 + 3**2) / 6),
    }
    copied = extractiveness(DOCUMENT, "a dog barked and the cat ran")
    assert (copied.coverage, copied.density) == (1, 7)
    assert extractiveness(DOCUMENT, "Birds fly.")[3:] == (0, 0)


def test_documents_without_summaries_have_lengths_only():
    result = mean_extractiveness([(DOCUMENT, None), ("A dog.", None)])
    assert result.document_words == 8
    assert all(math.isnan(value) for value in result[1:])


class Text(str):
    """A text that can be referred to weakly."""


def test_pairs_are_read_one_at_a_time():
    references = []

    def pairs():
        for number in range(20):
            assert sum(reference() is not None for reference in references) <= 1
            text = Text(f"The cat saw {number} mice.")
            references.append(weakref.ref(text))
            yield text, "The cat"
            del text

    assert mean_extractiveness(pairs()).document_words == 5


def test_means_are_over_pairs():
    pairs = [(DOCUMENT, "the cat"), (DOCUMENT, "birds fly over it")]
    result = mean_extractiveness(pairs)
    assert result == pytest.approx((14, 3, (7 + 3.5) / 2, 0.5, 1))
    with pytest.raises(InputError, match="statistics of no documents"):
        mean_extractiveness([])
    with pytest.raises(InputError, match='the summary "---" has no words; leave its row out'):
        extractiveness(DOCUMENT, "---")


def ngrams(words, size):
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def ngrams_by_prefixes(document, summary, size, parts):
    """Unique n-grams of every prefix that the summary has, over those of the whole."""
    words, expected = document.split(), ngrams(summary.split(), size)
    ends = [len(words) * part // parts for part in range(1, parts + 1)]
    seen = [len(ngrams(words[:end], size) & expected) for end in ends]
    return np.array(seen) / seen[-1] if seen[-1] else None


@pytest.mark.parametrize(("size", "parts"), [(2, 1), (1, 3), (2, 10), (3, 4)])
def test_curves_equal_counts_of_prefixes(size, parts):
    rng = random.Random(parts)
    for _ in range(40):
        document, summary = (
            " ".join(str(rng.randrange(8)) for _ in range(size)) for size in (60, 6)
        )
        expected = ngrams_by_prefixes(document, summary, size, parts)
        result = salient_ngrams(document, summary, size=size, num_shares=parts)
        assert (result is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(result, expected)


def test_curves_count_a_bigram_once_and_are_averaged():
    assert salient_ngrams("a b c d a b e f g h", "a b. g h!", num_shares=5).tolist() == [
        0.5,
        0.5,
        0.5,
        0.5,
        1,
    ]
    assert salient_ngrams("a b", "b a") is None
    pairs = [("a b c d", "a b"), ("a b c d", "c d"), ("a b", "b a")]
    assert mean_salient_ngrams(pairs, num_shares=2).tolist() == [0.5, 1]
    with pytest.raises(InputError, match="no summary shares 2 words in a row with its document"):
        mean_salient_ngrams(pairs[2:])


def test_means_count_words_of_any_script():
    document = "\u043a\u043e\u0442 \u0438 \u043f\u0451\u0441."
    summary = document[:5]
    assert mean_extractiveness([(document, summary)]) == (3, 2, 1.5, 1, 2)
    assert mean_extractiveness([(document, None)]).document_words == 3
    assert mean_extractiveness([(document, "A cat.")]) == (3, 2, 1.5, 0, 0)
    assert mean_extractiveness([("A cat.", summary)]) == (2, 2, 1, 0, 0)
    assert mean_salient_ngrams([(document, summary)], num_shares=3).tolist() == [0, 1, 1]
