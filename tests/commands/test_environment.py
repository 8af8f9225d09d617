"""Environment variables of JAX and XLA, which end commands in one sentence."""

import subprocess

import pytest

from longsum_jax.commands import console, environment
from longsum_jax.errors import InputError

# What XLA and JAX write about values; see below for the libraries themselves.
REPORTS = {
    "--xla_foo=1": "F1 a.cc:2] Unknown flag in XLA_FLAGS: --xla_foo=1\n",
    "flags.txt": 'F1 a.cc:2] Could not open file "flags.txt" to read flags for environment\n',
    "perhaps": "ValueError: invalid truth value 'perhaps' for environment 'JAX_DEBUG_NANS'\n",
    "loud": 'ValueError: Invalid value "loud" for JAX flag jax_logging_level\n',
}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("JAX_ENABLE_X64", "maybe", "give true or false"),
        ("JAX_ENABLE_X64", "", "give true or false"),
        ("JAX_DEFAULT_MATMUL_PRECISION", "best", "give default, high, highest"),
        ("JAX_NUM_CPU_DEVICES", "two", "give a whole number from 1 to 1024"),
        ("JAX_NUM_CPU_DEVICES", "0", "give a whole number from 1 to 1024"),
        ("JAX_NUM_CPU_DEVICES", "1e3", "give a whole number from 1 to 1024"),
        ("JAX_NUM_CPU_DEVICES", "99999999", "give a whole number from 1 to 1024"),
        ("JAX_PLATFORMS", "cpux", "give cpu, cuda, gpu, rocm or tpu"),
        ("JAX_PLATFORMS", "cpu,", "give cpu, cuda, gpu, rocm or tpu"),
        ("JAX_ENABLE_COMPILATION_CACHE", "maybe", "give true or false"),
        ("XLA_FLAGS", "--xla_foo=1", "Unknown flag in XLA_FLAGS: --xla_foo=1"),
        ("XLA_FLAGS", "flags.txt", 'Could not open file "flags.txt" to read flags'),
        ("JAX_DEBUG_NANS", "perhaps", "JAX does not accept it; correct the value"),
        ("JAX_LOGGING_LEVEL", "loud", "JAX does not accept it; correct the value"),
    ],
)
def test_an_invalid_value_is_one_sentence(name, value, remedy, monkeypatch):
    monkeypatch.setattr(environment, "_has_plugins", lambda: False)
    if value in REPORTS:

        def run(command, **options):
            return subprocess.CompletedProcess(command, 1, b"", REPORTS[value].encode())

        monkeypatch.setattr(environment.subprocess, "run", run)
    with pytest.raises(InputError) as caught:
        environment.check_environment({name: value})
    message = str(caught.value)
    assert message.startswith(f"the environment variable {name}={value}")
    assert remedy in message
    assert message.endswith(", or unset it")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"JAX_ENABLE_X64": "True", "JAX_NUM_CPU_DEVICES": "-1"},
        {"JAX_PLATFORMS": "", "XLA_FLAGS": " "},
        {"JAX_PLATFORMS": "cuda,cpu", "JAX_NUM_CPU_DEVICES": "8"},
        {"JAX_DEFAULT_MATMUL_PRECISION": "BF16_BF16_F32_X3"},
    ],
)
def test_valid_values(values):
    environment.check_environment(values)


def test_flags_are_checked_once(tmp_path, monkeypatch):
    values = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
    }
    runs = []

    def run(command, env, **options):
        runs.append(env["XLA_FLAGS"])
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(environment.subprocess, "run", run)
    environment.check_environment(values)
    environment.check_environment(values)
    environment.check_environment(values | {"XLA_FLAGS": "--xla_foo=1"})
    assert runs == ["--xla_force_host_platform_device_count=2", "--xla_foo=1"]


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            "Unable to initialize backend 'tpu': libtpu.so\nnot found",
            "JAX_PLATFORMS=a: the device tpu does not start (libtpu.so); "
            "install longsum_jax[tpu], or set JAX_PLATFORMS=cpu",
        ),
        (
            "Unknown backend: 'gpu' requested, but no platforms",
            "JAX_PLATFORMS=a: the device gpu does not start (requested, but no "
            "platforms); install longsum_jax[cuda13] or [cuda12], or set",
        ),
        (
            "Backend 'x' is not in the list of known backends: ['cpu'].",
            "JAX_PLATFORMS=a: the device x does not start (is not in the list",
        ),
    ],
)
def test_a_device_that_does_not_start(message, sentence, capsys, monkeypatch):
    def main(argv):
        monkeypatch.setenv("JAX_PLATFORMS", "a")
        raise RuntimeError(message)

    # As under pytest, whose streams have no encoding to change.
    for stream in ("stdout", "stderr"):
        reconfigure = lambda **options: None  # noqa: E731
        monkeypatch.setattr(f"sys.{stream}.reconfigure", reconfigure, raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr("sys.argv", ["longsum"])
    with pytest.raises(SystemExit) as end:
        console.run(main)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {sentence}")
    assert error.count("\n") == 1


def test_a_missing_plugin_is_named():
    try:
        exec(compile("assert None", "jax/_src/xla_bridge.py", "exec"))
    except AssertionError as error:
        sentence = environment.not_started(error, {"JAX_PLATFORMS": "cuda"})
        assert sentence is not None
        assert "JAX_PLATFORMS=cuda: the device cuda does not start (JAX has no" in sentence
    assert environment.not_started(AssertionError(), {"JAX_PLATFORMS": "cuda"}) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("XLA_FLAGS", "--xla_foo=1", "Unknown flag in XLA_FLAGS: --xla_foo=1"),
        ("XLA_FLAGS", "--xla_dump_hlo_as_text=abc", "Couldn't interpret value abc"),
        ("XLA_FLAGS", "flags.txt", 'Could not open file "flags.txt"'),
        ("JAX_DEBUG_NANS", "maybe", "JAX_DEBUG_NANS=maybe is invalid"),
        ("JAX_LOGGING_LEVEL", "loud", "JAX_LOGGING_LEVEL=loud is invalid"),
    ],
)
def test_xla_and_jax_refuse_values(name, value, answer):
    with pytest.raises(InputError, match=answer):
        environment.check_environment({name: value})
