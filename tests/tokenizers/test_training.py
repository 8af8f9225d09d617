"""The lines from which a tokenizer is trained."""

import random
from collections import Counter

from longsum_jax.tokenizers import train


def test_every_line_is_sampled_with_equal_probability():
    rng = random.Random(0)
    counts = Counter()
    for _ in range(3000):
        sample = train._sample(map(str, range(6)), 2, rng)
        assert len(set(sample)) == 2
        counts.update(sample)
    assert len(counts) == 6
    # 3000 / 3, and five standard deviations.
    assert all(abs(count - 1000) < 130 for count in counts.values())
    assert train._sample("ab", 2, rng) == ["a", "b"]
