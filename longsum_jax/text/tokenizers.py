"""Tokenizers: SentencePiece models in T5's manner, and bytes in ByT5's.

Token ids follow T5: 0 pads, 1 ends a text, 2 stands for what the vocabulary lacks. `<extra_id_n>` sentinels
come after the pieces; a checkpoint with more rows than that has unused rows at the end.
"""

import functools
import hashlib
import io
import json
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.tokenizer_json import read_tokenizer_json

T5_EXTRA_IDS = 100
BYT5_EXTRA_IDS = 125
_NUM_BYTE_IDS = 259  # pad, eos, unk and 256 bytes
_SENTINEL = re.compile(r"<extra_id_(\d{1,6})>")
_TRAINING_LINE = re.compile(r"\S.{0,999}(?!\S)|\S{1,1000}")  # SentencePiece skips lines beyond 4192 bytes
_SPECIAL_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_log = logging.getLogger(__name__)


class Tokenizer(Protocol):
    """What models, data and commands use of a tokenizer."""

    vocab_size: int  # rows of the embedding: pieces, extra ids, unused rows
    pad_id: int
    eos_id: int
    unk_id: int

    @property
    def fingerprint(self) -> str:
        """A short hash of all that decides ids; equal fingerprints give equal ids."""

    def encode(self, text: str) -> list[int]:
        """Returns token ids without an end token; `<extra_id_n>` in the text becomes the sentinel's id."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts; the same ids as one by one."""

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids, without padding, ends, extra ids and unused rows.

        Raises:
            InputError: an id outside [0, vocab_size).
        """

    def save(self, directory: str | Path) -> None:
        """Writes the files that `load_tokenizer` and transformers read."""


class SentencePieceTokenizer:
    """A SentencePiece model with T5's extra ids after its pieces: `<extra_id_0>` is the last of them.

    Long texts need no cutting: SentencePiece takes 10 MB on one line in about a second.

    Args:
        model: a .model file or its content.
        extra_ids: number of `<extra_id_n>` sentinels.
        unused_ids: rows at the end of the embedding that no token has.

    Raises:
        InputError: missing or corrupt model, or a model without pad, eos or unk piece.
    """

    def __init__(self, model: str | Path | bytes, extra_ids: int = 0, unused_ids: int = 0):
        where = "the given bytes" if isinstance(model, bytes) else str(model)
        self._model_bytes = model if isinstance(model, bytes) else _read(Path(model))
        self._model = _open_sentencepiece(self._model_bytes, where)
        self.extra_ids, self.unused_ids = extra_ids, unused_ids
        self.num_pieces = self._model.get_piece_size()
        self.vocab_size = self.num_pieces + extra_ids + unused_ids
        self.pad_id, self.eos_id, self.unk_id = (
            self._model.pad_id(),
            self._model.eos_id(),
            self._model.unk_id(),
        )
        for name, index in (("pad", self.pad_id), ("eos", self.eos_id), ("unk", self.unk_id)):
            if index < 0:
                raise InputError(f"{where}: the SentencePiece model has no {name} piece; train it with one, as T5's")

    @functools.cached_property
    def fingerprint(self) -> str:
        return _fingerprint(b"sentencepiece", self._model_bytes, self.extra_ids, self.unused_ids)

    def encode(self, text: str) -> list[int]:
        ids = []
        for part, sentinel in _split_sentinels(text, self.extra_ids):
            ids.extend(self._model.encode(part))
            if sentinel is not None:
                ids.append(self.num_pieces + self.extra_ids - 1 - sentinel)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if self.extra_ids and any("<extra_id_" in text for text in texts):
            return [self.encode(text) for text in texts]
        return self._model.encode(list(texts))  # on several threads

    def decode(self, ids: Iterable[int]) -> str:
        ids = _checked_ids(ids, self.vocab_size)
        return self._model.decode([index for index in ids if index < self.num_pieces])

    def save(self, directory: str | Path) -> None:
        directory = _write_config(directory, "T5Tokenizer", self.extra_ids, self.unused_ids)
        (directory / "spiece.model").write_bytes(self._model_bytes)


class ByteTokenizer:
    """UTF-8 bytes shifted by three, as in ByT5; extra ids follow, `<extra_id_0>` first as in transformers."""

    pad_id, eos_id, unk_id = 0, 1, 2

    def __init__(self, extra_ids: int = 0, unused_ids: int = 0):
        self.extra_ids, self.unused_ids = extra_ids, unused_ids
        self.vocab_size = _NUM_BYTE_IDS + extra_ids + unused_ids

    @functools.cached_property
    def fingerprint(self) -> str:
        return _fingerprint(b"bytes", b"", self.extra_ids, self.unused_ids)

    def encode(self, text: str) -> list[int]:
        ids = []
        for part, sentinel in _split_sentinels(text, self.extra_ids):
            ids.extend(byte + 3 for byte in part.encode())
            if sentinel is not None:
                ids.append(_NUM_BYTE_IDS + sentinel)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        ids = _checked_ids(ids, self.vocab_size)
        return bytes(index - 3 for index in ids if 3 <= index < _NUM_BYTE_IDS).decode(errors="ignore")

    def save(self, directory: str | Path) -> None:
        _write_config(directory, "ByT5Tokenizer", self.extra_ids, self.unused_ids)


def train_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    extra_ids: int = 0,
    seed: int = 0,
    max_sentences: int = 1_000_000,
    character_coverage: float = 0.9995,
) -> SentencePieceTokenizer:
    """Trains a unigram model with byte fallback and T5's normalisation; equal arguments, equal model bytes.

    Args:
        texts: read once; cut into lines of at most 1,000 characters.
        vocab_size: pieces, special ones and 256 bytes included. A corpus too small for it gives a smaller
            vocabulary (`num_pieces` of the result), which is logged as a warning.
        extra_ids: sentinels on top of the pieces.
        seed: of the sample that is drawn when there are more than ``max_sentences`` lines.
        max_sentences: lines used.
        character_coverage: part of the characters that get a piece; the others are spelt in bytes (by
            SentencePiece; transformers' T5Tokenizer reads them as unknown).

    Raises:
        InputError: no text, or a vocabulary smaller than the characters need.
    """
    import sentencepiece

    lines = _sample(_training_lines(texts), max_sentences, random.Random(seed))
    if not lines:
        raise InputError("cannot train a tokenizer: the texts are empty")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc",
            byte_fallback=True,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=2,  # fixed: sums over threads are rounded in their order
            minloglevel=2,
        )
    except RuntimeError as error:
        needed = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise
        raise InputError(f"vocab_size={vocab_size} is too small for the texts; give at least {needed[1]}") from None
    tokenizer = SentencePieceTokenizer(model.getvalue(), extra_ids)
    if tokenizer.num_pieces < vocab_size:
        _log.warning("the texts yield %d pieces of the %d asked for", tokenizer.num_pieces, vocab_size)
    return tokenizer


def load_tokenizer(path: str | Path, *, vocab_size: int | None = None) -> Tokenizer:
    """Opens a tokenizer.

    Args:
        path: a SentencePiece .model file, a directory with spiece.model or tokenizer.json as transformers or
            `save` write it, or "bytes".
        vocab_size: rows of the checkpoint's embedding. Rows beyond the pieces become extra ids, at most as
            many as the directory says (100 when it does not; 125 for bytes), then unused ids. None: what the
            directory says; a bare file and "bytes" have none.

    Raises:
        InputError: nothing there, unsupported or corrupt files, or fewer rows than pieces.
    """
    path = Path(path)
    if str(path) == "bytes":
        extra = BYT5_EXTRA_IDS if vocab_size else 0
        return ByteTokenizer(*_fit_rows(_NUM_BYTE_IDS, extra, 0, vocab_size, path))
    if not path.is_dir():
        return _fit_sentencepiece(_read(path), T5_EXTRA_IDS if vocab_size else 0, 0, vocab_size, path)
    config = _read_config(path / "tokenizer_config.json")
    if config.get("tokenizer_class") == "ByT5Tokenizer":
        extra, unused = _id_counts(config, BYT5_EXTRA_IDS, path)
        return ByteTokenizer(*_fit_rows(_NUM_BYTE_IDS, extra, unused, vocab_size, path))
    model_file, json_file = path / "spiece.model", path / "tokenizer.json"
    if model_file.exists():
        extra, unused = _id_counts(config, T5_EXTRA_IDS, path)
        return _fit_sentencepiece(_read(model_file), extra, unused, vocab_size, model_file)
    if json_file.exists():
        model, extra = read_tokenizer_json(json_file)
        return _fit_sentencepiece(model, extra, 0, vocab_size, json_file)
    raise InputError(f"{path}: no tokenizer there; put spiece.model or tokenizer.json into the directory")


def _fit_sentencepiece(
    model: bytes, extra: int, unused: int, vocab_size: int | None, where: Path
) -> SentencePieceTokenizer:
    num_pieces = _open_sentencepiece(model, str(where)).get_piece_size()
    return SentencePieceTokenizer(model, *_fit_rows(num_pieces, extra, unused, vocab_size, where))


def _fit_rows(num_pieces: int, extra: int, unused: int, vocab_size: int | None, where: Path) -> tuple[int, int]:
    """Returns how many extra and unused ids the rows of the checkpoint leave room for."""
    if vocab_size is None:
        return extra, unused
    spare = vocab_size - num_pieces
    if spare < 0:
        raise InputError(
            f"{where}: the tokenizer has {num_pieces} pieces but the checkpoint {vocab_size} embedding rows; "
            "give the tokenizer that belongs to the checkpoint"
        )
    return min(extra, spare), spare - min(extra, spare)


def _read_config(path: Path) -> dict[str, Any]:
    """Reads tokenizer_config.json; an absent file is an empty one."""
    if not path.exists():
        return {}
    try:
        config = json.loads(_read(path))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not valid JSON ({error}); copy the file again") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(config).__name__}")
    known = ("T5Tokenizer", "T5TokenizerFast", "ByT5Tokenizer")
    name = config.get("tokenizer_class", known[0])
    if name not in known:
        raise InputError(f'{path}: tokenizer_class "{name}" is not supported; {did_you_mean(name, known)}')
    return config


def _id_counts(config: dict[str, Any], default_extra: int, where: Path) -> tuple[int, int]:
    counts = config.get("extra_ids", default_extra), config.get("unused_ids", 0)
    for name, count in zip(("extra_ids", "unused_ids"), counts, strict=True):
        if type(count) is not int or count < 0:
            raise InputError(f"{where / 'tokenizer_config.json'}: {name} must be a whole number, got {count!r}")
    return counts


def _write_config(directory: str | Path, tokenizer_class: str, extra_ids: int, unused_ids: int) -> Path:
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = {"tokenizer_class": tokenizer_class, "extra_ids": extra_ids, **_SPECIAL_TOKENS}
    if unused_ids:
        config["unused_ids"] = unused_ids
    sentinels = [f"<extra_id_{index}>" for index in range(extra_ids)]
    special = {**_SPECIAL_TOKENS, "additional_special_tokens": sentinels}
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n")
    return directory


def _open_sentencepiece(model: bytes, where: str) -> Any:
    import sentencepiece

    try:
        if model:
            return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        pass
    raise InputError(f"{where}: not a SentencePiece model, or a damaged one; copy the file again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the tokenizer file ({error.strerror}); check the path") from None


def _split_sentinels(text: str, extra_ids: int) -> Iterator[tuple[str, int | None]]:
    """Yields (text before a sentinel, number of the sentinel), at the end (text, None)."""
    start = 0
    for match in _SENTINEL.finditer(text) if extra_ids else ():
        if int(match[1]) < extra_ids:
            yield text[start : match.start()], int(match[1])
            start = match.end()
    yield text[start:], None


def _checked_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    ids = [int(index) for index in ids]
    for index in ids:
        if not 0 <= index < vocab_size:
            raise InputError(f"token id {index} lies outside the tokenizer's {vocab_size} ids; check the model's")
    return ids


def _training_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _TRAINING_LINE.findall(" ".join(text.replace("\0", " ").split()))


def _sample(lines: Iterable[str], size: int, rng: random.Random) -> list[str]:
    """Returns ``size`` lines, each with equal chance (reservoir sampling), or all of them."""
    sample: list[str] = []
    for number, line in enumerate(lines):
        if number < size:
            sample.append(line)
        elif (place := rng.randrange(number + 1)) < size:
            sample[place] = line
    return sample


def _fingerprint(kind: bytes, content: bytes, extra_ids: int, unused_ids: int) -> str:
    digest = hashlib.sha256(b"%s %d %d\n" % (kind, extra_ids, unused_ids))
    digest.update(content)
    return digest.hexdigest()[:16]
