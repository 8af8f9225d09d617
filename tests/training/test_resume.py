"""Kill -9 and restart, several hosts, several meshes: the losses are those of one quiet process."""

import signal
from collections import Counter

import numpy as np
import pytest

pytestmark = pytest.mark.slow

EPOCHS = (range(1, 5), range(5, 9), range(9, 13))  # batches of four, of 13 documents


def test_killed_in_epochs_0_1_and_2_continues_bit_for_bit(
    toy, start_worker, finish_worker, tmp_path
):
    for kill_at in (3, 6, 9):  # three batches an epoch, a checkpoint every step
        finish_worker(start_worker("cut", tmp_path / "cut", kill_at), expected=-signal.SIGKILL)
        assert max(toy.losses(tmp_path / "cut")) == kill_at - 1
        saved = [
            int(p.name) for p in (tmp_path / "cut" / "checkpoints").iterdir() if p.name.isdigit()
        ]
        assert max(saved) in (kill_at - 2, kill_at - 1)  # the last save may have been cut, too
    for workdir in ("cut", "whole"):
        toy.toy_fit(tmp_path / workdir, dropout=0.2, steps=10, checkpoint_every=0)
    assert list(toy.losses(tmp_path / "whole")) == list(range(1, 11))
    assert toy.losses(tmp_path / "cut") == toy.losses(tmp_path / "whole")


@pytest.fixture(scope="module")
def on_meshes(start_worker, finish_worker, tmp_path_factory):
    return finish_worker(start_worker("meshes", tmp_path_factory.mktemp("meshes"), devices=8))


@pytest.fixture(scope="module")
def on_one_device(toy, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("one")
    toy.toy_fit(workdir, steps=4, batches=toy.ToyBatches(rows=16), checkpoint_every=0)
    return list(toy.losses(workdir).values())


@pytest.mark.parametrize("run", ["replicated", "fsdp", "fsdp+tensor", "moving"])
def test_every_mesh_gives_the_losses_of_one_device(on_meshes, on_one_device, run):
    assert len(on_one_device) == 4
    np.testing.assert_allclose(on_meshes["losses"][run], on_one_device, atol=1e-6, rtol=0)


def test_parameters_and_their_moments_are_sharded_alike(on_meshes):
    assert on_meshes["specs"] == {
        "replicated": [[], []],
        "fsdp": [["fsdp"], ["fsdp"]],
        "fsdp+tensor": [["fsdp", "tensor"], ["fsdp", "tensor"]],
    }
    assert set(on_meshes["compilations"].values()) == {1}


def test_micro_batches_stay_on_their_devices(on_meshes):
    assert on_meshes["collectives"] == ["all-reduce"]  # of the gradients: no rows move


def test_meshes_and_batches_that_do_not_divide_are_named(on_meshes):
    wrong_product, wrong_multiple, two_rests, wrong_batch, wrong_micro_batch = on_meshes["errors"]
    assert "batch=3 x fsdp=2 x tensor=1 x sequence=1 needs 6 devices, there are 8" in wrong_product
    assert "a multiple of 3 devices, there are 8" in wrong_multiple
    assert "only one of batch, fsdp, tensor, sequence may be -1" in two_rests
    assert "12 rows" in wrong_batch
    assert "8 devices" in wrong_batch
    assert "16 rows" in wrong_micro_batch
    assert "give a multiple of 32" in wrong_micro_batch


def test_two_hosts_give_the_losses_of_one(toy, start_worker, finish_worker, free_port, tmp_path):
    port = free_port()
    hosts = [start_worker("host", tmp_path / "two", port, index, devices=2) for index in (0, 1)]
    toy.toy_fit(tmp_path / "one", steps=10, batches=toy.ToyBatches(rows=8), checkpoint_every=0)
    for process in hosts:  # host 1 alone got the signal, both leave after the same step
        assert finish_worker(process) == {"step": 10, "stopped_by": "SIGTERM", "devices": 4}
    expected, result = toy.losses(tmp_path / "one"), toy.losses(tmp_path / "two")
    assert list(result) == list(expected) == list(range(1, 11))
    np.testing.assert_allclose(list(result.values()), list(expected.values()), atol=1e-6, rtol=0)


def test_a_stopped_run_continues_on_twice_the_hosts(
    toy, start_worker, finish_worker, free_port, tmp_path
):
    """docs/guide/clusters.md: batches stay the same, and every document is read once per epoch."""

    def run(hosts, stop_at=0):
        port = free_port()
        workers = [
            start_worker("doubled", tmp_path / "many", port, index, hosts, stop_at)
            for index in range(hosts)
        ]
        results = [finish_worker(worker) for worker in workers]
        [step] = {result["step"] for result in results}
        rows = {}
        for result in results:
            for number, host_rows in result["rows"].items():
                rows.setdefault(int(number), []).extend(host_rows)
        return step, rows

    stopped, first_rows = run(hosts=2, stop_at=5)
    last, other_rows = run(hosts=4)
    assert 5 <= stopped < last == 12  # in the second of three epochs
    whole = toy.Documents()
    toy.toy_fit(tmp_path / "one", batches=whole, steps=12, dropout=0.2, checkpoint_every=0)
    # Batches that were read ahead when the run stopped are read again; no step used them.
    used = {n: first_rows[n] if n <= stopped else other_rows[n] for n in range(1, last + 1)}
    assert min(other_rows) == stopped + 1
    assert used == {n: whole.rows[n] for n in used}
    epochs = [Counter(tuple(row) for n in ns for row in used[n] if any(row)) for ns in EPOCHS]
    assert [set(epoch.values()) for epoch in epochs] == [{1}] * 3
    assert len(epochs[0]) == 13
    assert epochs[0] == epochs[1] == epochs[2]
    expected, found = toy.losses(tmp_path / "one"), toy.losses(tmp_path / "many")
    assert list(found) == list(expected) == list(range(1, last + 1))
    np.testing.assert_allclose(list(found.values()), list(expected.values()), atol=1e-6, rtol=0)
