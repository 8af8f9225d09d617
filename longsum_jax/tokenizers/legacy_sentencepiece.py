"""Builds a tokenizer.json from SentencePiece models of fairseq, ALBERT, BigBird and DeBERTa.

XLM-RoBERTa, CamemBERT, mBART and BARThez come from fairseq, which has a
different order of ids: its special tokens come first and replace some of the
model's special pieces, and `<mask>` comes last, after the languages of an mBART
model. The other models have their special tokens among the pieces, except for
DeBERTa's `[MASK]`, which comes last.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.tokenizers.files import read_bytes, token_text
from longsum_jax.tokenizers.legacy_vocabulary import (
    add_tokens,
    token_and_id,
    tokenizers_library,
    with_default_tokens,
)

_SPACE = "▁"
_BEFORE_MASK = {"lstrip": True, "rstrip": False, "normalized": False}
_FAIRSEQ = (
    "<s>",
    "</s>",
    "<unk>",
    "</s>",
    "<pad>",
    "<s>",
    {"content": "<mask>", **_BEFORE_MASK},
)
_ALBERT = ("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]")
_BIG_BIRD = (
    *("<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]"),
    {"content": "[MASK]", **_BEFORE_MASK},
)
_DEBERTA = ("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
_CONTROL, _USER_DEFINED = 3, 4  # types of SentencePiece pieces
_NUMBER_COMMA = re.compile(r".*\d,", re.DOTALL)
_UNLIKELY = -100.0  # score of pieces that should not be used

_CODES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_FURTHER_CODES = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF "
    "pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_MBART_LANGUAGES = tuple(_CODES.split())
_MBART50_LANGUAGES = (*_MBART_LANGUAGES, *_FURTHER_CODES.split())


class _IdLayout(NamedTuple):
    """The order of ids of a tokenizer, and the special tokens around a text.

    Attributes:
        first: tokens before the pieces.
        skipped: number of leading pieces of the model that have no id.
        languages: language codes after the pieces.
        last: tokens after the languages.
        around: names of the special tokens before and after a text; "src_lang"
            is its language.
        num_between: number of times that the suffix of a text is repeated
            between two texts.
        second_type: token type of the second of two texts.
        tokens: default special tokens, in the order of ``SPECIAL_NAMES``.
    """

    first: tuple[str, ...] = ("<s>", "<pad>", "</s>", "<unk>")
    skipped: int = 3
    languages: tuple[str, ...] = ()
    last: tuple[str, ...] = ("<mask>",)
    around: tuple[tuple[str, ...], tuple[str, ...]] = (
        ("cls_token",),
        ("sep_token",),
    )
    num_between: int = 2
    second_type: int = 0
    tokens: tuple[str | Mapping[str, Any], ...] = _FAIRSEQ


_MBART_AROUND = ((), ("eos_token", "src_lang"))
_MBART50_AROUND = (("src_lang",), ("eos_token",))
_CAMEMBERT_FIRST = (
    "<s>NOTUSED",
    "<pad>",
    "</s>NOTUSED",
    "<unk>",
    "<unk>NOTUSED",
)
# Layouts by tokenizer_class.
_LAYOUTS = {
    "XLMRobertaTokenizer": _IdLayout(),
    "CamembertTokenizer": _IdLayout(_CAMEMBERT_FIRST, 1),
    "MBartTokenizer": _IdLayout(
        languages=_MBART_LANGUAGES, around=_MBART_AROUND, num_between=0
    ),
    "MBart50Tokenizer": _IdLayout(
        languages=_MBART50_LANGUAGES, around=_MBART50_AROUND, num_between=0
    ),
    "BarthezTokenizer": _IdLayout((), 0, last=()),
    "AlbertTokenizer": _IdLayout(
        (), 0, last=(), num_between=1, second_type=1, tokens=_ALBERT
    ),
    "BigBirdTokenizer": _IdLayout(
        (), 0, last=(), num_between=1, second_type=1, tokens=_BIG_BIRD
    ),
    "DebertaV2Tokenizer": _IdLayout(
        (), 0, last=("[MASK]",), num_between=1, second_type=1, tokens=_DEBERTA
    ),
}
CLASSES = tuple(_LAYOUTS)
# tokenizer_class by model_type of config.json, for directories that do not name
# a class.
CLASS_OF_MODEL_TYPE = {
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "mbart": "MBartTokenizer",
    "albert": "AlbertTokenizer",
    "big_bird": "BigBirdTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}
# Options of DeBERTa's class that change the pieces; published models have none.
_UNSUPPORTED_STEPS = ("do_lower_case", "split_by_punct")


def sentencepiece_json(
    path: Path, config: Mapping[str, Any], tokenizer_class: str
) -> tuple[str, dict[str, Any]]:
    """Reads a SentencePiece unigram model.

    Args:
        path: path of the model.
        config: entries of tokenizer_config.json, merged with
            special_tokens_map.json.
        tokenizer_class: name of the class, one of ``CLASSES``.

    Returns:
        The content of a tokenizer.json, and ``config`` with the class and all
        special tokens.

    Raises:
        InputError: a damaged file, or a model of another type.
    """
    library = tokenizers_library(path)
    proto = _read_proto(path)
    layout = _LAYOUTS[tokenizer_class]
    is_albert = tokenizer_class == "AlbertTokenizer"
    if tokenizer_class == "DebertaV2Tokenizer":
        for name in _UNSUPPORTED_STEPS:
            if config.get(name):
                raise InputError(
                    f"{path}: {name}=true is not supported for DeBERTa; save a tokenizer.json"
                )
    config = {**config, "tokenizer_class": tokenizer_class}
    config = with_default_tokens(config, layout.tokens)
    vocabulary = _vocabulary(proto, layout, is_albert)
    unknown = token_text(config["unk_token"])
    texts = [piece for piece, _ in vocabulary]
    if unknown not in texts:
        raise InputError(
            f'{path}: no piece "{unknown}"; copy the model that belongs to the config'
        )
    model = library.models.Unigram(
        vocabulary, unk_id=texts.index(unknown), byte_fallback=False
    )
    tokenizer = library.Tokenizer(model)
    tokenizer.normalizer = _normalizer(
        library, proto, config if is_albert else None
    )
    spaces = {"replacement": _SPACE, "prepend_scheme": "always"}
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence(
        [
            library.pre_tokenizers.WhitespaceSplit(),
            library.pre_tokenizers.Metaspace(**spaces),
        ]
    )
    tokenizer.decoder = library.decoders.Metaspace(**spaces)
    _add_special(library, tokenizer, proto, layout)
    add_tokens(tokenizer, path.parent, config)
    tokenizer.post_processor = _template(
        library, tokenizer, config, layout, path
    )
    return tokenizer.to_str(), config


def with_source_language(
    content: str,
    config: Mapping[str, Any],
    tokenizer_class: str | None,
    where: Path,
) -> str:
    """Returns a tokenizer.json that adds the code of ``src_lang`` to a text.

    The content is unchanged for tokenizers other than mBART's, and without a
    language in the config.
    """
    layout = _LAYOUTS.get(tokenizer_class or "")
    if layout is None or not layout.languages or not config.get("src_lang"):
        return content
    library = tokenizers_library(where)
    tokenizer = library.Tokenizer.from_str(content)
    config = with_default_tokens(config, layout.tokens)
    tokenizer.post_processor = _template(
        library, tokenizer, config, layout, where
    )
    return tokenizer.to_str()


def _read_proto(path: Path) -> Any:
    import sentencepiece.sentencepiece_model_pb2 as messages
    from google.protobuf.message import DecodeError

    proto = messages.ModelProto()
    try:
        proto.ParseFromString(read_bytes(path))
    except DecodeError:
        raise InputError(
            f"{path}: not a SentencePiece model; copy the file again"
        ) from None
    if proto.trainer_spec.model_type != messages.TrainerSpec.UNIGRAM:
        raise InputError(
            f"{path}: only unigram models are supported; save a tokenizer.json"
        )
    return proto


def _vocabulary(
    proto: Any, layout: _IdLayout, is_albert: bool
) -> list[tuple[str, float]]:
    """Returns the pieces in the order of their ids, with their scores."""
    pieces = [
        (piece.piece, piece.score) for piece in proto.pieces[layout.skipped :]
    ]
    if is_albert:
        # ALBERT splits a comma from the preceding number.
        for index, (piece, score) in enumerate(pieces):
            if _NUMBER_COMMA.fullmatch(piece):
                pieces[index] = (piece, score + _UNLIKELY)
    first = [
        (token, _UNLIKELY if "NOTUSED" in token else 0.0)
        for token in layout.first
    ]
    last = [(token, 0.0) for token in (*layout.languages, *layout.last)]
    return first + pieces + last


def _normalizer(
    library: ModuleType, proto: Any, albert: Mapping[str, Any] | None
) -> Any:
    """Returns the model's normalization, preceded by ALBERT's if its config is given."""
    steps = []
    normalizers = library.normalizers
    if albert is not None:
        steps += [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
        ]
        if not albert.get("keep_accents", False):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if albert.get("do_lower_case", True):
            steps.append(normalizers.Lowercase())
    table = proto.normalizer_spec.precompiled_charsmap
    if table:
        steps.append(normalizers.Precompiled(table))
    return normalizers.Sequence(steps)


def _add_special(
    library: ModuleType, tokenizer: Any, proto: Any, layout: _IdLayout
) -> None:
    """Registers the model's control and user-defined pieces, and languages, as added tokens."""
    special_pieces = [
        piece
        for piece in proto.pieces
        if piece.type in (_CONTROL, _USER_DEFINED)
    ]
    names = {piece.piece: piece.type == _CONTROL for piece in special_pieces}
    names |= dict.fromkeys((*layout.first, *layout.languages), True)
    present = [
        name for name in names if tokenizer.token_to_id(name) is not None
    ]
    tokens = []
    for name in sorted(present, key=tokenizer.token_to_id):
        tokens.append(
            library.AddedToken(name, normalized=False, special=names[name])
        )
    tokenizer.add_tokens(tokens)


def _template(
    library: ModuleType,
    tokenizer: Any,
    config: Mapping[str, Any],
    layout: _IdLayout,
    where: Path,
) -> Any:
    """Returns the processor that adds special tokens to one text or two."""
    language = config.get("src_lang") or "en_XX"
    if layout.languages and language not in layout.languages:
        raise InputError(
            f'{where}: src_lang "{language}" is unknown; {did_you_mean(language, layout.languages)}'
        )
    named = {**config, "src_lang": language}
    before, after = (
        [token_and_id(tokenizer, named[name]) for name in x]
        for x in layout.around
    )
    opening, closing = [text for text, _ in before], [text for text, _ in after]
    second = [f"{piece}:{layout.second_type}" for piece in ("$B", *closing)]
    return library.processors.TemplateProcessing(
        single=[*opening, "$A", *closing],
        pair=[*opening, "$A", *closing * layout.num_between, *second],
        special_tokens=list(dict(before + after).items()),
    )
