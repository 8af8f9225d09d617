import hashlib
import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest

from longsum_jax import checksums
from longsum_jax.checkpoints.tensor_files import write_safetensors
from longsum_jax.commands import verify
from longsum_jax.errors import InputError


@pytest.fixture
def written(tmp_path):
    """A directory with sums, and a file beside them that has none."""
    directory = tmp_path / "run" / "model"
    directory.mkdir(parents=True)
    (directory / "a.bin").write_bytes(bytes(100))
    (directory / "b.json").write_text("{}")
    checksums.write(directory)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    return directory


def verified(capsys, *paths):
    """Exit code and lines of output."""
    code = verify.main([str(path) for path in paths])
    return code, capsys.readouterr().out.splitlines()


def test_what_was_written_is_compared_and_the_rest_is_read(written, capsys):
    code, lines = verified(capsys, written.parent)
    assert code == 0
    assert lines == [
        f"{written}: 2 files as written, by SHA-256",
        f"{written.parent}: 1 file of valid JSON, but without a checksum",
    ]


def test_every_damaged_file_is_named(written, capsys):
    (written / "a.bin").write_bytes(bytes(99))
    (written / "b.json").unlink()
    (written.parent / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    code, lines = verified(capsys, written.parent)
    assert code == 1
    assert lines[:2] == [
        f"DAMAGED {written / 'a.bin'}: its SHA-256 differs",
        f"DAMAGED {written / 'b.json'}: No such file or directory",
    ]
    assert lines[2].startswith(f"DAMAGED {written.parent / 'metrics.jsonl'}: line 2 is not JSON")


def test_one_file_is_compared_with_the_sums_beside_it(written, capsys):
    path = written / "a.bin"
    assert verified(capsys, path) == (0, [f"{written}: 1 file as written, by SHA-256"])
    path.write_bytes(bytes(99))
    assert verified(capsys, path) == (1, [f"DAMAGED {path}: its SHA-256 differs"])


def test_damaged_sums_are_named(written, capsys):
    (written / checksums.SUMS).write_text("# 1 sums\n")
    code, lines = verified(capsys, written)
    assert code == 1
    assert lines[0].startswith(f"DAMAGED {written / checksums.SUMS}: changed since it was written")


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def hub_blob(directory):
    content = b"weights"
    blob = directory / "blobs" / hashlib.sha256(content).hexdigest()
    blob.parent.mkdir()
    blob.write_bytes(content)
    snapshot = directory / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(blob)
    return snapshot, blob, 5


def tensors(directory):
    path = directory / "model.safetensors"
    write_safetensors(path, {"w": np.zeros(4, np.float32)})
    return directory, path, 8 * 20


def archive(directory):
    path = directory / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", "some numbers")
    return directory, path, 8 * path.read_bytes().index(b"numbers")


@pytest.mark.parametrize(
    ("make", "proof", "problem"),
    [
        (hub_blob, "as published on the Hub, by SHA-256", "its SHA-256 differs from its name"),
        (tensors, "with every tensor in its place", "damaged or truncated safetensors file"),
        (archive, "with the checksums of their parts", "its part data does not match"),
    ],
)
def test_files_of_others_prove_what_they_can(tmp_path, capsys, make, proof, problem):
    directory, path, bit = make(tmp_path)
    code, [line] = verified(capsys, directory)
    assert (code, f"{directory}: 1 file {proof}" in line) == (0, True)
    flip(path, bit)
    code, [line] = verified(capsys, directory)
    assert code == 1
    assert line.startswith("DAMAGED ")
    assert problem in line


def test_what_proves_nothing_is_said(tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("a")
    code, lines = verified(capsys, tmp_path / "vocab.txt")
    assert (code, lines) == (
        0,
        [f"{tmp_path / 'vocab.txt'}: 1 file without a checksum: not checked"],
    )


def test_pipes_and_devices_are_not_waited_for(tmp_path, capsys):
    for name in ("a.json", "b.jsonl", "c.bin", "d.array_record", "e.safetensors"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "f.json").symlink_to("/dev/zero")
    said = "6 files not read: pipes, devices and links to directories"
    assert verified(capsys, tmp_path) == (0, [f"{tmp_path}: {said}"])


def bomb():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(2**25))
    return out.getvalue()


def other_names():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("ü", "")
    return out.getvalue().replace("ü".encode(), b"\xff\xff")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.zip", b"PK\x05\x06" + b"\xff" * 18, "a damaged archive"),
        ("a.zip", other_names(), "a damaged archive ('utf-8' codec can't decode byte 0xff"),
        ("a.zip", bomb(), "expands to more than 200 times its size"),
        ("a.json", b"[" * 10**5, "nested too deeply"),
        ("a.jsonl", b"{}\n" + b"[" * 10**5, "line 2 is not JSON"),
        ("a.json", b"\xff\xfe\xff", "decode"),
        ("a\n\x1b[1m.json", b"{", r"a\n\x1b[1m.json"),
        (os.fsdecode(b"a\xff.json"), b"{", r"a\xff.json"),
    ],
)
def test_what_somebody_made_to_do_harm_is_one_line(tmp_path, capsys, name, content, problem):
    (tmp_path / name).write_bytes(content)
    code, [line] = verified(capsys, tmp_path)
    assert (code, line.startswith("DAMAGED "), line.isprintable()) == (1, True, True)
    assert problem in line


def test_json_that_takes_a_gigabyte_to_parse_is_not_read(tmp_path, capsys):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**25 + 1)
    said = f"1 file not read: JSON of more than {2**25} bytes"
    assert verified(capsys, tmp_path) == (0, [f"{tmp_path}: {said}"])


def test_a_directory_without_files_is_said_to_be_one(tmp_path, capsys):
    assert verified(capsys, tmp_path) == (0, [f"{tmp_path}: holds no files"])


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such file or directory"):
        verify.main([str(tmp_path / "nowhere")])


def test_a_saved_model_is_proved_whole(small_model, capsys):
    code, [line] = verified(capsys, small_model)
    assert code == 0
    count = sum(path.is_file() for path in small_model.rglob("*"))
    assert line == f"{small_model}: {count - 1} files as written, by SHA-256"


def checkpoint(directory):
    (directory / "meta").mkdir()
    (directory / "meta" / "metadata").write_text(json.dumps(checksums.MARK))
    return directory / "meta" / "metadata"


def shards(directory):
    from array_record.python.array_record_module import ArrayRecordWriter

    for name in ("a.array_record", "b.array_record"):
        writer = ArrayRecordWriter(str(directory / name), "group_size:1")
        writer.write(b"record")
        writer.close()
    (directory / "metadata.json").write_text("{}")
    return directory / "b.array_record"


@pytest.mark.parametrize("make", [checkpoint, pytest.param(shards, marks=pytest.mark.slow)])
def test_missing_sums_are_named_with_the_remedy(tmp_path, capsys, make):
    directory = tmp_path / "7"
    directory.mkdir()
    path = make(directory)
    code, lines = verified(capsys, tmp_path)
    assert (code, [line for line in lines if str(directory) in line]) == (1, lines[-1:])
    assert lines[-1].startswith(f"UNVERIFIED {directory / 'SHA256SUMS'} is missing")
    assert f"longsum verify --unverified {directory}" in lines[-1]
    assert not any(line.startswith("DAMAGED") for line in lines)
    assert verified(capsys, "--unverified", directory)[0] == 0
    flip(path, 100)
    code, lines = verified(capsys, tmp_path)
    assert code == 1
    assert f"DAMAGED {path}: its SHA-256 differs" in lines


def test_files_without_sums_are_accepted(written, capsys):
    with pytest.raises(InputError, match="not a directory without SHA256SUMS"):
        verified(capsys, "--unverified", written)
    (written / checksums.SUMS).unlink()
    with pytest.raises(InputError, match=f"longsum verify --unverified {written} to accept"):
        checksums.require(written)
    assert verified(capsys, "--unverified", written)[0] == 0
    checksums.require(written)


def test_a_saved_model_without_its_sums_is_reported(small_model, capsys, tmp_path):
    shutil.copytree(small_model, tmp_path / "model")
    (tmp_path / "model" / checksums.SUMS).unlink()
    code, lines = verified(capsys, tmp_path / "model")
    assert code == 1
    assert any(line.startswith("UNVERIFIED") and "SHA256SUMS is missing" in line for line in lines)
    assert verified(capsys, "--unverified", tmp_path / "model")[0] == 0
