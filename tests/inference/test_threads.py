"""One model used by many threads, two models in one process, and processes forked from it."""

import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import flax.traverse_util
import numpy as np
import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.inference.kernel_cache import KernelCache
from longsum_jax.summarization.attended import cross_attention_weights

pytestmark = pytest.mark.slow  # three lengths are compiled
THREADS = 16
# Of several padded lengths, so that threads compile and cache kernels at the same time.
TEXTS = [f"Report {i}: the cat sat on the mat. " * (1 + i % 3) for i in range(THREADS)]


def read_louder(directory):
    """A model whose summaries depend on their documents; those of random weights hardly do."""
    model = longsum_jax.load(directory)
    flat = flax.traverse_util.flatten_dict(model.params, sep="/")
    for path in flat:
        if path.endswith(("cross_attention/v/kernel", "cross_attention/o/kernel")):
            flat[path] = 6 * flat[path]
    model.params = flax.traverse_util.unflatten_dict(flat, sep="/")
    return model


@pytest.fixture(scope="module")
def model(small_model):
    return read_louder(small_model)


@pytest.fixture(scope="module")
def alone(small_model):
    """What one thread gives, by a model of its own."""
    model = read_louder(small_model)
    return [model.summarize(text)[0] for text in TEXTS]


def test_threads_share_a_model(model, alone):
    with ThreadPoolExecutor(THREADS) as pool:
        result = list(pool.map(lambda text: model.summarize(text)[0], TEXTS))
    assert result == alone
    assert len(set(alone)) > 3


def test_two_models_in_one_process(small_model, model, alone):
    """Parameters of another model in the same shapes: a program shared by mistake would show."""
    other = read_louder(small_model)
    rng = np.random.default_rng(0)
    shared = np.asarray(other.params["shared"])
    other.params = other.params | {"shared": rng.permutation(shared)}
    expected = [other.summarize(text)[0] for text in TEXTS[:4]]
    assert expected != alone[:4]
    with ThreadPoolExecutor(8) as pool:
        first = [pool.submit(model.summarize, text) for text in TEXTS[:4]]
        second = [pool.submit(other.summarize, text) for text in TEXTS[:4]]
        assert [job.result()[0] for job in first] == alone[:4]
        assert [job.result()[0] for job in second] == expected


def test_kernels_dropped_by_another_thread_are_made_again(model, monkeypatch):
    """A cache with room for one length, read for two by many threads."""
    whole = KernelCache(model.module, 2**30)
    expected = {length: whole(model.params, length) for length in (16, 32)}
    size = sum(x.nbytes for x in _leaves(expected[32]))
    small = KernelCache(model.module, size)
    small._make = whole._make  # which is compiled
    add = small._add

    def add_and_wait(*arguments):
        add(*arguments)
        time.sleep(0.01)  # another thread's length would push this one out here

    monkeypatch.setattr(small, "_add", add_and_wait)
    with ThreadPoolExecutor(8) as pool:
        lengths = [16, 32] * 8
        result = list(pool.map(lambda length: small(model.params, length), lengths))
    for length, kernels in zip(lengths, result, strict=True):
        pairs = zip(_leaves(kernels), _leaves(expected[length]), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="systems without fork")
@pytest.mark.parametrize("use", ["summarize", "encode", "attend"])
def test_a_forked_process_is_told_so(model, alone, use):
    ids, groups = np.array([[5, 6, 1]]), np.ones((1, 3, 1), np.float32)
    uses = {
        "summarize": lambda: model.summarize(TEXTS[0]),
        "encode": lambda: model.encode(ids),
        "attend": lambda: cross_attention_weights(model, ids, ids, groups),
    }
    assert model.summarize(TEXTS[0]) == alone[:1]
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of forks in processes with threads
        child = os.fork()
    if child == 0:
        try:
            uses[use]()
            said = "no error"
        except InputError as error:
            said = str(error)
        except BaseException as error:
            said = repr(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        assert pipe.read().startswith("this process was forked after the model was loaded")
    assert model.summarize(TEXTS[0]) == alone[:1]
