"""Runs of several processes: finding the others, connecting, and agreeing on the input.

``jax.distributed.initialize`` does the work. This module decides whether to
call it and with which arguments, and explains failures. Each process runs the
same command and feeds its own rows of a batch.
"""

import json
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from longsum_jax.errors import InputError

Mode = Literal["auto", "on", "off"]
# A process that is silent for this long counts as dead, and ends the run.
HEARTBEAT_SECONDS = 60
_CONNECT_SECONDS = 300
_FLAGS = ("coordinator", "num_processes", "process_id")


class Cluster(NamedTuple):
    """The processes of a run.

    Attributes:
        found_by: source of this information, for messages.
        coordinator: address "host:port" of process 0, None if JAX finds all
            three values.
        num_processes: number of processes of the run.
        process_id: index of this process, beginning with 0.
        local_devices: indices of the devices of this process, None for JAX's
            default.
    """

    found_by: str
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    local_devices: tuple[int, ...] | None = None


def find_cluster(
    environment: Mapping[str, str],
    *,
    mode: Mode = "auto",
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> Cluster | None:
    """Returns the run that this process belongs to, None for a single process.

    Sources in order of precedence: the arguments; JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID (or JOB_COMPLETION_INDEX, with which
    Kubernetes numbers the pods of a job); a Slurm step or an MPI run of several
    tasks; a TPU.

    Args:
        environment: environment variables of the process, ``os.environ``.
        mode: "off" for a single process in any environment, "on" for an error
            unless there is a run of several processes.

    Raises:
        InputError: some of the required values are missing or not numbers.
    """
    flags = dict(
        zip(_FLAGS, (coordinator, num_processes, process_id), strict=True)
    )
    has_flags = any(value is not None for value in flags.values())
    if mode == "off":
        if has_flags:
            raise InputError(
                "--distributed=off contradicts --coordinator, --num_processes and --process_id; "
                "leave one out"
            )
        return None
    if has_flags:
        return _checked("the flags", flags, "--")
    cluster = (
        _from_variables(environment)
        or _from_launchers(environment)
        or _from_tpu(environment)
    )
    if cluster is None and mode == "on":
        raise InputError(
            "--distributed=on, but no other processes are configured (no Slurm, MPI, TPU or "
            "JAX_COORDINATOR_ADDRESS); give --coordinator=HOST:PORT --num_processes=N "
            "--process_id=I"
        )
    return cluster


def _from_variables(environment: Mapping[str, str]) -> Cluster | None:
    if not environment.get("JAX_COORDINATOR_ADDRESS"):
        return None
    index = environment.get("JAX_PROCESS_ID") or environment.get(
        "JOB_COMPLETION_INDEX"
    )
    values: dict[str, Any] = {
        "JAX_COORDINATOR_ADDRESS": environment["JAX_COORDINATOR_ADDRESS"],
        "JAX_NUM_PROCESSES": _number(
            environment.get("JAX_NUM_PROCESSES"), "JAX_NUM_PROCESSES"
        ),
        "JAX_PROCESS_ID": _number(index, "JAX_PROCESS_ID"),
    }
    return _checked("the environment", values, "")


def _from_launchers(environment: Mapping[str, str]) -> Cluster | None:
    """Returns the tasks of Slurm or Open MPI, whose variables JAX reads."""
    tasks = {
        "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        "Open MPI": ("OMPI_COMM_WORLD_SIZE",) * 3,
    }
    for name, (present, *counts) in tasks.items():
        count = next(
            (environment[key] for key in counts if environment.get(key)), "1"
        )
        if present in environment and (_number(count, counts[0]) or 0) > 1:
            devices = None
            if name == "Slurm":
                devices = _slurm_devices(environment)
            return Cluster(name, local_devices=devices)
    return None


def _slurm_devices(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Returns all GPUs of a node for its only task; JAX would assign only the first one."""
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", "").partition("(")[0]
    count = _number(environment.get("SLURM_GPUS_ON_NODE"), "SLURM_GPUS_ON_NODE")
    if tasks == "1" and count:
        return tuple(range(count))
    return None


def _from_tpu(environment: Mapping[str, str]) -> Cluster | None:
    """Returns the hosts of a TPU slice, which JAX queries from the machine.

    Notebooks with a local TPU set TPU_SKIP_MDS_QUERY.
    """
    # several host names: a slice of more than one host
    if "," in environment.get("TPU_WORKER_HOSTNAMES", ""):
        return Cluster("the TPU")
    has_tpu = (
        find_spec("libtpu") is not None
        and "TPU_SKIP_MDS_QUERY" not in environment
    )
    wants_tpu = environment.get("JAX_PLATFORMS", "tpu").startswith("tpu")
    if has_tpu and wants_tpu:
        return Cluster("the TPU")
    return None


def _number(text: str | None, name: str) -> int | None:
    if text and not text.isdecimal():
        raise InputError(f'{name}="{text}" is not a number; set it to one')
    return int(text) if text else None


def _checked(found_by: str, values: Mapping[str, Any], dashes: str) -> Cluster:
    """Returns the cluster from the coordinator, number of processes and process id, in this order.

    Raises:
        InputError: one of the ``values``, named with the prefix ``dashes``, is
            missing or invalid.
    """
    for name, value in values.items():
        if value is None:
            present = [
                f"{dashes}{other}"
                for other in values
                if values[other] is not None
            ]
            others = ", ".join(present)
            raise InputError(
                f"{dashes}{name} is missing; it goes with {others}, in every process"
            )
    coordinator, num_processes, process_id = values.values()
    if not 0 <= process_id < num_processes:
        name, last = f"{dashes}{list(values)[2]}", num_processes - 1
        raise InputError(
            f"{name}={process_id}: processes are counted from 0, so give 0 to {last}"
        )
    if not coordinator.rpartition(":")[2].isdecimal() or ":" not in coordinator:
        name = f"{dashes}{next(iter(values))}"
        raise InputError(
            f'{name}="{coordinator}" has no port; give HOST:PORT of process 0'
        )
    return Cluster(found_by, coordinator, num_processes, process_id)


def join(
    cluster: Cluster | None,
    *,
    timeout: int = _CONNECT_SECONDS,
) -> None:
    """Connects this process with the others; call it before any computation.

    Args:
        cluster: result of ``find_cluster``; None does nothing.
        timeout: number of seconds to wait for the others.

    Raises:
        InputError: process 0 does not answer, its port is in use, or
            information is missing.
    """
    if cluster is None:
        return
    if cluster.coordinator is not None:
        _check_coordinator(cluster.coordinator, cluster.process_id, timeout)
        # Has no effect with accelerators; on CPUs, processes could not
        # communicate without it.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            cluster.coordinator,
            cluster.num_processes,
            cluster.process_id,
            local_device_ids=cluster.local_devices,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except ValueError as error:
        if cluster.found_by != "the TPU":  # a TPU may have no other hosts
            raise InputError(
                f"{cluster.found_by} describes the other processes incompletely ({error}); "
                "give --coordinator, --num_processes and --process_id"
            ) from error


def _check_coordinator(
    address: str, process_id: int | None, timeout: int
) -> None:
    """Waits until process 0 listens; otherwise JAX would end this process without an exception."""
    host, _, port = address.rpartition(":")
    if process_id == 0:
        _check_port_is_free(address, int(port))
        return
    last = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)), timeout=5
            ):
                return
        except OSError as error:
            if time.monotonic() > last:
                raise InputError(
                    f"coordinator {address} did not answer process "
                    f"{process_id} within {timeout} s ({error}); start the same command as "
                    "process 0 on that host, and let the port through"
                ) from error
        time.sleep(0.2)


def _check_port_is_free(coordinator: str, port: int) -> None:
    with _server_socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(
                f"coordinator {coordinator}: process 0 cannot listen there ({error}); give a free "
                "port"
            ) from error


def _server_socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_INET6)
    except OSError:  # Python supports IPv6, but it is disabled in the system
        return socket.socket(socket.AF_INET)


def require_agreement(values: Mapping[str, Any], what: str) -> None:
    """Raises InputError in every process unless all have the same ``values``; names a difference.

    Args:
        values: nested mappings of JSON values.
        what: name of the values in the message, such as "config".
    """
    if jax.process_count() == 1:
        return
    texts = _all_texts(
        json.dumps(_flat(values, what), sort_keys=True, default=str)
    )
    first = json.loads(texts[0])
    for process, text in enumerate(texts):
        other = json.loads(text)
        for name in sorted(first.keys() | other.keys()):
            if first.get(name) != other.get(name):
                raise InputError(
                    f"{name} is {first.get(name)} in process 0 and {other.get(name)} in process "
                    f"{process}; start every process with the same command and the same files"
                )


def _flat(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{where}.{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, name)
        else:
            flat |= {name: value}
    return flat


def _all_texts(text: str) -> list[str]:
    """Returns the ``text`` of every process, in order."""
    from jax.experimental.multihost_utils import process_allgather

    # Texts differ in length: gather the lengths first, then rows padded to the
    # longest.
    data = np.frombuffer(text.encode(), np.uint8)
    sizes = process_allgather(np.array([data.size], np.int32)).reshape(-1)
    # [processes, longest]
    rows = process_allgather(np.pad(data, (0, sizes.max() - data.size)))
    return [
        bytes(row[:size]).decode()
        for row, size in zip(rows.reshape(len(sizes), -1), sizes, strict=True)
    ]
