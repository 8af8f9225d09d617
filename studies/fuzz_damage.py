"""Damage to files, drawn at random: to bytes, and within the formats that hold them.

A flipped byte of an archive is found by its checksum before any reader sees what lies in it. So
content is taken apart where its format is known, damaged inside, and put together again with right
lengths and sums: archives, compressed files, safetensors, arrays, records, pickles, messages of
Protocol Buffers, JSON, and the tags, words and numbers of texts.
"""

import bz2
import copy
import gzip
import io
import json
import lzma
import pickletools
import re
import struct
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longsum_jax.compressed import import_zstd

Damage = Callable[[bytes, np.random.Generator], bytes]

_NUMBERS = (0, 1, -1, 2**31, 2**63, -(2**63), 10**12, 10**400, 1e308, -0.0)
_WORDS = ("", "a", "\ud800", "\n", "\0", "../x", "/etc/passwd", "é" * 300, "s4d*9", "(a+)+$")
_VALUES = (*_NUMBERS, float("nan"), float("inf"), *_WORDS, None, True, False, [], {}, [[]], [None])
_BYTES = (b"\0", b"\xff", b"\x80", b"\n", b"{", b"[", b'"', b"\xed\xa0\x80", b"\xff" * 8, b"\x7f")
_TOKENS = (
    *(b"-1", b"0", b"999999999999", b"9" * 5000, b"NaN", b"1e999", b"\xef\xbb\xbf", b"\r", b"\0"),
    *(b"&#x110000;", b"&#xd800;", b"&x;", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<!DOCTYPE x [<"),
    *(b"\\u-99999", b"\\bin999999999 ", b"\\'zz", b"=?x?b?!?=", b'charset="\0"', b"boundary=a"),
    *(b'"', b"'", b"```", b"[", b"](", b"|", b"\t", b"%PDF-", b"endobj", b"<</Kids[1 0 R]>>"),
)
_TOKEN = re.compile(rb"<[^<>]{0,200}>|\\[a-z]{1,20}-?\d{0,9}|\w{1,100}|\s{1,100}|.", re.DOTALL)
_MOST_COPIES = 300
_MOST_BYTES = 2**20  # of a damaged file; larger ones are cut
_ZIP, _GZIP, _XZ, _ZSTD = b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
_COMPRESSED: dict[bytes, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    _GZIP: (gzip.decompress, lambda content: gzip.compress(content, mtime=0)),
    _XZ: (lzma.decompress, lzma.compress),
    b"BZh": (bz2.decompress, bz2.compress),
    _ZSTD: (import_zstd("fuzz").decompress, import_zstd("fuzz").compress),
}
_RECORDS = ".array_record"


def damaged(name: str, content: bytes, rng: np.random.Generator) -> bytes:
    """Returns a file with one to four changes.

    Args:
        name: of the file, whose ending tells formats without a mark of their own.
        content: of the file.
        rng: draws the changes.
    """
    for _ in range(rng.integers(1, 5)):
        content = _change(name, content, rng)[:_MOST_BYTES]
    return content


def _change(name: str, content: bytes, rng: np.random.Generator) -> bytes:
    """Returns content with one change, in three of four cases within its format."""
    inside = _inside(name, content) if rng.random() < 0.75 else None
    if inside is None:
        return _damage_bytes(content, rng)
    try:
        return inside(content, rng)
    except Exception:  # an earlier change has broken the format
        return _damage_bytes(content, rng)


def _inside(name: str, content: bytes) -> Damage | None:
    """Returns what damages content within its format; None for bytes of no known one."""
    if content.startswith(tuple(_COMPRESSED)):
        return _damage_compressed
    if content.startswith(_ZIP):
        return _damage_zip
    if content[257:262] == b"ustar":
        return _damage_tar
    if content.startswith(b"\x93NUMPY"):
        return _damage_array
    if name.endswith(_RECORDS):
        return _damage_records
    if name.endswith(".model"):
        return _damage_message
    if name.endswith(".safetensors"):
        return _damage_safetensors
    if name.endswith(".pkl") or content.startswith(b"\x80\x02"):
        return _damage_pickle
    if name.endswith((".json", ".jsonl")):
        return _damage_json if content.lstrip()[:1] in (b"{", b"[") else _damage_tokens
    return None if name.endswith((".bin", ".parquet")) else _damage_tokens


# JSON


def _damage_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes one value in JSON, in one line of JSON lines."""
    lines = content.split(b"\n")
    place = int(rng.integers(len(lines)))
    if len(lines) > 30 or not lines[place].strip():
        place = 0
    is_whole = b"\n{" not in content
    tree = json.loads(content if is_whole else lines[place])
    text = json.dumps(changed(tree, rng)).encode()
    if is_whole:
        return text
    return b"\n".join([*lines[:place], text, *lines[place + 1 :]])


def changed(tree: Any, rng: np.random.Generator) -> Any:
    """Returns a JSON value with one change, which may be to ``tree`` itself."""
    holders = [[tree]]
    for holder in holders:
        values = list(holder.values() if isinstance(holder, dict) else holder)
        holders += [value for value in values if isinstance(value, dict | list) and value]
    holder = holders[rng.integers(len(holders))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[rng.integers(len(keys))]
    kind = rng.random()
    if kind < 0.1 and holder is not holders[0]:
        del holder[key]
    elif kind < 0.2:
        holder[key] = [copy.deepcopy(holder[key])]
    elif kind < 0.3 and isinstance(holder, dict):
        holder[_WORDS[rng.integers(len(_WORDS))]] = holder[key]
    elif kind < 0.35:
        holder[key] = json.loads("[" * 200 + "]" * 200)
    elif kind < 0.5:  # what stands elsewhere, where it does not belong
        other = holders[rng.integers(len(holders))]
        values = list(other.values() if isinstance(other, dict) else other)
        holder[key] = copy.deepcopy(values[rng.integers(len(values))])
    else:
        holder[key] = copy.deepcopy(_VALUES[rng.integers(len(_VALUES))])
    return holders[0][0]


# Texts, bytes, sequences


def _damage_tokens(content: bytes, rng: np.random.Generator) -> bytes:
    """Deletes, repeats, exchanges or replaces tags, words, marks and numbers."""
    tokens = _TOKEN.findall(content)
    return b"".join(_rearranged(tokens, _TOKENS, rng))


def _rearranged(parts: list[bytes], others: Sequence[bytes], rng: np.random.Generator) -> list:
    """Returns parts of which one is gone, repeated, exchanged, replaced or followed by another."""
    place = int(rng.integers(len(parts)))
    before, part, after = parts[:place], parts[place], parts[place + 1 :]
    kind = rng.integers(5)
    if kind == 0:
        return before + after
    if kind == 1:
        return [*before, *[part] * int(rng.choice([2, 3, _MOST_COPIES])), *after]
    other = others[rng.integers(len(others))] if rng.random() < 0.5 else b""
    other = other or parts[rng.integers(len(parts))]
    if kind == 2 and after:
        return [*before, after[0], part, *after[1:]]
    return [*before, other, *after] if kind == 3 else [*before, part, other, *after]


def _damage_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    if not content:
        return b"\0"
    start, end = sorted(rng.integers(0, len(content) + 1, 2))
    end = min(end, start + 64)
    kind = rng.integers(5)
    if kind == 0:
        flipped = bytearray(content)
        flipped[min(start, len(content) - 1)] ^= 1 << int(rng.integers(8))
        return bytes(flipped)
    if kind == 1:
        return content[:start] + content[end:]
    if kind == 2:
        return content[:end] + content[start:end] * int(rng.integers(1, 20)) + content[end:]
    if kind == 3:
        return content[:start]
    return content[:start] + _BYTES[rng.integers(len(_BYTES))] + content[end:]


# Archives and compressed files


def _damage_compressed(content: bytes, rng: np.random.Generator) -> bytes:
    unpack, pack = next(both for magic, both in _COMPRESSED.items() if content.startswith(magic))
    return pack(_change("", unpack(content), rng))


def _damage_zip(content: bytes, rng: np.random.Generator) -> bytes:
    """Damages a member, its name or its place, or what the directory says of it."""
    if rng.random() < 0.2:
        return _damage_directory(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    place = int(rng.integers(len(members)))
    info, member = members[place]
    kind = rng.random()
    if kind < 0.7:
        members[place] = (info, _change(info.filename, member, rng))
    elif kind < 0.8:
        info.filename = _name(info.filename, rng)
    elif kind < 0.9:
        members.append((copy.copy(info), member))
    else:
        del members[place]
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # of a name that comes twice
        for info, member in members:
            archive.writestr(info, member)
    return out.getvalue()


def _damage_directory(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes a field of the directory at the end of a zip archive: flags, sizes, places."""
    places = [match.start() for match in re.finditer(b"PK\x01\x02|PK\x05\x06", content)]
    place = places[rng.integers(len(places))] + int(rng.integers(4, 46))
    value = struct.pack("<I", int(rng.choice([0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF])))
    size = int(rng.choice([1, 2, 4]))
    return content[:place] + value[:size] + content[place + size :]


def _damage_tar(content: bytes, rng: np.random.Generator) -> bytes:
    """Damages a member, its name, its kind or the size that it claims."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [(info, archive.extractfile(info).read()) for info in archive if info.isreg()]
    place = int(rng.integers(len(members)))
    info, member = members[place]
    kind = rng.random()
    if kind < 0.5:
        member = _change(info.name, member, rng)
        info.size = len(member)
    elif kind < 0.7:
        info.name = _name(info.name, rng)
    elif kind < 0.85:
        info.type = bytes([rng.integers(32, 127)])
    else:
        info.size = int(rng.choice([0, 1, 2**20, 2**33]))
    members[place] = (info, member)
    out = io.BytesIO()
    for info, member in members:
        out.write(info.tobuf(tarfile.PAX_FORMAT))
        out.write(member + bytes(-len(member) % 512))
    return out.getvalue() + bytes(1024)


def _name(name: str, rng: np.random.Generator) -> str:
    return str(rng.choice(["../" + name, "/" + name, name + "/", "", "a\n" + name, "." + name]))


# Arrays and weights


def _damage_array(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes the header of a .npy file, which is a literal of Python."""
    size = int.from_bytes(content[8:10], "little")
    header = _damage_tokens(content[10 : 10 + size], rng)
    return content[:8] + len(header).to_bytes(2, "little") + header + content[10 + size :]


def _damage_safetensors(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes a value of the header, or the numbers."""
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    if rng.random() < 0.1:
        data = _damage_bytes(data, rng)
    else:
        header = _damage_json(header, rng)
    return len(header).to_bytes(8, "little") + header + data


def _damage_pickle(content: bytes, rng: np.random.Generator) -> bytes:
    """Deletes, repeats, exchanges or replaces instructions of a pickle."""
    starts = [place for _, _, place in pickletools.genops(content)]
    ends = [*starts[1:], len(content)]
    parts = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    others = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
    return b"".join(_rearranged(parts, others, rng))


# Messages of Protocol Buffers, and records


def _damage_message(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes a field of a message, or of one inside of it."""
    fields = _fields(content)
    place = int(rng.integers(len(fields)))
    key, value = fields[place]
    if key & 7 == 2 and len(value) > 2 and rng.random() < 0.7:
        try:
            fields[place] = (key, _damage_message(value, rng))
        except (IndexError, ValueError):
            fields[place] = (key, _damage_bytes(value, rng))
        return _message(fields)
    kind = rng.random()
    if kind < 0.2:
        del fields[place]
    elif kind < 0.4:
        fields.insert(int(rng.integers(len(fields))), (key, value))
    elif kind < 0.5:
        fields[place] = (int(rng.integers(1, 2**7)), value)
    elif key & 7 == 0:
        fields[place] = (key, _varint(int(rng.choice([0, 1, 2, 5, 2**31 - 1, 2**32, 2**63 - 1]))))
    elif key & 7 == 5:
        number = rng.choice([0.0, -1e30, np.nan, np.inf, -np.inf, 1e-45])
        fields[place] = (key, struct.pack("<f", number))
    else:
        fields[place] = (key, _damage_bytes(value, rng))
    return _message(fields)


def _fields(content: bytes) -> list[tuple[int, bytes]]:
    """Returns keys of fields (number and kind) with their contents.

    Raises:
        IndexError, ValueError: no message.
    """
    fields, place = [], 0
    while place < len(content):
        key, place = _read_varint(content, place)
        kind = key & 7
        if kind == 0:
            _, end = _read_varint(content, place)
        elif kind == 2:
            size, place = _read_varint(content, place)
            end = place + size
        elif kind in (1, 5):
            end = place + (8 if kind == 1 else 4)
        else:
            raise ValueError(f"fields of kind {kind}")
        if not key >> 3 or end > len(content):
            raise ValueError("no message")
        fields.append((key, content[place:end]))
        place = end
    return fields


def _message(fields: list[tuple[int, bytes]]) -> bytes:
    parts = []
    for key, value in fields:
        parts.append(_varint(key))
        parts.append(_varint(len(value)) if key & 7 == 2 else b"")
        parts.append(value)
    return b"".join(parts)


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _damage_records(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes one record and writes all anew, with right hashes."""
    import grain
    import msgpack
    from array_record.python.array_record_module import ArrayRecordWriter

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a" + _RECORDS)
        path.write_bytes(content)
        source = grain.sources.ArrayRecordDataSource(str(path))
        records = [source[index] for index in range(len(source))]
        place = int(rng.integers(len(records)))
        if rng.random() < 0.3:
            records[place] = _damage_bytes(records[place], rng)
        else:
            value = msgpack.unpackb(records[place], strict_map_key=False)
            records[place] = msgpack.packb(changed(value, rng))
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        for record in records:
            writer.write(record)
        writer.close()
        return path.read_bytes()
