import ctypes
import gc
import logging
import shutil
import sys
import threading

import orbax.checkpoint
import pytest

from longsum_jax.errors import InputError
from longsum_jax.training.checkpointing import restore_params
from longsum_jax.training.workarounds import hide_background_errors


def num_answers():
    """Answers of TensorStore about its metrics, lists of dictionaries."""
    lists = [result for result in gc.get_objects() if type(result) is list and result]
    firsts = [result[0] for result in lists if type(result[0]) is dict]
    return sum("value" in first or "sum_of_squared_deviation" in first for first in firsts)


def test_answers_about_metrics_do_not_pile_up(tmp_path, toy):
    """TensorStore never frees them."""
    toy.save_checkpoints(tmp_path, {1: None})
    before = num_answers()
    toy.save_checkpoints(tmp_path, {2: None, 3: None})
    assert num_answers() == before


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator is not glibc's"
)
def test_memory_that_threads_have_freed_goes_back_with_a_save(tmp_path, resident_bytes, toy):
    def use_much():
        size, number = 2**14, 2**13  # 128 MiB, in pieces too small for pages of their own
        pieces = [libc.malloc(size) for _ in range(number)]
        for piece in pieces:
            ctypes.memset(piece, 1, size)
        pieces.pop()  # the last one stays, so the end of the heap is in use
        for piece in pieces:
            libc.free(ctypes.c_void_p(piece))

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    toy.save_checkpoints(tmp_path, {1: None})
    before = resident_bytes()
    thread = threading.Thread(target=use_much)
    thread.start()
    thread.join()
    assert resident_bytes() > before + 2**26
    toy.save_checkpoints(tmp_path, {2: None})
    assert resident_bytes() < before + 2**25


def test_tasks_that_fail_after_the_first_error_are_not_logged(tmp_path, caplog, toy):
    """Those of orbax alone: nobody waits for them any more."""
    toy.save_checkpoints(tmp_path, {3: None})
    shutil.rmtree(tmp_path / "3" / "params" / "d")
    toy.forget_sums(tmp_path / "3")
    with pytest.raises(InputError, match="missing or damaged") as caught:
        restore_params(tmp_path)
    caplog.clear()
    logger = logging.getLogger("asyncio")
    logger.error("Task exception was never retrieved", exc_info=caught.value.__cause__)
    assert not caplog.records
    logger.error("Task exception was never retrieved", exc_info=ValueError("of another task"))
    assert len(caplog.records) == 1


def test_errors_of_orbax_alone_are_not_logged(caplog):
    hide_background_errors()()
    logger = logging.getLogger("absl")
    for path in (orbax.checkpoint.__file__, "/home/orbax/run.py", "/srv/my_orbax_tools.py"):
        logger.handle(logger.makeRecord("absl", logging.ERROR, path, 1, "failed", (), None))
    assert [record.pathname for record in caplog.records] == [
        "/home/orbax/run.py",
        "/srv/my_orbax_tools.py",
    ]


@pytest.mark.parametrize("name", ["excepthook", "unraisablehook"])
def test_hooks_of_the_user_set_meanwhile_stay(monkeypatch, name):
    before = sys.excepthook, sys.unraisablehook
    for hook in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, hook, getattr(sys, hook))  # undone after the test
    show = hide_background_errors()
    show()
    assert (sys.excepthook, sys.unraisablehook) == before
    show = hide_background_errors()
    setattr(sys, name, print)
    show()
    hooks = {"excepthook": sys.excepthook, "unraisablehook": sys.unraisablehook}
    assert hooks.pop(name) is print
    assert set(hooks.values()) <= set(before)
