"""From the tokenizer.json of T5 to a SentencePiece model, and from a SentencePiece model to
PEGASUS's tokenizer.json.

transformers 5 saves T5 tokenizers as tokenizer.json alone. The file holds what a SentencePiece
unigram model holds (pieces, scores, the compiled normalisation table), so the model is rebuilt from
it. The other way round, transformers 5 opens PEGASUS-X and BigBird-PEGASUS by their tokenizer.json
alone. Field numbers are those of sentencepiece_model.proto.
"""

import base64
import binascii
import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_UNIGRAM = 1
_T5_PIECES = ["<pad>", "</s>", "<unk>"]
_EXTRA_ID = re.compile(r"<extra_id_\d+>")
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


def read_tokenizer_json(content: str, where: Path) -> tuple[bytes, int] | None:
    """Rebuilds the SentencePiece model of a T5-style tokenizer.json.

    Args:
        content: of the file.
        where: its path, for error messages.

    Returns:
        A serialised SentencePiece model and the number of extra ids after its pieces. None if the
        file is another kind of tokenizer: not Unigram, other special tokens than T5's, or tokens
        added to it.

    Raises:
        InputError: the file is no tokenizer.json.
    """
    try:
        tokenizer = json.loads(content)
        model = tokenizer["model"]
        if model.get("type") != "Unigram":
            return None
        vocabulary = [(str(piece), float(score)) for piece, score in model["vocab"]]
        table = _normalisation_table(tokenizer.get("normalizer"))
        byte_fallback = bool(model.get("byte_fallback", False))
        added = {token["content"] for token in tokenizer.get("added_tokens") or []}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where}: not a readable tokenizer.json ({error}); copy it again"
        ) from None
    pieces = [piece for piece, _ in vocabulary]
    num_pieces = len(pieces)
    while num_pieces and _EXTRA_ID.fullmatch(pieces[num_pieces - 1]):
        num_pieces -= 1
    if pieces[:3] != _T5_PIECES or not added <= {*_T5_PIECES, *pieces[num_pieces:]}:
        return None
    return _model(vocabulary[:num_pieces], table, byte_fallback), len(pieces) - num_pieces


def unigram_json(
    vocabulary: Sequence[tuple[str, float]], special: Mapping[str, int], unk_id: int, model: bytes
) -> str:
    """Writes a tokenizer.json that cuts texts as a SentencePiece unigram model does, and ends them
    with `</s>`.

    Args:
        vocabulary: pieces and scores by id.
        special: special tokens and their ids.
        unk_id: of the unknown piece.
        model: the serialised SentencePiece model, for its normalisation table.
    """
    table = base64.b64encode(_field(_field(model, 3), 2)).decode()
    squeeze = [
        {"type": "Replace", "pattern": {"Regex": regex}, "content": content}
        for regex, content in (("^ +| +$", ""), (" {2,}", " "))
    ]
    steps = [{"type": "Precompiled", "precompiled_charsmap": table}] if table else []
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {
        "special": True
    }
    text, end = (
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    )
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": special[token], "content": token, **flags}
            for token in sorted(special, key=special.get)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [*steps, *squeeze]},
        "pre_tokenizer": spaces,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [text, end],
            "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}, end],
            "special_tokens": {
                "</s>": {"id": "</s>", "ids": [special["</s>"]], "tokens": ["</s>"]}
            },
        },
        "decoder": spaces,
        "model": {"type": "Unigram", "unk_id": unk_id, "vocab": vocabulary, "byte_fallback": False},
    }
    return json.dumps(content)


def _normalisation_table(normalizer: dict[str, Any] | None) -> bytes:
    """Returns the compiled character map; other steps squeeze white space, as SentencePiece
    does."""
    if normalizer is None:
        return b""
    for step in normalizer.get("normalizers", [normalizer]):
        if step["type"] == "Precompiled":
            try:
                return base64.b64decode(step["precompiled_charsmap"], validate=True)
            except binascii.Error as error:
                raise ValueError(f"precompiled_charsmap: {error}") from None
    return b""


def _model(vocabulary: list[tuple[str, float]], table: bytes, byte_fallback: bool) -> bytes:
    pieces = b"".join(
        _bytes(1, _piece(index, piece, score)) for index, (piece, score) in enumerate(vocabulary)
    )
    trainer = _int(3, _UNIGRAM) + _int(4, len(vocabulary)) + _int(35, byte_fallback)
    trainer += _int(40, 2) + _int(41, -1) + _int(42, 1) + _int(43, 0)  # unk, bos, eos, pad
    return pieces + _bytes(2, trainer) + _bytes(3, _bytes(1, b"nmt_nfkc") + _bytes(2, table))


def _piece(index: int, piece: str, score: float) -> bytes:
    kind = _BYTE if _BYTE_PIECE.fullmatch(piece) else _NORMAL
    kind = (_CONTROL, _CONTROL, _UNKNOWN)[index] if index < 3 else kind
    return (
        _bytes(1, piece.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + _int(3, kind)
    )


def _field(message: bytes, field: int) -> bytes:
    """The content of a length-delimited field, empty if there is none."""
    place = 0
    while place < len(message):
        tag, place = _read_varint(message, place)
        size = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 in (0, 2):
            value, place = _read_varint(message, place)
            size = value if tag & 7 == 2 else 0
        if tag == field << 3 | 2:
            return message[place : place + size]
        place += size
    return b""


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while message[place] > 127:
        value |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | message[place] << shift, place + 1


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(
        value % 2**64
    )  # protobuf writes negative numbers as 64 bits


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])
