"""Opens the tokenizer of a checkpoint from its files.

    family                               files
    T5, LongT5, LOCOST                   spiece.model; ids 0 pad, 1 end, 2 unknown, and
                                         `<extra_id_n>` after the pieces
    PEGASUS, PEGASUS-X, BigBird-PEGASUS  spiece.model; special ids before the pieces
    BART, LED, RoBERTa, Longformer       vocab.json with merges.txt
    BERT, DistilBERT, ELECTRA            vocab.txt
    XLM-RoBERTa, CamemBERT, mBART,       sentencepiece.bpe.model; the order of ids depends on the
    BARThez                              class in tokenizer_config.json, or on the model_type
    ALBERT, BigBird                      spiece.model
    ByT5                                 none
    any of these                         tokenizer.json

A checkpoint with more embedding rows than its tokenizer has ids has unused rows
at the end.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError, did_you_mean, first_line
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.bytes import NAMED, NUM_BYTE_IDS, ByteTokenizer
from longsum_jax.tokenizers.chat_template import default_template
from longsum_jax.tokenizers.fast import JsonTokenizer
from longsum_jax.tokenizers.files import (
    BYTE_PAIRS,
    CHAT_FILE,
    CHAT_TEMPLATE,
    CLEAN_SPACES,
    CONFIG,
    DEBERTA_PIECES,
    FAIRSEQ_PIECES,
    JSON,
    MAX_ROWS,
    MERGES,
    SENTENCE_PIECES,
    TOKENIZER_FILES,
    WORD_PIECES,
    added_ids,
    added_tokens,
    additional_special_tokens,
    named_tokens,
    read_bytes,
    read_config,
    read_json,
    read_special_tokens,
    read_text,
    token_text,
    unused_rows,
    whole_number,
)
from longsum_jax.tokenizers.legacy_sentencepiece import (
    CLASS_OF_MODEL_TYPE,
    CLASSES,
    sentencepiece_json,
    with_source_language,
)
from longsum_jax.tokenizers.legacy_vocabulary import (
    byte_pair_json,
    with_normalization,
    with_prefix_space,
    word_piece_json,
)
from longsum_jax.tokenizers.sentencepiece import (
    PEGASUS_OFFSET,
    PegasusTokenizer,
    SentencePieceTokenizer,
    open_sentencepiece,
)
from longsum_jax.tokenizers.unigram_json import read_tokenizer_json

__all__ = [
    "TOKENIZER_FILES",
    "ByteTokenizer",
    "JsonTokenizer",
    "PegasusTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "has_tokenizer",
    "load_tokenizer",
]

T5_EXTRA_IDS = 100
BYT5_EXTRA_IDS = 125

# Values of tokenizer_class that support vocabulary files; tokenizer.json is
# read for any class.
_SENTENCE_PIECE_CLASSES = ("T5Tokenizer", "PegasusTokenizer")
_BYTE_PAIR_CLASSES = (
    "BartTokenizer",
    "LEDTokenizer",
    "LongformerTokenizer",
    "RobertaTokenizer",
)
_WORD_PIECE_CLASSES = (
    "BertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
)
_JSON_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
_CLASSES = (
    *_SENTENCE_PIECE_CLASSES,
    *CLASSES,
    *_BYTE_PAIR_CLASSES,
    *_WORD_PIECE_CLASSES,
    *_JSON_CLASSES,
    "ByT5Tokenizer",
)
# Piece files of ``CLASSES``, if not ``FAIRSEQ_PIECES``.
_PIECES_OF_CLASS = {
    "AlbertTokenizer": SENTENCE_PIECES,
    "BigBirdTokenizer": SENTENCE_PIECES,
    "DebertaV2Tokenizer": DEBERTA_PIECES,
}
# Offsets by the model_type of config.json, for older checkpoints whose
# tokenizer_config.json has no class or no offset.
_PEGASUS_OFFSETS = {
    "pegasus": PEGASUS_OFFSET,
    "pegasus_x": PEGASUS_OFFSET,
    "bigbird_pegasus": 0,
}
# Classes whose config options replace the steps of a tokenizer.json, if no
# class is named.
_STEPS_OF_TYPE = {
    "bart": "BartTokenizer",
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "led": "LEDTokenizer",
    "longformer": "LongformerTokenizer",
    "roberta": "RobertaTokenizer",
}
_EXTRA_ID = re.compile(r"<extra_id_\d+>")


def has_tokenizer(directory: str | Path) -> bool:
    """Returns True if a directory contains any tokenizer file."""
    names = (
        SENTENCE_PIECES,
        FAIRSEQ_PIECES,
        DEBERTA_PIECES,
        JSON,
        BYTE_PAIRS,
        WORD_PIECES,
        CONFIG,
    )
    return any((Path(directory) / name).exists() for name in names)


def load_tokenizer(
    path: str | Path, *, vocab_size: int | None = None
) -> Tokenizer:
    """Opens a tokenizer.

    Args:
        path: directory written by transformers or ``save``, a SentencePiece
            .model file with T5's special pieces, or "bytes".
        vocab_size: number of rows of the checkpoint's embedding. Rows beyond
            T5's pieces become extra ids, at most as many as the directory
            defines (by default 100, for bytes 125); the other rows are unused.
            None takes the numbers of the directory; a bare file and "bytes"
            then have no extra ids.

    Raises:
        InputError: missing, unsupported or corrupt files, or fewer rows than
            pieces.
    """
    path = Path(path)
    try:
        return _load(path, vocab_size)
    except InputError:
        raise
    except (
        BaseException
    ) as error:  # malicious files can make the libraries raise anything
        if (
            not isinstance(error, Exception)
            and type(error).__name__ != "PanicException"
        ):
            raise
        reason = first_line(error)
        raise InputError(
            f"{path}: not a usable tokenizer ({reason}); copy its files again"
        ) from error


def _load(path: Path, vocab_size: int | None) -> Tokenizer:
    """Opens a tokenizer without handling exceptions of the libraries."""
    if str(path) == "bytes":
        extra_ids = BYT5_EXTRA_IDS if vocab_size else 0
        return ByteTokenizer(
            *_fit_rows(NUM_BYTE_IDS, extra_ids, 0, vocab_size, path)
        )
    if not path.is_dir():
        return _t5(
            read_bytes(path),
            T5_EXTRA_IDS if vocab_size else 0,
            0,
            vocab_size,
            path,
            {},
        )
    config = read_config(path)
    if (path / CHAT_FILE).exists():
        config[CHAT_TEMPLATE] = read_text(path / CHAT_FILE)
    name = _class_name(path, config)
    if name == "ByT5Tokenizer":
        return _open_byte_directory(path, config, vocab_size)
    if (
        name in (None, *_SENTENCE_PIECE_CLASSES)
        and (path / SENTENCE_PIECES).exists()
    ):
        return _open_sentencepiece_directory(path, config, name, vocab_size)
    return _open_json_tokenizer(path, config, name, vocab_size)


def _class_name(directory: Path, config: dict[str, Any]) -> str | None:
    """Returns tokenizer_class without "Fast"; an unknown class requires a tokenizer.json.

    If tokenizer_config.json has no class, config.json may name one, or its
    model_type implies one.
    """
    model = read_json(directory / "config.json")
    by_type = CLASS_OF_MODEL_TYPE.get(_model_type(directory))
    name = (
        config.get("tokenizer_class") or model.get("tokenizer_class") or by_type
    )
    if name is None:
        return None
    name = str(name).removesuffix("Fast")
    if name not in _CLASSES and not (directory / JSON).exists():
        raise InputError(
            f'{directory / CONFIG}: tokenizer_class "{name}" is supported with a {JSON} only; '
            f"{did_you_mean(name, _CLASSES)}"
        )
    return name


def _model_type(directory: Path) -> str:
    """Returns the model_type of config.json, of the encoder in an encoder-decoder of two models."""
    model: Mapping[str, Any] = read_json(directory / "config.json")
    encoder = model.get("encoder")
    if model.get("model_type") == "encoder-decoder" and isinstance(
        encoder, Mapping
    ):
        model = encoder
    name = model.get("model_type")
    return name if isinstance(name, str) else ""


def _open_byte_directory(
    directory: Path, config: dict[str, Any], vocab_size: int | None
) -> ByteTokenizer:
    where = directory / CONFIG
    special = read_special_tokens(directory, config)
    _check_byte_names(special, where)
    tokens = {
        token_text(token): token for token in added_tokens(directory, config)
    }
    for text in map(token_text, additional_special_tokens(special)):
        tokens.setdefault(text, {"content": text, "special": True})
    sentinels = {text for text in tokens if _EXTRA_ID.fullmatch(text)}
    # transformers saves 0 for any number of extra ids
    if config.get("extra_ids") == 0:
        config = {**config, "extra_ids": len(sentinels)}
    extra_ids, unused_ids = _id_counts(config, BYT5_EXTRA_IDS, where)
    added = [
        token
        for text, token in tokens.items()
        if text not in {*NAMED, *sentinels}
    ]
    chat = default_template(config.get(CHAT_TEMPLATE), where)
    if not added:
        counts = _fit_rows(
            NUM_BYTE_IDS, extra_ids, unused_ids, vocab_size, where
        )
        return ByteTokenizer(*counts, chat_template=chat)
    first = NUM_BYTE_IDS + extra_ids
    if vocab_size is not None:
        unused_ids = unused_rows(first + len(added), vocab_size, where)
    ids = added_ids(directory, config)
    for index, token in enumerate(added, first):
        _check_added_to_bytes(
            token, ids.get(token["content"], index), index, where
        )
    return ByteTokenizer(extra_ids, unused_ids, added, chat)


def _check_byte_names(special: Mapping[str, Any], where: Path) -> None:
    """Raises InputError for pad, end and unknown tokens with names other than ByT5's."""
    for name, text in zip(
        ("pad_token", "eos_token", "unk_token"), NAMED, strict=True
    ):
        token = token_text(special.get(name, text))
        if token != text:
            raise InputError(
                f'{where}: {name} is "{token}", but tokenizers of bytes call it "{text}"; rename it'
            )


def _check_added_to_bytes(
    token: Mapping[str, Any], token_id: int, index: int, where: Path
) -> None:
    """Raises InputError for an added token whose id is not the next one, or with flags."""
    name = f'{where}: the added token "{token["content"]}"'
    if token_id != index:
        raise InputError(
            f"{name} has the id {token_id}, but the next one after bytes, extra ids and others is "
            f"{index}; number added tokens from there on"
        )
    if any(token.get(flag) for flag in ("lstrip", "rstrip", "single_word")):
        raise InputError(
            f"{name} sets lstrip, rstrip or single_word, which byte tokenizers do not "
            "support; set them to false"
        )


def _open_sentencepiece_directory(
    directory: Path,
    config: dict[str, Any],
    name: str | None,
    vocab_size: int | None,
) -> Tokenizer:
    path, where = directory / SENTENCE_PIECES, directory / CONFIG
    offset = _PEGASUS_OFFSETS.get(_model_type(directory))
    is_pegasus = offset is not None or "offset" in config
    if name == "PegasusTokenizer" or (name is None and is_pegasus):
        if offset is None:
            default = PEGASUS_OFFSET
        else:
            default = offset
        offset = whole_number(config, "offset", default, where)
        unused_ids = whole_number(config, "unused_ids", 0, where, MAX_ROWS)
        tokenizer: SentencePieceTokenizer = _pegasus(
            path, offset, unused_ids, vocab_size, config
        )
    else:
        counts = _id_counts(config, T5_EXTRA_IDS, where)
        tokenizer = _t5(read_bytes(path), *counts, vocab_size, path, config)
    special = read_special_tokens(directory, config)
    added = named_tokens(directory, {**config, **special})
    added += read_json(directory / JSON).get("added_tokens") or []
    lacking = _lacking(tokenizer, added)
    if not lacking and not _has_chat(config):
        return tokenizer
    # The SentencePiece model lacks these tokens, or does not mark the tokens of
    # a chat template as special, but a tokenizer.json may contain them.
    if not (directory / JSON).exists():
        addition = f'"{lacking[0]}"' if lacking else "a chat template"
        raise InputError(
            f"{directory}: {addition} was added to {SENTENCE_PIECES}; "
            f"save the tokenizer as {JSON}"
        )
    return _open_json_tokenizer(directory, config, name, vocab_size)


def _has_chat(config: Mapping[str, Any]) -> bool:
    """Returns True for a tokenizer with a chat template."""
    return config.get(CHAT_TEMPLATE) is not None


def _lacking(
    tokenizer: SentencePieceTokenizer, tokens: Iterable[Any]
) -> list[str]:
    """Returns the texts of tokens that a SentencePiece model lacks, except sentinels."""
    texts = [
        text
        for text in map(token_text, tokens)
        if not _EXTRA_ID.fullmatch(text)
    ]
    return [text for text in texts if not tokenizer.has_token(text)]


def _open_json_tokenizer(
    directory: Path,
    config: dict[str, Any],
    name: str | None,
    vocab_size: int | None,
) -> Tokenizer:
    """Opens a tokenizer.json, or builds one from older vocabulary files."""
    config = {**config, **read_special_tokens(directory, config)}
    where = directory / JSON
    more: list[Any] = []  # tokens that the content may lack
    pieces = directory / _PIECES_OF_CLASS.get(name or "", FAIRSEQ_PIECES)
    if where.exists():
        content = with_source_language(read_text(where), config, name, where)
        if name == "PegasusTokenizer" or _has_chat(config):
            t5 = None
        else:
            t5 = read_tokenizer_json(content, where)
        if t5 is not None:
            model, extra_ids = t5
            unused_ids = whole_number(
                config, "unused_ids", 0, directory / CONFIG, MAX_ROWS
            )
            tokenizer = _t5(
                model, extra_ids, unused_ids, vocab_size, where, config
            )
            if not _lacking(tokenizer, named_tokens(directory, config)):
                return tokenizer
        steps = name or _STEPS_OF_TYPE.get(_model_type(directory))
        if steps in _BYTE_PAIR_CLASSES:
            content = with_prefix_space(content, config)
        if steps in _WORD_PIECE_CLASSES:
            content = with_normalization(content, config)
        more = named_tokens(directory, config)
    elif name in CLASSES and pieces.exists():
        where = pieces
        content, config = sentencepiece_json(pieces, config, name)
    elif (directory / BYTE_PAIRS).exists() and name in (
        None,
        *_BYTE_PAIR_CLASSES,
        *_JSON_CLASSES,
    ):
        where = directory / BYTE_PAIRS
        content, config = byte_pair_json(directory, config)
    elif (directory / WORD_PIECES).exists() and name in (
        None,
        *_WORD_PIECE_CLASSES,
        *_JSON_CLASSES,
    ):
        where = directory / WORD_PIECES
        content, config = word_piece_json(directory, config)
    else:
        raise InputError(
            f"{directory}: no tokenizer there; put {SENTENCE_PIECES}, {FAIRSEQ_PIECES} or {JSON} "
            f"(or {BYTE_PAIRS} with {MERGES}, or {WORD_PIECES}) into the directory"
        )
    return JsonTokenizer(
        content, config, vocab_size=vocab_size, where=where, more=more
    )


def _t5(
    model: bytes,
    extra: int,
    unused: int,
    vocab_size: int | None,
    where: Path,
    config: Mapping[str, Any],
) -> SentencePieceTokenizer:
    num_pieces = open_sentencepiece(model, str(where)).get_piece_size()
    counts = _fit_rows(num_pieces, extra, unused, vocab_size, where)
    return SentencePieceTokenizer(
        model,
        *counts,
        cleans_spaces=config.get(CLEAN_SPACES) is True,
        where=where,
    )


def _pegasus(
    path: Path,
    offset: int,
    unused: int,
    vocab_size: int | None,
    config: Mapping[str, Any],
) -> PegasusTokenizer:
    if vocab_size is not None:
        unused = unused_rows(
            PegasusTokenizer(path, offset).vocab_size, vocab_size, path
        )
    return PegasusTokenizer(
        path, offset, unused, cleans_spaces=config.get(CLEAN_SPACES) is True
    )


def _fit_rows(
    num_pieces: int,
    extra: int,
    unused: int,
    vocab_size: int | None,
    where: Path,
) -> tuple[int, int]:
    """Returns the numbers of extra and unused ids that fit the rows of the checkpoint."""
    if vocab_size is None:
        return extra, unused
    spare = unused_rows(num_pieces, vocab_size, where)
    return min(extra, spare), spare - min(extra, spare)


def _id_counts(
    config: dict[str, Any], default_extra: int, where: Path
) -> tuple[int, int]:
    extra_ids = whole_number(config, "extra_ids", default_extra, where)
    return extra_ids, whole_number(config, "unused_ids", 0, where, MAX_ROWS)
