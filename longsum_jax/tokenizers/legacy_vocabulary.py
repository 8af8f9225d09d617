"""Builds a tokenizer.json from vocab.json with merges.txt, or from vocab.txt."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.files import parse_json
from longsum_jax.tokenizers.files import (
    BYTE_PAIRS,
    MERGES,
    SPECIAL_NAMES,
    WORD_PIECES,
    added_tokens,
    additional_special_tokens,
    read_json,
    read_text,
    token_text,
)
from longsum_jax.tokenizers.json_checks import check_ids

_ROBERTA = ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>")
# Options of BertNormalizer and transformers' defaults, by entry of
# tokenizer_config.json.
_BERT_NORMALIZATION = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
_BERT = (None, None, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")


def byte_pair_json(
    directory: Path, config: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Reads the byte-level BPE of BART, LED and RoBERTa from vocab.json and merges.txt.

    Args:
        directory: directory of the files.
        config: entries of tokenizer_config.json, merged with
            special_tokens_map.json.

    Returns:
        The content of a tokenizer.json, and ``config`` with all special tokens.

    Raises:
        InputError: a missing or damaged file.
    """
    where = directory / BYTE_PAIRS
    library = tokenizers_library(where)
    config = with_default_tokens(config, _ROBERTA)
    vocabulary, merges = read_json(where), _read_merges(directory / MERGES)
    try:
        check_ids(vocabulary)
        tokenizer = library.Tokenizer(
            library.models.BPE(vocab=vocabulary, merges=merges)
        )
    except Exception as error:  # the library raises no narrower type
        raise InputError(
            f"{where}: {error}; copy it and {MERGES} again"
        ) from None
    prefix_space = bool(config.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(
        add_prefix_space=prefix_space
    )
    tokenizer.decoder = library.decoders.ByteLevel()
    add_tokens(tokenizer, directory, config)
    around = [
        token_and_id(tokenizer, config[name])
        for name in ("sep_token", "cls_token")
    ]
    tokenizer.post_processor = library.processors.RobertaProcessing(
        *around, add_prefix_space=prefix_space
    )
    return tokenizer.to_str(), config


def word_piece_json(
    directory: Path, config: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Reads BERT's WordPiece vocabulary from vocab.txt.

    For arguments, results and errors see ``byte_pair_json``.
    """
    where = directory / WORD_PIECES
    library = tokenizers_library(where)
    config = with_default_tokens(config, _BERT)
    pieces = read_text(where).removesuffix("\n").split("\n")
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    unknown = token_text(config["unk_token"])
    tokenizer = library.Tokenizer(
        library.models.WordPiece(vocabulary, unk_token=unknown)
    )
    tokenizer.normalizer = library.normalizers.BertNormalizer(
        **_bert_normalization(config)
    )
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = library.decoders.WordPiece()
    add_tokens(tokenizer, directory, config)
    first, last = (
        token_and_id(tokenizer, config[name])
        for name in ("cls_token", "sep_token")
    )
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{first[0]} $A {last[0]}",
        pair=f"{first[0]} $A {last[0]} $B:1 {last[0]}:1",
        special_tokens=[first, last],
    )
    return tokenizer.to_str(), config


def with_prefix_space(content: str, config: Mapping[str, Any]) -> str:
    """Returns a valid byte-pair tokenizer.json with the ``add_prefix_space`` of a config.

    Like transformers, it uses the config's value, or else False, and ignores
    the file's.
    """
    options = {"add_prefix_space": bool(config.get("add_prefix_space"))}
    steps = {
        "pre_tokenizer": "ByteLevel",
        "post_processor": "RobertaProcessing",
    }
    return _with_options(content, steps, options)


def with_normalization(content: str, config: Mapping[str, Any]) -> str:
    """Returns a valid BERT tokenizer.json with the normalization of a config.

    Like transformers, it uses the config's values, or else the defaults of
    uncased models, and ignores the file's.
    """
    return _with_options(
        content, {"normalizer": "BertNormalizer"}, _bert_normalization(config)
    )


def bert_entries(normalizer: Any) -> dict[str, Any]:
    """Returns the entries of tokenizer_config.json that describe a BertNormalizer."""
    entries = {}
    for name, (option, _) in _BERT_NORMALIZATION.items():
        entries[name] = getattr(normalizer, option)
    return entries


def _bert_normalization(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a BertNormalizer."""
    options = {}
    for name, (option, default) in _BERT_NORMALIZATION.items():
        if config.get(name) is None:
            options[option] = default
        else:
            options[option] = config[name]
    return options


def _with_options(
    content: str, steps: Mapping[str, str], options: Mapping[str, Any]
) -> str:
    """Returns a tokenizer.json with different options of its steps.

    Args:
        content: text of the file.
        steps: type of the step to change, by part of the file; other types are
            kept.
        options: new values of the options, by name.
    """
    tokenizer = parse_json(content)
    for part, step_type in steps.items():
        step = tokenizer.get(part)
        if step is not None and step["type"] == step_type:
            step |= options
    return json.dumps(tokenizer)


def tokenizers_library(where: str | Path) -> ModuleType:
    """Returns the `tokenizers` package; raises InputError with install advice if missing."""
    try:
        import tokenizers
    except ImportError:
        raise InputError(
            f'{where}: reading it needs the tokenizers package; pip install "longsum_jax[hf]"'
        ) from None
    return tokenizers


def make_token(token: str | Mapping[str, Any]) -> Any:
    """Creates a token of the library from its text, or from {"content": text, "lstrip": ...}."""
    import tokenizers

    if isinstance(token, str):
        return tokenizers.AddedToken(token, normalized=False, special=True)
    names = ("single_word", "lstrip", "rstrip", "normalized")
    flags = {name: token[name] for name in names if name in token}
    return tokenizers.AddedToken(
        token["content"], special=token.get("special", True), **flags
    )


def with_default_tokens(
    config: Mapping[str, Any],
    defaults: tuple[str | Mapping[str, Any] | None, ...],
) -> dict[str, Any]:
    """Returns a config with all special tokens; ``defaults`` are ordered as ``SPECIAL_NAMES``."""
    config = dict(config)
    for name, text in zip(SPECIAL_NAMES, defaults, strict=True):
        token = config.get(name) or text
        if token is not None:
            config[name] = token
    return config


def _read_merges(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        raise InputError(
            f"{path}: no such file; a vocab.json needs the merges.txt that belongs to it"
        )
    merges = []
    for number, line in enumerate(
        read_text(path).removesuffix("\n").split("\n"), 1
    ):
        if line.startswith("#version"):
            continue
        pair = line.split(" ")
        if len(pair) != 2:
            raise InputError(
                f"{path}:{number}: expected two pieces with a space between, got {line[:80]!r}"
            )
        merges.append((pair[0], pair[1]))
    return merges


def add_tokens(
    tokenizer: Any, directory: Path, config: Mapping[str, Any]
) -> None:
    """Adds tokens that the vocabulary lacks, at the next ids, and marks special ones."""
    tokenizer.add_tokens(
        [make_token(token) for token in added_tokens(directory, config)]
    )
    special = [config[name] for name in SPECIAL_NAMES if config.get(name)]
    special += additional_special_tokens(config)
    tokenizer.add_special_tokens([make_token(token) for token in special])


def token_and_id(
    tokenizer: Any, token: str | Mapping[str, Any]
) -> tuple[str, int]:
    """Returns the text of a token and its id."""
    return token_text(token), tokenizer.token_to_id(token_text(token))
