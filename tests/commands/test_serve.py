import logging
import socket
import sys
from types import SimpleNamespace

import jax
import pytest

from longsum_jax.commands import serve
from longsum_jax.errors import InputError
from longsum_jax.serving import replicas
from longsum_jax.summarization import loading


def loaded(head):
    """A model with a head, and the device that it was read into."""
    return SimpleNamespace(config=SimpleNamespace(head=head), device=jax.config.jax_default_device)


def test_a_model_for_several_devices_is_read_into_host_memory(monkeypatch):
    monkeypatch.setattr(replicas, "count_replicas", lambda number, **mesh: number)
    monkeypatch.setattr(
        replicas, "make_replicas", lambda model, *rest, **mesh: (model.device, *rest, mesh)
    )
    monkeypatch.setattr(loading, "load", lambda *_, **__: loaded("language_model"))
    args = serve._parser().parse_args(["--model=any", "--replicas=2", "--mesh.tensor=2"])
    host = jax.local_devices(backend="cpu")[0]
    assert serve._replicas(args) == {"any": (host, 2, {"fsdp": 1, "tensor": 2})}
    args = serve._parser().parse_args(["--model=any", "--replicas=1"])
    assert serve._replicas(args) == {"any": (None, 1, {"fsdp": 1, "tensor": 1})}


def test_a_classifier_is_refused(monkeypatch):
    monkeypatch.setattr(loading, "load", lambda *_, **__: loaded("classification"))
    args = serve._parser().parse_args(["--model=runs/labels"])
    message = '--model=runs/labels has the head "classification", which writes no summaries'
    with pytest.raises(InputError, match=message):
        serve._replicas(args)


def test_models_have_different_names(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert serve._names(["runs/a/", "ORG/NAME", "."]) == ["a", "NAME", tmp_path.name]
    for models in (["runs/a", "other/a"], ["runs/built-in"]):
        with pytest.raises(InputError, match="rename the directory"):
            serve._names(models)


@pytest.mark.parametrize("flag", ["tokenizer=nowhere", "dtype=bfloat16", "revision=v1"])
def test_flags_of_a_model_need_one(flag):
    name = flag.partition("=")[0]
    with pytest.raises(InputError, match=f"--{name} has no effect without --model; leave it out"):
        serve.make_application([f"--{flag}"])


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"pip install 'longsum_jax\[serve\]'"):
        serve.make_application([])


@pytest.mark.parametrize(
    ("flags", "is_open"),
    [
        ([], False),
        (["--host=::1"], False),
        (["--host=localhost"], False),
        (["--host=0.0.0.0"], True),
        (["--host=example.org"], True),
        (["--host=0.0.0.0", "--api_keys=KEYS"], False),
    ],
)
def test_a_server_for_everyone_is_mentioned(flags, is_open, tmp_path, monkeypatch, capsys):
    uvicorn = pytest.importorskip("uvicorn")
    testclient = pytest.importorskip("starlette.testclient")

    def run(app, **_):
        with testclient.TestClient(app):
            pass  # closes the engine

    monkeypatch.setattr(uvicorn, "run", run)
    monkeypatch.setattr(serve, "_check_port", lambda *_: None)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    keys = tmp_path / "keys.txt"
    keys.write_text("key\n", encoding="utf-8")
    serve.main([flag.replace("KEYS", str(keys)) for flag in flags])
    assert ("WARNING: --host=" in capsys.readouterr().err) == is_open


def test_a_port_in_use_is_refused_before_models_are_loaded(monkeypatch):
    monkeypatch.setattr(serve, "_application", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        problem = f"--port={port} is in use on 127.0.0.1; stop the other server or give another"
        with pytest.raises(InputError, match=problem):
            serve.main([f"--port={port}"])


def test_a_missing_file_of_keys_is_named():
    with pytest.raises(InputError, match=r"--api_keys=no: cannot be read \(No such file or dir"):
        serve._keys("no")
