"""A real pretrained model, BERT of 512 positions, converted to LSG attention."""

import numpy as np
import pytest

pytestmark = [pytest.mark.minilm, pytest.mark.slow]
BLOCKS = {"block_size": 128, "sparse_block_size": 128, "sparsity_factor": 4}
VARIANTS = {"256/none": {"block_size": 256, "sparsity_type": "none"}}
SELECTIONS = ("norm", "pooling", "stride", "block_stride", "bos_pooling", "lsh")
VARIANTS |= {f"128/4 {kind}": BLOCKS | {"sparsity_type": kind} for kind in SELECTIONS}


@pytest.fixture(scope="module")
def texts(minilm, topics):
    """Ids of the longest documents, no special tokens."""
    encoded = [minilm.tokenizer.encode(text) for text in sorted(topics, key=len)[-4:]]
    assert min(map(len, encoded)) > 4096
    return encoded


def closed(model, texts, length):
    return np.array([model.tokenizer.add_special_tokens(text, length) for text in texts])


def embed(model, ids):
    """Mean states [B, D] of length 1."""
    mean = np.asarray(model.encode(ids, np.ones_like(ids))).mean(1)
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def wanted(minilm, texts):
    """Embeddings of the first 512 tokens."""
    return embed(minilm, closed(minilm, texts, 512))


@pytest.mark.parametrize("variant", VARIANTS)
def test_embeddings_of_512_tokens_hardly_change(variant, minilm, texts, wanted):
    converted = minilm.to_lsg(4096, **VARIANTS[variant])
    assert converted.params["position_embeddings"].shape == (4096, 384)
    cosines = (embed(converted, closed(minilm, texts, 512)) * wanted).sum(-1)
    assert cosines.mean() >= 0.98
    assert cosines.max() < 1 - 1e-5  # the global token stands beside the first one here


def test_converted_with_a_hidden_first_token_it_is_the_same(minilm, texts):
    converted = minilm.to_lsg(4096, block_size=256, mask_first_token=True)
    ids = closed(minilm, texts, 512)
    wanted, result = (
        np.asarray(model.encode(ids, np.ones_like(ids))) for model in (minilm, converted)
    )
    assert np.abs(result - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_whole_text_is_embedded_better_than_its_beginning(minilm, texts, wanted):
    """By the mean over chunks of 512 tokens, which the model was made for."""
    cut = [text[:4094] for text in texts[:2]]
    chunks = [[text[i : i + 510] for i in range(0, 8 * 510, 510)] for text in cut]
    means = np.stack([embed(minilm, closed(minilm, parts, 512)).mean(0) for parts in chunks])
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    converted = minilm.to_lsg(4096, **VARIANTS["256/none"])
    result = (embed(converted, closed(minilm, cut, 4096)) * means).sum(-1)
    assert (result > (wanted[:2] * means).sum(-1)).all()
    assert result.min() > 0.9
