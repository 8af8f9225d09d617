"""launch/slurm.sbatch under a Slurm of its own: two nodes on this machine, a job that is killed,
goes back into the queue and continues.

Skipped where Slurm is not installed, or for users who may not give a process another host name, by
which slurmd knows its node.
"""

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import DEVNULL

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("slurmctld", "slurmd", "sbatch", "scontrol", "unshare")
# slurmctld and slurmd lie where only the administrator looks.
PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
SECONDS = 900  # for the whole job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.getuid() != 0 or not all(shutil.which(name, path=PATH) for name in NEEDED),
        reason="needs an installed Slurm and the rights of root",
    ),
]

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName={host}-second NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def slurm(tmp_path):
    """A cluster of two nodes; gives a function that runs one of Slurm's commands."""
    host = socket.gethostname().split(".")[0]
    folder = tmp_path / "slurm"
    for name in ("state", host, f"{host}-second"):
        (folder / name).mkdir(parents=True)
    config = folder / "slurm.conf"
    config.write_text(
        CONFIG.format(host=host, user=getpass.getuser(), folder=folder, ports=free_ports(3))
    )
    environment = os.environ | {"SLURM_CONF": str(config), "PATH": PATH}
    elsewhere = f"hostname {host}-second && exec slurmd -D"
    commands = ["slurmctld", "-D"], ["slurmd", "-D"], ["unshare", "--uts", "sh", "-c", elsewhere]
    running = [
        subprocess.Popen(command, env=environment, stdout=DEVNULL, stderr=DEVNULL)
        for command in commands
    ]

    def call(*command, **options):
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, **options
        )
        return result.stdout

    def is_up():
        return call("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"]

    try:
        wait_for(is_up, running, 60)
        yield call
    finally:
        call("scancel", "--full", f"--user={getpass.getuser()}")
        for daemon in reversed(running):
            daemon.terminate()
            daemon.wait(30)


def wait_for(is_done, running, seconds):
    end = time.monotonic() + seconds
    while not is_done():
        assert all(daemon.poll() is None for daemon in running), "a daemon of Slurm ended"
        assert time.monotonic() < end, f"not done after {seconds} seconds"
        time.sleep(0.5)


def submit_directory(path):
    """A directory as ``sbatch`` is called in: launch/, configs/ and the environment."""
    path.mkdir()
    for name in ("launch", "configs", "longsum_jax"):
        (path / name).symlink_to(ROOT / name)
    python = path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    # Gloo looks up the host name, and only the machine's own has an address.
    host = socket.gethostname()
    inside = f'hostname {host} && exec {sys.executable} "$@"'
    python.write_text(
        f"#!/bin/sh\nexport PYTHONPATH='{ROOT}' JAX_PLATFORMS=cpu\n"
        f"exec unshare --uts sh -c '{inside}' sh \"$@\"\n"
    )
    python.chmod(0o755)
    return path


def steps_of(workdir):
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = map(json.loads, lines)
    return [row["step"] for row in rows if "loss" in row]


def training_processes(workdir):
    """Process ids of the training processes of a run, srun and shells left out."""
    result = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        is_ours = f"--workdir={workdir}".encode() in words
        if is_ours and words[:1] == [sys.executable.encode()]:
            result.append(int(path.parent.name))
    return result


def test_a_killed_job_is_requeued_and_continues(slurm, tmp_path):
    directory, workdir = submit_directory(tmp_path / "submitted"), tmp_path / "run"
    train = [
        "--config=configs/quickstart.py:tiny",
        f"--workdir={workdir}",
        "--config.training.steps=30",
        "--config.training.checkpoint_every=5",
        "--config.training.log_every=1",
        "--config.training.eval_every=0",
    ]
    submitted = slurm(
        "sbatch", "--parsable", "--nodes=2", "launch/slurm.sbatch", *train, cwd=directory
    )
    job = submitted.strip()
    log = directory / f"longsum_jax-{job}.log"

    def state():
        return slurm("squeue", "-h", "-j", job, "-o", "%T").strip()

    def has_checkpoint():
        assert state() in ("PENDING", "RUNNING", "CONFIGURING"), log.read_text()
        return (workdir / "checkpoints/5").is_dir()

    wait_for(has_checkpoint, [], SECONDS)
    processes = training_processes(workdir)
    assert len(processes) == 2
    os.kill(processes[0], signal.SIGKILL)
    wait_for(lambda: "Restarts=1" in slurm("scontrol", "show", "job", job), [], 120)
    wait_for(lambda: state() == "PENDING", [], 120)
    slurm("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm waits two minutes
    wait_for(lambda: state() in ("", "COMPLETED"), [], SECONDS)
    assert "JobState=COMPLETED" in slurm("scontrol", "show", "job", job), log.read_text()
    assert steps_of(workdir) == list(range(1, 31))
