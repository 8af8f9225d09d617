"""Which processes form a run, and what is said when they do not come together or do not mean the
same."""

import socket

import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import distributed
from longsum_jax.training.distributed import Cluster, find_cluster, join, require_agreement

KUBERNETES = {
    "JAX_COORDINATOR_ADDRESS": "run-0.run:8476",
    "JAX_NUM_PROCESSES": "4",
    "JOB_COMPLETION_INDEX": "3",
}
SLURM = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}


@pytest.fixture(autouse=True)
def no_tpu(monkeypatch):
    monkeypatch.setattr(distributed, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        (KUBERNETES, Cluster("the environment", "run-0.run:8476", 4, 3)),
        (KUBERNETES | {"JAX_PROCESS_ID": "0"}, Cluster("the environment", "run-0.run:8476", 4, 0)),
        (SLURM, Cluster("Slurm")),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, None),  # one task on nodes for two
        ({"SLURM_NTASKS": "2"}, None),  # a batch script outside srun
        (
            SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_GPUS_ON_NODE": "3"},
            Cluster("Slurm", local_devices=(0, 1, 2)),
        ),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "2"}, Cluster("Slurm")),
        ({"OMPI_COMM_WORLD_SIZE": "8"}, Cluster("Open MPI")),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, Cluster("the TPU")),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
    ],
)
def test_the_environment_tells_of_other_processes(environment, found):
    assert find_cluster(environment) == found


def test_a_tpu_machine_asks_jax_unless_a_notebook_owns_it(monkeypatch):
    monkeypatch.setattr(distributed, "find_spec", lambda name: "libtpu")
    assert find_cluster({}) == Cluster("the TPU")
    assert find_cluster({"TPU_SKIP_MDS_QUERY": "1"}) is None
    assert find_cluster({"JAX_PLATFORMS": "cpu"}) is None


def test_flags_go_before_the_environment():
    given = {"coordinator": "10.0.0.1:99", "num_processes": 2, "process_id": 1}
    assert find_cluster(SLURM, **given) == Cluster("the flags", "10.0.0.1:99", 2, 1)
    assert find_cluster(SLURM, mode="off") is None


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        (
            {},
            {"coordinator": "a:1", "process_id": 0},
            "--num_processes is missing; it goes with --coordinator, --process_id",
        ),
        (
            {},
            {"coordinator": "a:1", "num_processes": 2, "process_id": 2},
            "--process_id=2: processes are counted from 0",
        ),
        (
            {},
            {"coordinator": "a", "num_processes": 2, "process_id": 1},
            '--coordinator="a" has no port',
        ),
        (
            {},
            {"coordinator": "a:b", "num_processes": 2, "process_id": 1},
            '--coordinator="a:b" has no port',
        ),
        ({}, {"mode": "on"}, "no other processes are configured"),
        ({}, {"mode": "off", "process_id": 0}, "--distributed=off contradicts"),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:1"},
            {},
            "JAX_NUM_PROCESSES is missing; it goes with JAX_COORDINATOR_ADDRESS",
        ),
        (
            KUBERNETES | {"JAX_NUM_PROCESSES": "four"},
            {},
            'JAX_NUM_PROCESSES="four" is not a number',
        ),
    ],
)
def test_what_does_not_go_together_is_named(environment, options, said):
    with pytest.raises(InputError, match=said):
        find_cluster(environment, **options)


def test_a_system_without_ipv6_can_listen(monkeypatch, free_port):
    make = socket.socket

    def without_ipv6(family=socket.AF_INET, *options):
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return make(family, *options)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    distributed._check_port_is_free("here:1", free_port())


def test_a_coordinator_that_does_not_answer_is_named(free_port):
    port = free_port()
    with pytest.raises(
        InputError, match=f"coordinator 127.0.0.1:{port} did not answer process 1 within 0 s"
    ):
        join(Cluster("the flags", f"127.0.0.1:{port}", 2, 1), timeout=0)


def test_a_port_in_use_is_named():
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            InputError, match=f"coordinator 127.0.0.1:{port}: process 0 cannot listen there"
        ):
            join(Cluster("the flags", f"127.0.0.1:{port}", 2, 0))


def test_a_process_alone_agrees_with_itself():
    join(None)
    require_agreement({"key": object()}, "config")


@pytest.mark.slow
def test_processes_with_other_configs_are_told_the_key(start_worker, finish_worker, free_port):
    said = []
    for values in (("1e-3", "1e-3"), ("1e-3", "5e-4")):
        port = free_port()
        workers = [start_worker("agree", port, index, value) for index, value in enumerate(values)]
        said.append([finish_worker(worker) for worker in workers])
    assert said[0] == ["agreed", "agreed"]
    expected = "config.optimizer.learning_rate is 1e-3 in process 0 and 5e-4 in process 1"
    assert all(message.startswith(expected) for message in said[1])


@pytest.mark.slow
def test_hosts_read_the_rows_of_their_devices(start_worker, finish_worker, free_port):
    port = free_port()
    workers = [start_worker("interleaved", port, index, devices=2) for index in (0, 1)]
    first, second = (finish_worker(worker) for worker in workers)
    assert (first["own"], second["own"]) == ([0, 1, 4, 5], [2, 3, 6, 7])
    assert first["together"] == second["together"] == list(range(8))
