"""Reads and writes the files of a tokenizer directory, including special tokens."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longsum_jax import files
from longsum_jax.errors import InputError
from longsum_jax.schema import shortened

# largest file size; the largest vocabularies have a million pieces
MAX_BYTES = 2**26
MAX_ADDED = 2**16  # largest number of ids that a file may add to the pieces
MAX_ROWS = 2**22  # largest number of rows of an embedding
_MOST_DIGITS = 9  # of an id

CLEAN_SPACES = "clean_up_tokenization_spaces"  # key of CONFIG
CHAT_TEMPLATE = "chat_template"  # key of CONFIG, replaced by the file CHAT_FILE
CHAT_FILE = "chat_template.jinja"
# PRIMERA (Xiao et al. 2022, section 2.1), after every document
DOCUMENT_TOKEN = "<doc-sep>"
CONFIG, SPECIAL_MAP, ADDED = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
SENTENCE_PIECES, FAIRSEQ_PIECES = "spiece.model", "sentencepiece.bpe.model"
DEBERTA_PIECES = "spm.model"
BYTE_PAIRS, MERGES, WORD_PIECES = "vocab.json", "merges.txt", "vocab.txt"
JSON = "tokenizer.json"
TOKENIZER_FILES = (
    SENTENCE_PIECES,
    FAIRSEQ_PIECES,
    DEBERTA_PIECES,
    JSON,
    BYTE_PAIRS,
    MERGES,
    WORD_PIECES,
    CONFIG,
    SPECIAL_MAP,
    ADDED,
    CHAT_FILE,
)
# The order in which transformers adds special tokens that a vocabulary lacks.
SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# the newer name first
ADDITIONAL_SPECIAL = ("extra_special_tokens", "additional_special_tokens")
ADDED_BY_ID = "added_tokens_decoder"  # key of CONFIG
# Entries of CONFIG that are true, false or null.
_SWITCHES = (
    CLEAN_SPACES,
    "add_prefix_space",
    "do_lower_case",
    "keep_accents",
    "split_special_tokens",
    "strip_accents",
    "tokenize_chinese_chars",
)
_NAMES = ("tokenizer_class", "src_lang")
_TOKEN_SWITCHES = ("lstrip", "normalized", "rstrip", "single_word", "special")


_JOINED_TO_WORDS = (
    " .",
    " ?",
    " !",
    " ,",
    " ' ",
    " n't",
    " 'm",
    " 's",
    " 've",
    " 're",
)


def clean_spaces(text: str) -> str:
    """Joins punctuation marks and English contractions to the preceding word.

    This is what transformers does to decoded text if tokenizer_config.json sets
    "clean_up_tokenization_spaces", except with byte-pair vocabularies.
    """
    for mark in _JOINED_TO_WORDS:
        text = text.replace(mark, mark.strip())
    return text


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file; raises InputError if it cannot be read."""
    try:
        return files.read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise InputError(
            f"{path}: cannot read the tokenizer file ({error.strerror}); check the path"
        ) from None


def read_text(path: Path) -> str:
    """Returns the text of a UTF-8 file with line ends `\\n`; raises InputError if unreadable."""
    try:
        return read_bytes(path).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 text ({error.reason}); copy the file again"
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, empty for a file that does not exist."""
    if path.exists():
        return files.read_json(path, MAX_BYTES)
    return {}


def read_config(directory: Path) -> dict[str, Any]:
    """Returns tokenizer_config.json of a directory, empty if there is no such file.

    Special tokens are checked by ``read_special_tokens``, numbers by
    ``whole_number``.

    Raises:
        InputError: an entry of another type than transformers writes.
    """
    where = directory / CONFIG
    config = read_json(where)
    for name in _SWITCHES:
        if not isinstance(config.get(name), bool | None):
            raise _type_error(where, name, "true or false", config[name])
    for name in _NAMES:
        if not isinstance(config.get(name), str | None):
            raise _type_error(where, name, "a string", config[name])
    added = config.get(ADDED_BY_ID)
    if added is not None:
        if not isinstance(added, dict) or not all(map(_is_id, added)):
            kind = "an object whose keys are ids"
            raise _type_error(where, ADDED_BY_ID, kind, added)
        for index, token in added.items():
            name = f"{ADDED_BY_ID}[{shortened(index)}]"
            if not isinstance(token, dict):
                raise _type_error(where, name, "a token", token)
            _check_token(token, where, name)
    return config


def _is_id(text: str) -> bool:
    """Returns True for the decimal digits of a number that is not too long."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _check_token(token: Any, where: Path, name: str) -> None:
    """Raises InputError unless a token is a text, or {"content": text, ...} with flags."""
    if not isinstance(token_text(token), str):
        raise _type_error(where, name, "a string", token)
    if isinstance(token, dict):
        for flag in _TOKEN_SWITCHES:
            if not isinstance(token.get(flag, False), bool):
                raise _type_error(
                    where, f"{name}: {flag}", "true or false", token[flag]
                )


def _type_error(where: Path, name: str, kind: str, value: Any) -> InputError:
    return InputError(
        f"{where}: {name} must be {kind}, got {shortened(value)}; copy the file again"
    )


def whole_number(
    config: Mapping[str, Any],
    name: str,
    default: int,
    where: Path,
    limit: int = MAX_ADDED,
) -> int:
    """Returns ``config[name]`` or ``default``.

    Raises:
        InputError: not an integer from 0 to ``limit``.
    """
    value = config.get(name, default)
    if type(value) is not int or not 0 <= value <= limit:
        raise InputError(
            f"{where}: {name} must be a whole number up to {limit}, got {shortened(value)}"
        )
    return value


def read_special_tokens(
    directory: Path, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns special tokens by name, and lists of additional ones.

    A token is its text or, in older files, text with flags ({"content": ...}).
    As in transformers, special_tokens_map.json is read if tokenizer_config.json
    has no ``added_tokens_decoder``.
    """
    tokens = {
        name: config.get(name) for name in (*SPECIAL_NAMES, *ADDITIONAL_SPECIAL)
    }
    if ADDED_BY_ID not in config:
        content = read_json(directory / SPECIAL_MAP)
        tokens |= {name: content[name] for name in tokens if name in content}
    where = directory / CONFIG
    for name in SPECIAL_NAMES:
        if tokens[name] is not None:
            _check_token(tokens[name], where, name)
    for name in ADDITIONAL_SPECIAL:
        if not isinstance(tokens[name], list | dict | None):
            raise _type_error(where, name, "a list of tokens", tokens[name])
        for token in additional_special_tokens({name: tokens[name]}):
            _check_token(token, where, name)
    return {name: token for name, token in tokens.items() if token is not None}


def additional_special_tokens(config: Mapping[str, Any]) -> list[Any]:
    """Returns the special tokens besides ``SPECIAL_NAMES``; in the config they may have names."""
    for name in ADDITIONAL_SPECIAL:
        tokens = config.get(name)
        if isinstance(tokens, Mapping):
            return list(tokens.values())
        if isinstance(tokens, list):
            return tokens
    return []


def token_text(token: Any) -> Any:
    """Returns the text of a token, which may have the form {"content": text, ...}."""
    if isinstance(token, dict):
        return token.get("content")
    return token


def added_tokens(
    directory: Path, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the tokens that the files add to a vocabulary, in the order of their ids.

    Each is {"content": text, ...}.
    """
    added = config.get(ADDED_BY_ID)
    if added is None:
        ids = added_ids(directory, config)
        texts = sorted(ids, key=ids.__getitem__)
        return [
            {"content": text, "special": False, "normalized": True}
            for text in texts
        ]
    return [added[index] for index in sorted(added, key=int)]


def named_tokens(directory: Path, config: Mapping[str, Any]) -> list[Any]:
    """Returns the tokens that the files add to a vocabulary, and additional special tokens.

    Special tokens with a name in ``SPECIAL_NAMES`` are not additional.
    """
    return [
        *added_tokens(directory, config),
        *additional_special_tokens(config),
    ]


def added_ids(directory: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """Returns the ids of the tokens that the files add to a vocabulary."""
    added = config.get(ADDED_BY_ID)
    if added is None:
        ids = read_json(directory / ADDED)
        for text, index in ids.items():
            if type(index) is not int:
                name = shortened(text)
                raise _type_error(
                    directory / ADDED, name, "a whole number", index
                )
        return ids
    return {token_text(token): int(index) for index, token in added.items()}


def cleared(directory: str | Path) -> Path:
    """Returns a directory after removing tokenizer files, which would be read with the new ones.

    The directory is created if it does not exist.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        (directory / name).unlink(missing_ok=True)
    return directory


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def unused_rows(num_ids: int, vocab_size: int, where: str | Path) -> int:
    """Returns the number of rows of a checkpoint's embedding without a token.

    Raises:
        InputError: fewer rows than ids.
    """
    if vocab_size < num_ids:
        raise InputError(
            f"{where}: the tokenizer has {num_ids} pieces but the checkpoint {vocab_size} "
            "embedding rows; give the tokenizer that belongs to the checkpoint"
        )
    return vocab_size - num_ids


def checked_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """Returns ``ids`` as Python integers; raises InputError for an id outside [0, vocab_size)."""
    ids = [int(index) for index in ids]
    for index in ids:
        if not 0 <= index < vocab_size:
            raise InputError(
                f"token id {index} lies outside the tokenizer's {vocab_size} ids; use the "
                "tokenizer of the model"
            )
    return ids


def fingerprint(name: str, content: bytes, *numbers: int) -> str:
    """Returns a short hash of a tokenizer: its class, its content, and the numbers of its ids."""
    digest = hashlib.sha256(f"{name} {' '.join(map(str, numbers))}\n".encode())
    digest.update(content)
    return digest.hexdigest()[:16]
