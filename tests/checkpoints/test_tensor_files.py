import json
import re
import tracemalloc

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch_file

from longsum_jax.checkpoints import tensor_files
from longsum_jax.checkpoints.state_dict import to_params
from longsum_jax.checkpoints.tensor_files import read_safetensors, read_torch, write_safetensors
from longsum_jax.errors import InputError
from longsum_jax.models.weight_map import WeightMap, WeightRow

DTYPES = ["float64", "float32", "float16", ml_dtypes.bfloat16, "int64", "int8", "uint8", "bool"]


@pytest.fixture
def arrays():
    """One of every type, with awkward shapes."""
    rng = np.random.default_rng(0)
    shapes = [(2, 3), (), (0, 4), (5,), (1, 1, 3)]
    result = {str(np.dtype(d)): rng.normal(size=shapes[i % 5]) * 3 for i, d in enumerate(DTYPES)}
    return {
        f"tensor.{name}": np.asarray(value, d)
        for (name, value), d in zip(result.items(), DTYPES, strict=True)
    }


def check(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(np.asarray(found[name]), value, err_msg=name)


def test_what_the_format_s_own_library_wrote(arrays, tmp_path):
    save_file(arrays, tmp_path / "x", metadata={"format": "pt", "note": "é"})
    check(read_safetensors(tmp_path / "x"), arrays)


def test_what_the_format_s_own_library_reads(arrays, tmp_path):
    write_safetensors(tmp_path / "x", arrays)
    check(read_safetensors(tmp_path / "x"), arrays)
    check(load_file(tmp_path / "x"), arrays)
    header = (tmp_path / "x").read_bytes()[8:].decode("latin-1")
    assert header.startswith('{"__metadata__":{"format":"pt"}')
    assert int.from_bytes((tmp_path / "x").read_bytes()[:8], "little") % 8 == 0


@pytest.mark.parametrize("read", [read_safetensors, read_torch])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loading_takes_at_most_a_tenth_more_than_the_parameters(dtype, stored, read, tmp_path):
    row, layer = torch.arange(256, dtype=stored), torch.ones((256, 256), dtype=stored)
    state = {"table": row.repeat(2**15, 1)} | {str(i): layer.clone() for i in range(16)}
    (torch.save if read is read_torch else save_torch_file)(state, tmp_path / "x")
    rows = WeightMap([WeightRow("table", "table"), WeightRow("kernel", "{i}", "linear")])
    shapes = {"table": (2**15, 256), "kernel": (16, 256, 256)}
    tensors = read(tmp_path / "x")
    tracemalloc.start()
    params = to_params(tensors, rows, shapes, "x", dtype=jnp.dtype(dtype), place=np.asarray)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * sum(x.nbytes for x in params.values())
    assert all(x.dtype == dtype for x in params.values())
    np.testing.assert_array_equal(params["table"][[0, 4095, -1]], np.arange(256)[None].repeat(3, 0))


@pytest.mark.parametrize("length", range(1, 9))
def test_tensors_begin_at_a_multiple_of_eight_bytes(tmp_path, length):
    write_safetensors(tmp_path / "x", {"a" * length: np.ones(1)})
    assert int.from_bytes((tmp_path / "x").read_bytes()[:8], "little") % 8 == 0


def test_reading_waits_until_asked(arrays, tmp_path):
    save_file(arrays, tmp_path / "x")
    result = read_safetensors(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"x: damaged or truncated safetensors file \(it was truncated while"
    ):
        np.asarray(result["tensor.float32"])
    (tmp_path / "x").unlink()
    with pytest.raises(
        InputError, match=r"x: damaged or truncated safetensors file \(.*No such file"
    ):
        np.asarray(result["tensor.float32"])


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


MALFORMED = [
    (b"[1]", "its header is not a JSON object"),
    (b"{", "Expecting property name"),
    (b"\xff", "codec can't decode"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":{},"a":{}}', "a name occurs twice in its header"),
    ({"a": 3}, 'tensor "a" is not described by dtype, shape and data_offsets'),
    ({"a": {"dtype": "F32", "shape": [2]}}, 'tensor "a" is not described'),
    ({"a": entry(shape=[2]) | {"data_offsets": [0, 4, 8]}}, 'tensor "a" is not described'),
    ({"a": entry(shape=[2]) | {"dtype": []}}, 'tensor "a" is not described'),
    ({"a": entry("F8_E4M3", (8,))}, 'tensor "a" has type .F8_E4M3.; known: F64, F32, F16, BF16,'),
    ({"a": entry(shape=[-2])}, 'tensor "a" has a shape or offset with other than whole numbers'),
    ({"a": entry(shape=[2.0])}, "whole numbers"),
    ({"a": entry(shape=[True, 2])}, "whole numbers"),
    ({"a": entry(shape=[3])}, r'tensor "a" takes 8 bytes, which does not fit its shape \[3\]'),
    ({"a": entry(shape=[10**30])}, r"which does not fit its shape"),
    ({"a": entry(shape=[1], end=4)}, r"its tensors need \d+ bytes, the file has \d+"),
    ({"a": entry(shape=[1], begin=4)}, 'tensor "a" begins at byte 4 of the data, not at 0'),
    ({"a": entry(), "b": entry()}, 'tensor "b" begins at byte 0 of the data, not at 8'),
    ({"a": entry(shape=[4], end=16)}, "its tensors need"),
]


@pytest.mark.parametrize(("header", "problem"), MALFORMED)
def test_malformed_headers(tmp_path, header, problem):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(InputError, match=problem) as caught:
        read_safetensors(tmp_path / "x")
    assert re.fullmatch(
        r".*x: damaged or truncated safetensors file \(.*\); fetch it again", str(caught.value)
    )


def test_header_longer_than_the_file_or_the_limit_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes((2**63).to_bytes(8, "little") + bytes(100))
    with pytest.raises(
        InputError, match=r"a header of 9223372036854775808 bytes does not fit in a file of 108"
    ):
        read_safetensors(tmp_path / "x")
    monkeypatch.setattr(tensor_files, "_MAX_HEADER", 50)
    (tmp_path / "x").write_bytes((51).to_bytes(8, "little") + bytes(100))
    with pytest.raises(InputError, match=r"its header has 51 bytes, more than 50"):
        read_safetensors(tmp_path / "x")


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files_of_both_formats(tmp_path, zipped):
    half = torch.tensor([[1.5, -2.25], [3.0, 1e-3]])
    state = {
        "f32": torch.arange(6.0).reshape(2, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "f16": half.half(),
        "bf16": half.bfloat16(),
        "parameter": torch.nn.Parameter(half),
        "ids": torch.arange(3)[None],
    }
    torch.save(state, tmp_path / "x", _use_new_zipfile_serialization=zipped)
    result = read_torch(tmp_path / "x")
    expected = {name: x.detach().float().numpy() for name, x in state.items()}
    expected["ids"] = np.arange(3)[None]
    check(result, expected)


def test_torch_arrays_are_not_views_of_the_file(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "x")
    result = np.asarray(read_torch(tmp_path / "x")["a"])
    assert result.base.flags.owndata  # memory of NumPy, aligned for devices
    result[:] = 2
    np.testing.assert_array_equal(np.asarray(read_torch(tmp_path / "x")["a"]), np.ones(3))


@pytest.mark.parametrize(
    "content",
    [
        [torch.ones(1)],
        {"a": 1},
        {"a": {"b": torch.ones(1)}},
        {"a": torch.ones(2, 2).to_sparse()},
    ],
)
def test_torch_files_of_something_else(tmp_path, content):
    torch.save(content, tmp_path / "x")
    with pytest.raises(InputError, match=r"x: expected a dictionary of tensors"):
        read_torch(tmp_path / "x")


def test_truncated_torch_file(tmp_path):
    torch.save({"a": torch.ones(100)}, tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:300])
    with pytest.raises(
        InputError, match=r"x: not a file of plain tensors, nothing in it was run"
    ) as caught:
        read_torch(tmp_path / "x")
    assert len(str(caught.value).splitlines()) == 1
