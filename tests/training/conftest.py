import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def toy():
    """The module toy.py beside this file."""
    spec = importlib.util.spec_from_file_location("training_toy", HERE / "toy.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def start_worker():
    """Starts worker.py with arguments and a number of virtual CPU devices; returns the process."""

    def start(*arguments, devices=1):
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} "
            f"--xla_force_host_platform_device_count={devices}",
            "PYTHONPATH": str(HERE.parents[1]),
        }
        command = [sys.executable, "-W", "error", str(HERE / "worker.py"), *map(str, arguments)]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture(scope="session")
def finish_worker():
    """Waits for a worker; returns the JSON of its last line of output (None when it printed
    none)."""

    def finish(process, expected=0):
        try:
            output, errors = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == expected, errors
        return json.loads(output.splitlines()[-1]) if output else None

    return finish
