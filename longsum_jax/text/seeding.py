"""Random choices that depend only on a text and a seed."""

import hashlib

import numpy as np


def document_rng(text: str, seed: int = 0) -> np.random.Generator:
    """Returns a generator that depends only on seed and text, not on file, order or shard."""
    digest = hashlib.sha256(text.encode()).digest()
    entropy = [seed, int.from_bytes(digest[:8], "little")]
    return np.random.Generator(np.random.PCG64(entropy))
