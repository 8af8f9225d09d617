"""Tokenizers of the `tokenizers` library: BART, LED, RoBERTa, BERT, and any tokenizer.json."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.chat_template import default_template
from longsum_jax.tokenizers.files import (
    CHAT_TEMPLATE,
    CLEAN_SPACES,
    CONFIG,
    DOCUMENT_TOKEN,
    JSON,
    MAX_ROWS,
    SPECIAL_MAP,
    SPECIAL_NAMES,
    checked_ids,
    clean_spaces,
    cleared,
    fingerprint,
    token_text,
    unused_rows,
    whole_number,
    write_json,
)
from longsum_jax.tokenizers.json_checks import check_tokenizer_json
from longsum_jax.tokenizers.legacy_vocabulary import (
    bert_entries,
    make_token,
    tokenizers_library,
)
from longsum_jax.tokenizers.sentencepiece import break_lines
from longsum_jax.tokenizers.special_tokens import SpecialTokenTemplate

EMBEDDING_ROWS = "embedding_rows"  # additional entry in tokenizer_config.json
# Default special tokens if tokenizer_config.json is missing or does not name
# them.
_DEFAULT_TOKENS = {
    "pad_token": ("<pad>", "[PAD]"),
    "eos_token": ("</s>",),
    "sep_token": ("[SEP]",),
    "cls_token": ("[CLS]",),
    "unk_token": ("<unk>", "[UNK]"),
    "mask_token": ("<mask>", "[MASK]"),
}
_UNKNOWN = "☃ qZ"  # characters that a vocabulary may lack
_HIDDEN = "\ufdd0"  # a code point that is not a character
# Entries that are not saved: paths on another machine, and code to execute.
_NOT_SAVED = (
    "name_or_path",
    "auto_map",
    "tokenizer_file",
    "special_tokens_map_file",
    "full_tokenizer_file",
)


class JsonTokenizer(SpecialTokenTemplate):
    """A tokenizer.json, run by the `tokenizers` library.

    The truncation and padding of the file are disabled. Unigram models with a
    piece `<n>`, such as PEGASUS, write line breaks as `<n>`; ``decode``
    converts them back.

    Args:
        content: text of a tokenizer.json.
        config: entries of tokenizer_config.json, merged with
            special_tokens_map.json.
        vocab_size: number of rows of the checkpoint's embedding. None takes the
            number in the config, or one row per id. Checkpoints may lack rows
            for special tokens that their model never needs (`<mask>` in
            facebook/bart-large-cnn); in a text they become the unknown token.
        where: name of the content in error messages.
        more: tokens that the content may lack, each its text or {"content":
            text, ...}.

    Raises:
        InputError: not a tokenizer, no pad, end or unknown token, too few rows,
            or the `tokenizers` package is not installed.
    """

    def __init__(
        self,
        content: str,
        config: Mapping[str, Any] | None = None,
        *,
        vocab_size: int | None = None,
        where: str | Path = "tokenizer.json",
        more: Iterable[Any] = (),
    ):
        self._tokenizer = _open(content, where)
        _add_lacking(self._tokenizer, more)
        special = _special_tokens(self._tokenizer, config or {})
        self._config = {**(config or {}), **special}
        ids = {
            name: self._tokenizer.token_to_id(token_text(token))
            for name, token in special.items()
        }
        ids.setdefault("eos_token", ids.get("sep_token"))  # BERT
        for name in ("pad_token", "eos_token", "unk_token"):
            if ids.get(name) is None:
                raise InputError(
                    f'{where}: no {name} in the vocabulary; name it as "{name}" in {CONFIG}'
                )
        self.pad_id, self.eos_id, self.unk_id = (
            ids["pad_token"],
            ids["eos_token"],
            ids["unk_token"],
        )
        self._check_unknown(where)
        self._read_template()
        # With this option special tokens inside a text are encoded as plain
        # text.
        self._tokenizer.encode_special_tokens = (
            self._config.get("split_special_tokens") is True
        )
        self._num_ids = 1 + max(
            self._tokenizer.get_vocab(with_added_tokens=True).values()
        )
        self.vocab_size = self._rows(vocab_size, where)
        mask_id = ids.get("mask_token")
        if mask_id is None or mask_id >= self.vocab_size:
            self.mask_id = None
        else:
            self.mask_id = mask_id
        has_break = self._tokenizer.token_to_id("<n>") is not None
        self._breaks_lines = has_break and self._model_type == "Unigram"
        self._cleans_spaces = (
            self._config.get(CLEAN_SPACES) is True and self._model_type != "BPE"
        )
        self.chat_template = default_template(
            self._config.get(CHAT_TEMPLATE), where
        )
        self.named_tokens = {
            name: token_text(token) for name, token in special.items()
        }
        self.control_ids = self._control_ids({ids[name] for name in special})

    @functools.cached_property
    def fingerprint(self) -> str:
        # Newer versions of the library add empty entries, which must not change
        # the fingerprint.
        content = json.loads(
            self._tokenizer.to_str(), object_hook=_without_nulls
        )
        keys = ("normalizer", "pre_tokenizer", "model", "added_tokens")
        text = json.dumps(
            {key: content.get(key) for key in keys}, sort_keys=True
        ).encode()
        return fingerprint(
            "json",
            text,
            self.vocab_size,
            *self.prefix_ids,
            -1,
            *self.suffix_ids,
        )

    def encode(self, text: str) -> list[int]:
        return self._within_rows(self._encode(text)[0])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        # The library encodes in several threads.
        encoded = self._tokenizer.encode_batch(
            list(texts), add_special_tokens=False
        )
        batch = [encoding.ids for encoding in encoded]
        if self._is_plain:
            for row, ids in enumerate(batch):
                if not self.control_ids.isdisjoint(ids):
                    batch[row] = self._encode(texts[row])[0]
        return [self._within_rows(ids) for ids in batch]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self._encode(text)[1]

    def _encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Returns the ids and the character spans of a text's tokens."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids, spans = encoding.ids, encoding.offsets
        if not self._is_plain or self.control_ids.isdisjoint(ids):
            return ids, spans
        encoding = self._plain_tokenizer.encode(text, add_special_tokens=False)
        # A text with _HIDDEN may still contain control tokens; they are left
        # out.
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        plain = [token for token in tokens if token[0] not in self.control_ids]
        return [index for index, _ in plain], [span for _, span in plain]

    @functools.cached_property
    def _plain_tokenizer(self) -> Any:
        """A tokenizer of the library whose control tokens have hidden names."""
        content = json.loads(self._tokenizer.to_str())
        content["post_processor"] = None  # it may refer to the names
        for token in content["added_tokens"]:
            if token["id"] in self.control_ids:
                token["content"] = f"{_HIDDEN}{token['content']}{_HIDDEN}"
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: pieces with scores
            for index in self.control_ids.intersection(range(len(vocabulary))):
                piece = vocabulary[index][0]
                vocabulary[index][0] = f"{_HIDDEN}{piece}{_HIDDEN}"
        else:
            renamed = {}
            for piece, index in vocabulary.items():
                if index in self.control_ids:
                    renamed[f"{_HIDDEN}{piece}{_HIDDEN}"] = index
                else:
                    renamed[piece] = index
            content["model"]["vocab"] = renamed
        return tokenizers_library(CONFIG).Tokenizer.from_str(
            json.dumps(content)
        )

    def _control_ids(self, named: set[int | None]) -> frozenset[int]:
        """Returns the ids that a document must not contain.

        They are named special tokens; with a chat template, whose tokens have
        no names, all special tokens. The separator of documents is not one of
        them.
        """
        control = {index for index in named if index is not None}
        if self.chat_template is not None:
            added = self._tokenizer.get_added_tokens_decoder().items()
            control |= {index for index, token in added if token.special}
        separator = self._tokenizer.token_to_id(DOCUMENT_TOKEN)
        return frozenset(control - {self.unk_id, separator})

    def decode(self, ids: Iterable[int]) -> str:
        ids = [
            index
            for index in checked_ids(ids, self.vocab_size)
            if index < self._num_ids
        ]
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        if self._cleans_spaces:
            text = clean_spaces(text)
        if self._breaks_lines:
            return break_lines(text)
        return text

    def save(self, directory: str | Path) -> None:
        directory = cleared(directory)
        content = self._tokenizer.to_str(pretty=True)
        (directory / JSON).write_text(content, encoding="utf-8")
        config = dict(self._config)
        for key in (*_NOT_SAVED, EMBEDDING_ROWS):
            config.pop(key, None)
        if config.get("tokenizer_class") is None:
            config |= self._class_entries()
        if self.vocab_size != self._num_ids:
            config[EMBEDDING_ROWS] = self.vocab_size
        write_json(directory / CONFIG, config)
        special = {
            name: config[name] for name in SPECIAL_NAMES if config.get(name)
        }
        write_json(directory / SPECIAL_MAP, special)

    def _class_entries(self) -> dict[str, Any]:
        """Returns the class of transformers with the tokenizer's steps, and its options.

        The steps of a class are fixed; they are not read from a tokenizer.json.
        """
        normalizer, splitter = (
            self._tokenizer.normalizer,
            self._tokenizer.pre_tokenizer,
        )
        if (
            self._model_type == "WordPiece"
            and type(normalizer).__name__ == "BertNormalizer"
        ):
            return {
                "tokenizer_class": "BertTokenizer",
                **bert_entries(normalizer),
            }
        is_byte_level = (
            type(splitter).__name__ == "ByteLevel" and normalizer is None
        )
        if self._model_type == "BPE" and is_byte_level:
            prefix_space = splitter.add_prefix_space
            return {
                "tokenizer_class": "RobertaTokenizer",
                "add_prefix_space": prefix_space,
            }
        return {"tokenizer_class": "PreTrainedTokenizerFast"}

    def _check_unknown(self, where: str | Path) -> None:
        """Raises an InputError for a model without an id for unknown text."""
        try:
            self._tokenizer.encode(_UNKNOWN)
        except Exception as error:  # the library raises no narrower type
            raise InputError(
                f"{where}: not a readable tokenizer.json ({error}); copy the file again"
            ) from None

    def _read_template(self) -> None:
        """Reads the special tokens around one text and around two, from encodings of a known token.

        A file may only have a template for a single text, whose tokens are then
        also used for two.
        """
        text = self._tokenizer.id_to_token(self.eos_id)
        single, pair = (
            self._tokenizer.encode(text),
            self._tokenizer.encode(text, text),
        )
        [position] = (
            i for i, added in enumerate(single.special_tokens_mask) if not added
        )
        first, second = (
            i for i, added in enumerate(pair.special_tokens_mask) if not added
        )
        self.prefix_ids = tuple(single.ids[:position])
        self.middle_ids = tuple(pair.ids[first + 1 : second])
        self.suffix_ids = tuple(single.ids[position + 1 :])
        self.second_type = pair.type_ids[second]

    @property
    def _model_type(self) -> str:
        return type(self._tokenizer.model).__name__

    def _rows(self, vocab_size: int | None, where: str | Path) -> int:
        if vocab_size is None:
            vocab_size = whole_number(
                self._config,
                EMBEDDING_ROWS,
                self._num_ids,
                Path(CONFIG),
                MAX_ROWS,
            )
        around = {*self.prefix_ids, *self.middle_ids, *self.suffix_ids}
        needed = {self.pad_id, self.eos_id, self.unk_id, *around}
        added = self._tokenizer.get_added_tokens_decoder().items()
        optional = {index for index, token in added if token.special} - needed
        lacking = self._num_ids - vocab_size
        # The sizes are compared first: an id may be any number, and the range
        # be very long.
        if lacking > len(optional) or not optional.issuperset(
            range(vocab_size, self._num_ids)
        ):
            unused_rows(self._num_ids, vocab_size, where)
        return vocab_size

    def _within_rows(self, ids: list[int]) -> list[int]:
        if self._num_ids <= self.vocab_size:
            return ids
        return [
            index if index < self.vocab_size else self.unk_id for index in ids
        ]


def _open(content: str, where: str | Path) -> Any:
    """Returns a tokenizer of the library, with truncation and padding disabled."""
    library = tokenizers_library(where)
    check_tokenizer_json(content, where)
    try:
        tokenizer = library.Tokenizer.from_str(content)
    except Exception as error:  # the library raises no narrower type
        raise InputError(
            f"{where}: not a readable tokenizer.json ({error}); copy the file again"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _add_lacking(tokenizer: Any, tokens: Iterable[Any]) -> None:
    """Adds the tokens that are not yet added tokens of a tokenizer, at the next ids."""
    present = {
        token.content for token in tokenizer.get_added_tokens_decoder().values()
    }
    lacking = [
        make_token(token)
        for token in tokens
        if token_text(token) not in present
    ]
    tokenizer.add_tokens(lacking)


def _special_tokens(
    tokenizer: Any, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns special tokens by name, and marks each as special in the tokenizer.

    Names come from the config, otherwise from ``_DEFAULT_TOKENS``.
    """
    special = {}
    for name in SPECIAL_NAMES:
        candidates = [config.get(name), *_DEFAULT_TOKENS.get(name, ())]
        listed = [
            token
            for token in candidates
            if token and tokenizer.token_to_id(token_text(token)) is not None
        ]
        if listed:
            special[name] = listed[0]
    added = {
        token.content: token
        for token in tokenizer.get_added_tokens_decoder().values()
    }
    for token in special.values():
        token = added.get(token_text(token)) or make_token(token)
        if not token.special or token.content not in added:
            token.special = True
            tokenizer.add_special_tokens([token])
    return special


def _without_nulls(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}
