"""The launch scripts, as far as they can run without a cluster: what they would do, and what they
refuse."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from longsum_jax.training.distributed import find_cluster

BASH = shutil.which("bash")
LAUNCH = Path(__file__).parents[2] / "launch"
POD = {"IMAGE": "example/image", "BUCKET": "bucket"}
TRAIN = ["--config=configs/locost_c4.py:base,data.batch_size=8", "--workdir=/runs/a b"]


def dry_run(script, *arguments, expected=0, **variables):
    """The commands that a script would run, each as a list of words; or its message."""
    environment = {"PATH": os.environ["PATH"]} | variables
    command = ["bash", str(LAUNCH / script), *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == expected, result.stderr
    return result.stderr if expected else [words(line) for line in result.stdout.splitlines()]


def words(line):
    """A line of shell as bash reads it."""
    result = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True
    )
    return result.stdout.split("\0")[:-1]


def write_programs(directory, **programs):
    """Writes shell scripts, which lie before others on the PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, body in programs.items():
        path = directory / name
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(0o755)


def test_local_starts_every_process_of_a_run():
    *_, second, first = dry_run("local.sh", "--dry_run", "--processes=2", *TRAIN)
    start = [
        ".venv/bin/python",
        "-m",
        "longsum_jax.train",
        *TRAIN,
        "--coordinator=localhost:8476",
        "--num_processes=2",
    ]
    assert first == [*start, "--process_id=0"]
    assert second == [*start, "--process_id=1"]


def test_local_installs_a_package_that_only_lies_there(tmp_path):
    """Python finds the package in the directory in which it starts, installed or not."""
    for name in ("launch", "longsum_jax"):
        (tmp_path / name).symlink_to(LAUNCH.parent / name)
    write_programs(tmp_path / ".venv/bin", python=f'exec {sys.executable} -S "$@"')
    assert dry_run(tmp_path / "launch/local.sh", "--dry_run", *TRAIN)[0][0] == ".venv/bin/pip"


def test_local_alone_is_one_command():
    assert dry_run("local.sh", "--dry_run", *TRAIN)[-1] == [
        ".venv/bin/python",
        "-m",
        "longsum_jax.train",
        *TRAIN,
    ]


def test_slurm_runs_one_task_per_node():
    assert dry_run("slurm.sbatch", "--dry_run", *TRAIN)[-1] == [
        *("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1"),
        *(".venv/bin/python", "-m", "longsum_jax.train", "--stopped_exit_code=75"),
        *TRAIN,
    ]


def install(directory, path, is_dry=1):
    """Makes the environment of a directory with the programs on a path."""
    script = f"source {LAUNCH}/common.sh; DRY_RUN={is_dry}; install_venv 'jax[tpu]'"
    command = [BASH, "-c", script]
    environment = {"PATH": str(path)}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


OLD = {name: "exit 1" for name in ("python3", "python3.13", "python3.12", "python3.11")}


@pytest.mark.parametrize(
    ("programs", "made"),
    [
        ({"python3": ""}, "python3 -m venv .venv"),
        ({"python3.12": ""}, "python3.12 -m venv .venv"),
        ({"uv": ""}, "uv venv --quiet --seed --allow-existing --python=3.11 .venv"),
    ],
)
def test_the_environment_has_a_python_that_the_package_runs_on(tmp_path, programs, made):
    write_programs(tmp_path / "bin", **OLD | programs)
    commands = install(tmp_path, tmp_path / "bin").stdout.splitlines()
    assert commands[3].strip() == made
    assert words(commands[4]) == [".venv/bin/pip", "install", "--quiet", "-e", ".[all]", "jax[tpu]"]


def test_no_python_that_the_package_runs_on(tmp_path):
    write_programs(tmp_path / "bin", **OLD)
    result = install(tmp_path, tmp_path / "bin")
    assert result.returncode == 2
    assert "has no Python 3.11 or newer; install one there, or uv" in result.stderr


def test_scripts_ask_for_the_python_that_the_package_asks_for():
    project = tomllib.loads((LAUNCH.parent / "pyproject.toml").read_text())["project"]
    version = project["requires-python"].removeprefix(">=")
    common = (LAUNCH / "common.sh").read_text()
    assert f"sys.version_info < ({version.replace('.', ', ')})" in common
    assert f"--python={version} " in common


def test_an_environment_is_made_anew_until_it_is_complete(tmp_path):
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    write_programs(tmp_path / "bin", python3="[[ $1 == -c ]] || cp -r made .venv/bin")
    write_programs(tmp_path / "made", python="", pip="exit 1")
    assert install(tmp_path, path, is_dry=0).returncode == 1
    write_programs(tmp_path / "made", pip="")
    assert install(tmp_path, path, is_dry=0).returncode == 0
    write_programs(tmp_path / "made", pip="exit 1")
    assert install(tmp_path, path, is_dry=0).returncode == 0  # with the pip that is there


def test_tpu_vm_actions():
    variables = {"ZONE": "z", "TYPE": "v5litepod-256", "BUCKET": "bucket", "PROJECT": "p"}
    where = ["--zone=z", "--project=p"]
    tpu = ["gcloud", "compute", "tpus", "tpu-vm"]
    act = lambda *arguments: dry_run("tpu_vm.sh", "--dry_run", *arguments, **variables)  # noqa: E731
    [create] = act("create", "pod")
    assert create == [
        *tpu,
        "create",
        "pod",
        *where,
        "--accelerator-type=v5litepod-256",
        "--version=v2-alpha-tpuv5-lite",
    ]
    copy, install, mount = act("install", "pod")
    assert copy == [*tpu, "scp", "TREE/longsum_jax.tar.gz", "pod:", *where, "--worker=all"]
    assert install[:7] == mount[:7] == [*tpu, "ssh", "pod", "--zone=z"]
    assert install[-1].endswith('source launch/common.sh && install_venv "jax[tpu]"')
    assert "gcsfuse --implicit-dirs bucket /runs" in mount[-1]
    [run] = act("run", "pod", *TRAIN)
    assert run[:-1] == [*tpu, "ssh", "pod", *where, "--worker=all"]
    inside = run[-1].removeprefix("--command=")
    # The command is itself shell for the hosts: the arguments must come through it whole.
    started = inside.split("nohup ")[1].split(" >train.log")[0]
    assert words(started) == [".venv/bin/python", "-m", "longsum_jax.train", *TRAIN]
    assert act("delete", "pod") == [[*tpu, "delete", "pod", *where, "--quiet"]]
    assert act("tail", "pod")[0][4:6] == ["ssh", "pod"]
    stop = act("stop", "pod")[0][-1].removeprefix("--command=")
    # What is looked for is training, not the shells that look for it and not what reads its log.
    *start, pattern = shlex.split(stop)[:4]
    assert start == ["pkill", "-TERM", "-f"]
    assert f"pgrep -f '{pattern}'" in inside
    assert re.search(pattern, " ".join(words(started)))
    for others in (f"bash -c {inside}", f"bash -c {stop}", "tail -n 40 -f longsum_jax/train.log"):
        assert not re.search(pattern, others)
    assert not Path("TREE").exists()


def test_dry_run_may_stand_anywhere(tmp_path):
    write_programs(tmp_path, gcloud=f"touch {tmp_path}/called", kubectl=f"touch {tmp_path}/called")
    path = f"{tmp_path}:{os.environ['PATH']}"
    for arguments in (["create", "pod", "--dry_run"], ["run", "pod", *TRAIN, "--dry_run"]):
        [command] = dry_run("tpu_vm.sh", *arguments, PATH=path)
        assert command[0] == "gcloud"
        assert not any("--dry_run" in word for word in command)
    assert dry_run("gke.sh", "delete", "run", "--dry_run", PATH=path)[0][0] == "kubectl"
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("kind", "resource", "devices"), [("tpu", "google.com/tpu", 4), ("gpu", "nvidia.com/gpu", 8)]
)
def test_kubernetes_pods_find_each_other(kind, resource, devices):
    environment = {"PATH": os.environ["PATH"], **POD, "KIND": kind, "HOSTS": "3"}
    command = ["bash", str(LAUNCH / "gke.sh"), "--dry_run", "apply", "my-run", *TRAIN]
    text = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    manifest = yaml.safe_load(text.split("<<'END'\n")[1].removesuffix("END\n"))
    assert "@" not in text
    job = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 3
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"] == TRAIN
    assert container["command"][-1] == "--stopped_exit_code=75"  # starts the others again
    [volume] = pod["volumes"]
    # As tpu_vm.sh mounts it: without the option, what was copied to the bucket is not seen.
    mounted = {"bucketName": "bucket", "mountOptions": "implicit-dirs"}
    assert volume["csi"]["volumeAttributes"] == mounted
    assert container["resources"]["limits"] == {resource: devices}
    values = {
        entry["name"]: entry.get("value", "2") for entry in container["env"]
    }  # the index comes from the cluster
    cluster = find_cluster(values)
    assert cluster[1:4] == ("my-run-hosts-0-0.my-run:8476", 3, 2)


def test_skypilot_nodes_find_each_other():
    task = yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())
    assert "--stopped_exit_code=75 $TRAIN" in task["run"]  # starts again elsewhere
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [75]}
    exports = (
        task["run"].split(".venv")[0]
        + 'echo "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID"'
    )
    variables = {
        "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_RANK": "1",
    }
    result = subprocess.run(
        ["bash", "-c", exports],
        env=variables | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["10.0.0.7:8476", "2", "1"]


@pytest.mark.parametrize(
    ("script", "arguments", "variables", "said"),
    [
        (
            "local.sh",
            ["--dry_run", "--processes=0", "x"],
            {},
            "--processes=0 must be a number from 1 on",
        ),
        ("tpu_vm.sh", ["--dry_run", "start", "pod"], {}, 'unknown action "start"; use create'),
        ("tpu_vm.sh", ["--dry_run", "run", "pod"], {}, "say what to train"),
        ("tpu_vm.sh", ["--dry_run", "install", "pod"], {}, "BUCKET is not set"),
        ("tpu_vm.sh", ["--dry_run", "stop", "pod", "--zone=z"], {}, 'unknown argument "--zone=z"'),
        ("gke.sh", ["--dry_run", "delete", "run", "x"], {}, 'delete run: unknown argument "x"'),
        ("gke.sh", ["--dry_run", "apply", "My_run", "x"], {}, "NAME=My_run must be lower case"),
        ("gke.sh", ["--dry_run", "apply", "run", "x"], {}, "IMAGE is not set"),
        (
            "gke.sh",
            ["--dry_run", "apply", "run", "x"],
            POD | {"KIND": "npu"},
            "KIND=npu is neither tpu nor gpu",
        ),
        ("slurm.sbatch", [], {}, ""),
        ("slurm.sbatch", TRAIN, {"SLURM_SUBMIT_DIR": "/"}, "submit the job from the repository's"),
    ],
)
def test_what_the_scripts_refuse(script, arguments, variables, said):
    message = dry_run(script, *arguments, expected=2, **variables)
    assert said in message
    assert len(message.splitlines()) <= 1


@pytest.fixture
def hear_interrupts():
    """Undoes what may be inherited: a shell's job in the background ignores SIGINT, and bash traps
    no signal that it ignores from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hear_interrupts")
@pytest.mark.parametrize(
    ("number", "status", "goes_on"),
    [
        (None, 0, False),
        (None, 2, False),
        (None, 137, True),
        (None, 75, True),  # preempted: its processes alone were told
        (signal.SIGUSR1, 75, True),
        (signal.SIGINT, 75, False),
        (signal.SIGTERM, 75, False),
    ],
)
def test_a_job_is_requeued_once_its_processes_have_saved(tmp_path, number, status, goes_on):
    """USR1 comes before the time limit, INT from who wants it to stop, TERM from scancel."""
    (tmp_path / "launch").symlink_to(LAUNCH)
    end = "while :; do sleep 0.1; done" if number else f"exit {status}"
    write_programs(tmp_path / ".venv/bin", python="")
    write_programs(
        tmp_path / "bin",
        srun=f"trap 'echo saved; exit 75' TERM; echo $$ >started; mv started process; {end}",
        scancel='[[ "$*" == "--signal=TERM 7" ]] && kill -TERM $(cat process)',
        scontrol='echo "$@"',
    )
    variables = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    command = ["bash", str(LAUNCH / "slurm.sbatch"), *TRAIN]
    with subprocess.Popen(
        command,
        env=variables | {"SLURM_SUBMIT_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        if number:
            while not (tmp_path / "process").exists():
                time.sleep(0.01)
            job.send_signal(number)
        if number == signal.SIGTERM:  # the processes get it, too
            os.kill(int((tmp_path / "process").read_text()), number)
        try:
            out, _ = job.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            job.kill()
            os.kill(int((tmp_path / "process").read_text()), signal.SIGKILL)
            raise
    assert out.splitlines() == ["saved"] * bool(number) + ["requeue 7"] * goes_on
    assert job.returncode == status
