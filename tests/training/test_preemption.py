"""Handlers of signals, which training takes over for a while."""

import signal

import pytest

from longsum_jax.training.preemption import Interrupts


@pytest.fixture
def handlers():
    """The handlers before a test, which are those after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handler_of_the_user_set_meanwhile_stays(handlers):
    def theirs(number, frame):
        """Does nothing."""

    with Interrupts():
        signal.signal(signal.SIGINT, theirs)
    assert signal.getsignal(signal.SIGINT) is theirs
    assert signal.getsignal(signal.SIGTERM) == handlers[signal.SIGTERM]
