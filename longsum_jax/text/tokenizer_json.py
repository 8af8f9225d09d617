"""Reads the tokenizer.json of a T5-style tokenizer as a SentencePiece model.

transformers 5 saves T5 tokenizers as tokenizer.json alone. The file holds what a SentencePiece unigram model
holds (pieces, scores, the compiled normalisation table), so the model is rebuilt from it. Field numbers are
those of sentencepiece_model.proto.
"""

import base64
import binascii
import json
import re
import struct
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_UNIGRAM = 1
_EXTRA_ID = re.compile(r"<extra_id_\d+>")
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


def read_tokenizer_json(path: Path) -> tuple[bytes, int]:
    """Returns a serialised SentencePiece model and the number of extra ids after its pieces.

    Raises:
        InputError: the file is not a unigram tokenizer with pad 0, eos 1 and unk 2.
    """
    try:
        content = json.loads(path.read_bytes())
        model = content["model"]
        if model["type"] != "Unigram":
            raise InputError(f'{path}: the tokenizer type "{model["type"]}" is not supported; give a Unigram one')
        vocabulary = [(str(piece), float(score)) for piece, score in model["vocab"]]
        table = _normalisation_table(content.get("normalizer"))
        byte_fallback = bool(model.get("byte_fallback", False))
    except (OSError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable tokenizer.json ({error}); copy spiece.model beside it") from None
    if [piece for piece, _ in vocabulary[:3]] != ["<pad>", "</s>", "<unk>"]:
        raise InputError(f"{path}: pieces 0, 1, 2 must be <pad>, </s>, <unk>, as in T5")
    num_pieces = len(vocabulary)
    while _EXTRA_ID.fullmatch(vocabulary[num_pieces - 1][0]):
        num_pieces -= 1
    return _model(vocabulary[:num_pieces], table, byte_fallback), len(vocabulary) - num_pieces


def _normalisation_table(normalizer: dict[str, Any] | None) -> bytes:
    """Returns the compiled character map; other steps squeeze white space, as SentencePiece does."""
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
    pieces = b"".join(_bytes(1, _piece(index, piece, score)) for index, (piece, score) in enumerate(vocabulary))
    trainer = _int(3, _UNIGRAM) + _int(4, len(vocabulary)) + _int(35, byte_fallback)
    trainer += _int(40, 2) + _int(41, -1) + _int(42, 1) + _int(43, 0)  # unk, bos, eos, pad
    return pieces + _bytes(2, trainer) + _bytes(3, _bytes(1, b"nmt_nfkc") + _bytes(2, table))


def _piece(index: int, piece: str, score: float) -> bytes:
    kind = _BYTE if _BYTE_PIECE.fullmatch(piece) else _NORMAL
    kind = (_CONTROL, _CONTROL, _UNKNOWN)[index] if index < 3 else kind
    return _bytes(1, piece.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + _int(3, kind)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value % 2**64)  # protobuf writes negative numbers as 64 bits


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])
