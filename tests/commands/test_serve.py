import jax

from longsum_jax.commands import serve
from longsum_jax.serving import replicas
from longsum_jax.summarization import loading


def test_a_model_for_several_devices_is_read_into_host_memory(monkeypatch):
    monkeypatch.setattr(replicas, "count_replicas", lambda number, **mesh: number)
    monkeypatch.setattr(replicas, "make_replicas", lambda *parts, **mesh: (*parts, mesh))
    monkeypatch.setattr(loading, "load", lambda name, **_: jax.config.jax_default_device)
    args = serve._parser().parse_args(["--model=any", "--replicas=2", "--mesh.tensor=2"])
    host = jax.local_devices(backend="cpu")[0]
    assert serve._replicas(args) == (host, 2, {"fsdp": 1, "tensor": 2})
    args = serve._parser().parse_args(["--model=any", "--replicas=1"])
    assert serve._replicas(args) == (None, 1, {"fsdp": 1, "tensor": 1})
