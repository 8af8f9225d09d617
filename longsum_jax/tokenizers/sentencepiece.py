"""SentencePiece tokenizers of T5 (sentinels after the pieces) and PEGASUS (ids before them)."""

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.files import (
    CLEAN_SPACES,
    CONFIG,
    JSON,
    SENTENCE_PIECES,
    SPECIAL_MAP,
    checked_ids,
    clean_spaces,
    cleared,
    fingerprint,
    read_bytes,
    write_json,
)
from longsum_jax.tokenizers.special_tokens import (
    SpecialTokens,
    SpecialTokenTemplate,
)
from longsum_jax.tokenizers.unigram_json import unigram_json

PEGASUS_OFFSET = 103
# Names of special tokens of T5 and ByT5.
SPECIAL_TOKENS = {
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
_LINE_BREAK = re.compile(r" *<n> *")
_BYTES = "the given bytes"  # in error messages, for a content without a path


class SentencePieceTokenizer(SpecialTokenTemplate):
    """A SentencePiece model with T5's extra ids after its pieces, `<extra_id_0>` last.

    Long texts are encoded in one call: SentencePiece encodes 10 MB in one line
    in about a second. Line breaks count as spaces, as in transformers; models
    with a piece `<n>` write line breaks as `<n>`, which ``decode`` converts
    back. (transformers 5 sums scores in float64, SentencePiece in float32: they
    choose differently between segmentations of equal score about once in
    300,000 tokens.)

    Args:
        model: path of a .model file, or its content.
        extra_ids: number of `<extra_id_n>` sentinels.
        unused_ids: number of rows without a token at the end of the embedding.
        cleans_spaces: True to remove spaces before punctuation in decoded text,
            see ``files.clean_spaces``.
        where: path of the content, for error messages.

    Raises:
        InputError: missing or corrupt model, or a model without pad, eos or unk
            piece.
    """

    mask_id: int | None = None

    def __init__(
        self,
        model: str | Path | bytes,
        extra_ids: int = 0,
        unused_ids: int = 0,
        *,
        cleans_spaces: bool = False,
        where: str | Path = _BYTES,
    ):
        self._open(model, where)
        self.extra_ids, self.unused_ids = extra_ids, unused_ids
        self.cleans_spaces = cleans_spaces
        self.vocab_size = self.num_pieces + extra_ids + unused_ids
        last = self.num_pieces + extra_ids - 1
        sentinels = {
            f"<extra_id_{index}>": last - index for index in range(extra_ids)
        }
        self._finish(0, self._model.unk_id(), sentinels)
        self.middle_ids = self.suffix_ids

    def _open(
        self, model: str | Path | bytes, where: str | Path = _BYTES
    ) -> None:
        if isinstance(model, bytes):
            self._model_bytes = model
        else:
            where = model
            self._model_bytes = read_bytes(Path(model))
        self._model = open_sentencepiece(self._model_bytes, str(where))
        self.num_pieces = self._model.get_piece_size()
        self.pad_id, self.eos_id = self._model.pad_id(), self._model.eos_id()
        for name, index in (
            ("pad", self.pad_id),
            ("eos", self.eos_id),
            ("unk", self._model.unk_id()),
        ):
            if index < 0:
                raise InputError(
                    f"{where}: the SentencePiece model has no {name} piece; "
                    "train it with one, as T5's"
                )

    def _finish(
        self, offset: int, unk_id: int, special: dict[str, int]
    ) -> None:
        self._offset, self.unk_id, self.suffix_ids = (
            offset,
            unk_id,
            (self.eos_id,),
        )
        self._breaks_lines = (
            self._model.piece_to_id("<n>") != self._model.unk_id()
        )
        self._special = SpecialTokens(
            {"<pad>": self.pad_id, "</s>": self.eos_id, "<unk>": unk_id}
            | special
        )
        self.control_ids = self._special.ids - {unk_id}

    @functools.cached_property
    def fingerprint(self) -> str:
        return fingerprint(
            "t5", self._model_bytes, self.extra_ids, self.unused_ids
        )

    def encode(self, text: str) -> list[int]:
        if self._is_plain:
            return self._encode_plain(text)
        return self._special.encode(text, self._encode_plain)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if not self._is_plain and any(map(self._special.occur_in, texts)):
            return [self.encode(text) for text in texts]
        prepared = [self._prepared(text) for text in texts]
        batch = self._encoder.encode(prepared)  # in several threads
        return [self._shifted(ids) for ids in batch]

    def spans(self, text: str) -> list[tuple[int, int]]:
        if self._is_plain:
            return self._spans_plain(text)
        return self._special.spans(text, self._spans_plain)

    def decode(self, ids: Iterable[int]) -> str:
        ids = checked_ids(ids, self.vocab_size)
        pieces = [
            index - self._offset
            for index in ids
            if index not in self._special.ids
        ]
        text = self._model.decode(
            [piece for piece in pieces if 0 <= piece < self.num_pieces]
        )
        if self.cleans_spaces:
            text = clean_spaces(text)
        if self._breaks_lines:
            return break_lines(text)
        return text

    def save(self, directory: str | Path) -> None:
        directory = write_config(
            directory,
            "T5Tokenizer",
            self.extra_ids,
            self.unused_ids,
            **self._clean_entry,
        )
        (directory / SENTENCE_PIECES).write_bytes(self._model_bytes)

    @property
    def _clean_entry(self) -> dict[str, bool]:
        if self.cleans_spaces:
            return {CLEAN_SPACES: True}
        return {}

    def has_token(self, text: str) -> bool:
        """Returns True if the text is a single token."""
        if text in self._special.by_text:
            return True
        return self._model.piece_to_id(text) != self._model.unk_id()

    def _encode_plain(self, text: str) -> list[int]:
        return self._shifted(self._encoder.encode(self._prepared(text)))

    def _spans_plain(self, text: str) -> list[tuple[int, int]]:
        # The surfaces of the pieces form the text, except for leading white
        # space; the offsets of the library are in bytes in some versions.
        text = self._prepared(text)
        surfaces = [
            piece.surface
            for piece in self._encoder.encode_as_proto(text).pieces
        ]
        start = max(text.find("".join(surfaces)), 0)
        ends = itertools.accumulate(map(len, surfaces), initial=start)
        return list(itertools.pairwise(ends))

    @property
    def _encoder(self) -> Any:
        """The model for texts."""
        if self._is_plain:
            return self._plain_model
        return self._model

    @functools.cached_property
    def _plain_model(self) -> Any:
        """The model without special tokens among the pieces of texts.

        SentencePiece finds user-defined pieces in texts, but no control pieces.
        """
        pieces = [index - self._offset for index in self.control_ids]
        is_piece = self._model.is_control, self._model.is_unknown
        defined = [
            piece
            for piece in pieces
            if 0 <= piece < self.num_pieces
            and not any(check(piece) for check in is_piece)
        ]
        if not defined:
            return self._model
        import sentencepiece.sentencepiece_model_pb2 as messages

        proto = messages.ModelProto()
        proto.ParseFromString(self._model_bytes)
        for piece in defined:
            proto.pieces[piece].type = messages.ModelProto.SentencePiece.CONTROL
        return open_sentencepiece(proto.SerializeToString(), "the model")

    def _prepared(self, text: str) -> str:
        # the only line break that SentencePiece does not handle
        return text.replace("\x85", " ")

    def _shifted(self, pieces: list[int]) -> list[int]:
        if self._offset:
            return [piece + self._offset for piece in pieces]
        return pieces


class PegasusTokenizer(SentencePieceTokenizer):
    """A SentencePiece model whose pieces, except pad and end, start at id ``offset`` + 2.

    The ids in between are `<mask_1>` (masks a sentence in pre-training),
    `<mask_2>` (masks a token) and `<unk_2>` to `<unk_102>`. BigBird-PEGASUS has
    none of them (offset 0); its mask is the piece `[MASK]`.

    Args:
        model: path of a .model file, or its content.
        offset: shift of the ids of pieces, 0 or at least 2.
        unused_ids: number of rows without a token at the end of the embedding.
        cleans_spaces: True to clean decoded text, see
            ``SentencePieceTokenizer``.

    Raises:
        InputError: see ``SentencePieceTokenizer``; pad and end are not pieces 0
            and 1; or an invalid offset.
    """

    def __init__(
        self,
        model: str | Path | bytes,
        offset: int = PEGASUS_OFFSET,
        unused_ids: int = 0,
        *,
        cleans_spaces: bool = False,
    ):
        self._open(model)
        self.cleans_spaces = cleans_spaces
        if (self.pad_id, self.eos_id) != (0, 1):
            raise InputError(
                f"pieces 0 and 1 of the model are {self._pieces(2)}; PEGASUS needs <pad> and </s>"
            )
        if offset == 1 or offset < 0:
            raise InputError(
                f"offset={offset} leaves no room for <mask_1> and <mask_2>; give 0, or 2 and more"
            )
        self.unused_ids = unused_ids
        self.vocab_size = self.num_pieces + offset + unused_ids
        if offset:
            special = {"<mask_1>": 2, "<mask_2>": 3}
            special |= {
                f"<unk_{index}>": index + 2 for index in range(2, offset)
            }
            self.mask_id = special["<mask_2>"]
        else:
            special = self._special_pieces()
            self.mask_id = special.get("[MASK]")
        self._finish(offset, self._model.unk_id() + offset, special)

    @functools.cached_property
    def fingerprint(self) -> str:
        return fingerprint(
            "pegasus", self._model_bytes, self._offset, self.unused_ids
        )

    def save(self, directory: str | Path) -> None:
        config: dict[str, Any] = {"offset": self._offset} | self._clean_entry
        if not self._offset:
            # transformers would assign a named mask_token the id 2, which is
            # <mask_1>.
            config |= {"mask_token": None, "mask_token_sent": None}
        directory = _write_config(
            directory, "PegasusTokenizer", config, [], self.unused_ids
        )
        (directory / SENTENCE_PIECES).write_bytes(self._model_bytes)
        content = unigram_json(
            self._vocabulary(),
            self._special.by_text,
            self.unk_id,
            self._model_bytes,
        )
        (directory / JSON).write_text(content, encoding="utf-8")

    def _prepared(self, text: str) -> str:
        return text

    def _vocabulary(self) -> list[tuple[str, float]]:
        pieces = [
            (self._model.id_to_piece(index), self._model.get_score(index))
            for index in range(self.num_pieces)
        ]
        if not self._offset:
            return pieces
        special = sorted(
            self._special.by_text, key=self._special.by_text.__getitem__
        )
        inserted = [(token, -100.0) for token in special[2 : self._offset + 2]]
        return [*pieces[:2], *inserted, *pieces[2:]]

    def _special_pieces(self) -> dict[str, int]:
        names = ("<s>", "[CLS]", "[SEP]", "[MASK]")
        ids = {name: self._model.piece_to_id(name) for name in names}
        return {
            name: index
            for name, index in ids.items()
            if index != self._model.unk_id()
        }

    def _pieces(self, count: int) -> str:
        return " and ".join(
            self._model.id_to_piece(index) for index in range(count)
        )


def break_lines(text: str) -> str:
    """Replaces `<n>` by line breaks; each line is one sentence for ROUGE-Lsum."""
    return _LINE_BREAK.sub("\n", text)


def open_sentencepiece(model: bytes, where: str) -> Any:
    """Returns a SentencePiece processor; raises InputError for a damaged model of ``where``."""
    import sentencepiece

    try:
        if model:
            return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        pass
    raise InputError(
        f"{where}: not a SentencePiece model, or a damaged one; copy the file again"
    )


def write_config(
    directory: str | Path,
    tokenizer_class: str,
    extra_ids: int,
    unused_ids: int,
    **entries: Any,
) -> Path:
    """Writes the config files of a tokenizer with T5's special tokens; returns the directory."""
    sentinels = [f"<extra_id_{index}>" for index in range(extra_ids)]
    config = {"extra_ids": extra_ids, **entries}
    return _write_config(
        directory, tokenizer_class, config, sentinels, unused_ids
    )


def _write_config(
    directory: str | Path,
    tokenizer_class: str,
    config: dict[str, Any],
    additional: list[str],
    unused_ids: int,
) -> Path:
    directory = cleared(directory)
    config = {"tokenizer_class": tokenizer_class, **config, **SPECIAL_TOKENS}
    if unused_ids:
        config["unused_ids"] = unused_ids
    write_json(directory / CONFIG, config)
    if additional:
        more = {"additional_special_tokens": additional}
    else:
        more = {}
    write_json(directory / SPECIAL_MAP, {**SPECIAL_TOKENS, **more})
    return directory
