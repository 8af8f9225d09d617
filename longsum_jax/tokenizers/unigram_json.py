"""Converts tokenizer.json files to SentencePiece unigram models, and models to tokenizer.json.

transformers 5 saves T5 tokenizers only as tokenizer.json. That file contains
all of a SentencePiece unigram model (pieces, scores, the compiled normalization
table), so the model is rebuilt from it. In the other direction, transformers 5
opens PEGASUS-X and BigBird-PEGASUS only from a tokenizer.json, which is written
from the model.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.files import parse_json

_T5_PIECES = ["<pad>", "</s>", "<unk>"]
_EXTRA_ID = re.compile(r"<extra_id_\d+>")
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
# SentencePiece's normalization of runs of spaces
_SQUEEZED = {"^ +| +$": "", " {2,}": " "}


def read_tokenizer_json(content: str, where: Path) -> tuple[bytes, int] | None:
    """Rebuilds the SentencePiece model of a T5-style tokenizer.json.

    Args:
        content: text of the file.
        where: path of the file, for error messages.

    Returns:
        A serialized SentencePiece model and the number of extra ids after its
        pieces. None for other tokenizers: not Unigram, special tokens other
        than T5's, added tokens, or steps that SentencePiece does not support.

    Raises:
        InputError: the file is not a tokenizer.json.
    """
    try:
        tokenizer = parse_json(content)
        model = tokenizer["model"]
        if model.get("type") != "Unigram":
            return None
        vocabulary = [
            (str(piece), float(score)) for piece, score in model["vocab"]
        ]
        table = _normalization_table(tokenizer.get("normalizer"))
        byte_fallback = bool(model.get("byte_fallback", False))
        # T5Tokenizer of transformers 5 drops all other steps, although models
        # were trained with them.
        steps = tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer")
        is_plain = _is_plain(*steps) and _squeezes_spaces(*steps)
        added = {
            token["content"] for token in tokenizer.get("added_tokens") or []
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where}: not a readable tokenizer.json ({error}); copy it again"
        ) from None
    pieces = [piece for piece, _ in vocabulary]
    num_pieces = len(pieces)
    while num_pieces and _EXTRA_ID.fullmatch(pieces[num_pieces - 1]):
        num_pieces -= 1
    is_t5 = is_plain and pieces[:3] == _T5_PIECES
    if not is_t5 or not added <= {*_T5_PIECES, *pieces[num_pieces:]}:
        return None
    return _serialize(vocabulary[:num_pieces], table, byte_fallback), len(
        pieces
    ) - num_pieces


def unigram_json(
    vocabulary: Sequence[tuple[str, float]],
    special: Mapping[str, int],
    unk_id: int,
    model: bytes,
) -> str:
    """Returns the content of a tokenizer.json equal to a SentencePiece unigram model.

    Texts end with `</s>`.

    Args:
        vocabulary: pieces and scores in the order of ids.
        special: ids of special tokens by text.
        unk_id: id of the unknown piece.
        model: serialized SentencePiece model, for its normalization table.
    """
    import sentencepiece.sentencepiece_model_pb2 as messages

    table = messages.ModelProto.FromString(
        model
    ).normalizer_spec.precompiled_charsmap
    normalizers = [
        {"type": "Replace", "pattern": {"Regex": runs}, "content": squeezed}
        for runs, squeezed in _SQUEEZED.items()
    ]
    if table:
        encoded = base64.b64encode(table).decode()
        normalizers.insert(
            0, {"type": "Precompiled", "precompiled_charsmap": encoded}
        )
    spaces = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    }
    flags = dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized"), False
    )
    flags["special"] = True
    by_id = sorted(special, key=special.__getitem__)
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second_text = {"Sequence": {"id": "B", "type_id": 0}}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    end_ids = {"id": "</s>", "ids": [special["</s>"]], "tokens": ["</s>"]}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": special[token], "content": token, **flags} for token in by_id
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": spaces,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [text, end],
            "pair": [text, second_text, end],
            "special_tokens": {"</s>": end_ids},
        },
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": unk_id,
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    }
    return json.dumps(content)


def _steps(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Returns the steps of a part of a tokenizer.json, which a sequence lists under ``name``."""
    return [] if part is None else part.get(name, [part])


def _is_plain(
    normalizer: dict[str, Any] | None, pre_tokenizer: dict[str, Any] | None
) -> bool:
    """Returns True if SentencePiece supports all steps before the model."""
    return all(
        map(_normalizes_plainly, _steps(normalizer, "normalizers"))
    ) and all(
        step["type"] == "WhitespaceSplit"
        or (step["type"] == "Metaspace" and _puts_space_before(step))
        for step in _steps(pre_tokenizer, "pretokenizers")
    )


def _squeezes_spaces(
    normalizer: dict[str, Any] | None, pre_tokenizer: dict[str, Any] | None
) -> bool:
    """Returns True if the steps replace several spaces by one, as SentencePiece does.

    In a file without steps, T5Tokenizer adds them.
    """
    if normalizer is None and pre_tokenizer is None:
        return True
    patterns = [
        step["pattern"].get("Regex")
        for step in _steps(normalizer, "normalizers")
        if step["type"] == "Replace"
    ]
    splits = [step["type"] for step in _steps(pre_tokenizer, "pretokenizers")]
    return " {2,}" in patterns or "WhitespaceSplit" in splits


def _puts_space_before(step: dict[str, Any]) -> bool:
    """Returns True if a Metaspace prepends a space to a text; older files have a flag for it."""
    return step.get("prepend_scheme") != "never" and step.get(
        "add_prefix_space", True
    )


def _normalizes_plainly(step: dict[str, Any]) -> bool:
    if step["type"] != "Replace":
        return step["type"] in ("Precompiled", "Strip")
    squeezed = _SQUEEZED.get(step["pattern"].get("Regex"))
    return (
        squeezed is not None and step["content"].replace("▁", " ") == squeezed
    )


def _normalization_table(normalizer: dict[str, Any] | None) -> bytes:
    """Returns the compiled character map of a tokenizer.json, empty if there is none."""
    for step in _steps(normalizer, "normalizers"):
        if step["type"] == "Precompiled":
            try:
                return base64.b64decode(
                    step["precompiled_charsmap"], validate=True
                )
            except binascii.Error as error:
                raise ValueError(f"precompiled_charsmap: {error}") from None
    return b""


def _serialize(
    vocabulary: Sequence[tuple[str, float]], table: bytes, byte_fallback: bool
) -> bytes:
    """Returns a serialized unigram model whose first pieces are pad, end and unknown."""
    import sentencepiece.sentencepiece_model_pb2 as messages

    model = messages.ModelProto()
    types = messages.ModelProto.SentencePiece
    for index, (piece, score) in enumerate(vocabulary):
        if index < 2:
            piece_type = types.CONTROL
        elif index == 2:
            piece_type = types.UNKNOWN
        elif byte_fallback and _BYTE_PIECE.fullmatch(piece):
            piece_type = types.BYTE
        else:
            piece_type = types.NORMAL
        model.pieces.add(piece=piece, score=score, type=piece_type)
    trainer = model.trainer_spec
    trainer.model_type = messages.TrainerSpec.UNIGRAM
    trainer.vocab_size = len(vocabulary)
    trainer.byte_fallback = byte_fallback
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = 2, -1, 1, 0
    model.normalizer_spec.name = "nmt_nfkc"
    model.normalizer_spec.precompiled_charsmap = table
    return model.SerializeToString()
