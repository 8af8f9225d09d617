import threading

import pytest

from longsum_jax.data.prefetch import Prefetcher
from longsum_jax.errors import InputError


class Counter:
    """Hands out 0, 1, 2, ... and fails or ends where told."""

    def __init__(self, stop=None, fail=None):
        self.position, self.stop, self.fail = 0, stop, fail
        self.threads = set()
        self.made = threading.Semaphore(0)

    def __next__(self):
        self.threads.add(threading.current_thread().name)
        if self.position == self.stop:
            raise StopIteration
        if self.position == self.fail:
            raise ValueError(f"cannot make batch {self.position}")
        self.position += 1
        self.made.release()
        return {"number": self.position - 1}

    def state(self):
        return {"position": self.position}

    def restore(self, state):
        self.position = state["position"]


def test_batches_come_in_order_and_from_the_worker():
    counter = Counter(stop=5)
    with Prefetcher(counter, size=2) as batches:
        assert [batch["number"] for batch in batches] == [0, 1, 2, 3, 4]
    assert counter.threads == {"prefetch"}


def test_state_is_that_of_the_batch_taken_not_of_those_ahead():
    counter = Counter(stop=6)
    batches = Prefetcher(counter, size=3)
    assert batches.state() == {"position": 0}
    for taken in range(1, 7):
        next(batches)
        assert batches.state() == {"position": taken}
    batches.close()


def test_the_worker_stays_within_its_size():
    counter = Counter()
    with Prefetcher(counter, size=2):
        for _ in range(3):  # two wait in the queue, the third in the worker's hand
            assert counter.made.acquire(timeout=10)
        assert not counter.made.acquire(timeout=0.05)


def test_an_exception_of_the_worker_comes_at_its_place_and_stays():
    batches = Prefetcher(Counter(fail=2), size=4)
    assert [next(batches)["number"], next(batches)["number"]] == [0, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot make batch 2"):
            next(batches)
    assert batches.state() == {"position": 2}


def test_an_exception_of_the_first_batch_reaches_the_consumer():
    with pytest.raises(ValueError, match="cannot make batch 0"):
        next(Prefetcher(Counter(fail=0)))


def test_restore_drops_what_was_ahead():
    batches = Prefetcher(Counter(stop=10), size=4)
    state = [next(batches), batches.state()][1]
    first = [next(batches)["number"] for _ in range(5)]
    batches.restore(state)
    assert [next(batches)["number"] for _ in range(5)] == first == [1, 2, 3, 4, 5]
    batches.close()


def test_close_ends_the_thread_and_the_iteration():
    before = threading.active_count()
    batches = Prefetcher(Counter(), size=2)
    next(batches)
    batches.close()
    batches.close()
    assert threading.active_count() == before
    assert next(batches, None) is None


def test_size_must_be_positive():
    with pytest.raises(InputError, match="size=0"):
        Prefetcher(Counter(), size=0)
