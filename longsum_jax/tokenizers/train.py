"""Trains SentencePiece vocabularies with T5's special ids."""

import io
import logging
import random
import re
from collections.abc import Iterable, Iterator

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.files import unused_rows
from longsum_jax.tokenizers.sentencepiece import SentencePieceTokenizer

# Lines of at most 1,000 characters: SentencePiece skips lines of more than
# 4,192 bytes.
_TRAINING_LINE = re.compile(r"\S.{0,999}(?!\S)|\S{1,1000}")
_log = logging.getLogger(__name__)


def train_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    extra_ids: int = 0,
    rows: int | None = None,
    seed: int = 0,
    max_sentences: int = 1_000_000,
    character_coverage: float = 0.9995,
) -> SentencePieceTokenizer:
    """Trains a unigram model with byte fallback and T5's normalization.

    Equal arguments give equal model bytes.

    Args:
        texts: iterable of texts, read once; split into lines of at most 1,000
            characters.
        vocab_size: number of pieces, including special pieces and 256 bytes. A
            corpus too small for it gives a smaller vocabulary (`num_pieces` of
            the result), which is logged as a warning.
        extra_ids: number of sentinels in addition to the pieces.
        rows: number of rows of the model's embedding; rows without a token are
            unused ids. None for as many rows as tokens.
        seed: random seed of the sample that is drawn from more than
            ``max_sentences`` lines.
        max_sentences: largest number of lines to train on.
        character_coverage: fraction of the characters that get a piece.
            SentencePiece encodes other characters as bytes; transformers'
            T5Tokenizer reads them as unknown.

    Raises:
        InputError: no text, or a vocabulary too small for the characters.
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
            # fixed, because rounding depends on the number of summing threads
            num_threads=2,
            minloglevel=2,
        )
    except RuntimeError as error:
        needed = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise
        raise InputError(
            f"vocab_size={vocab_size} is too small for the texts; give at least {needed[1]}"
        ) from None
    tokenizer = SentencePieceTokenizer(model.getvalue(), extra_ids)
    if tokenizer.num_pieces < vocab_size:
        _log.warning(
            "the texts yield %d of the %d requested pieces",
            tokenizer.num_pieces,
            vocab_size,
        )
    if rows is None:
        return tokenizer
    unused = unused_rows(tokenizer.vocab_size, rows, "the texts")
    return SentencePieceTokenizer(model.getvalue(), extra_ids, unused)


def _training_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _TRAINING_LINE.findall(
            " ".join(text.replace("\0", " ").split())
        )


def _sample(lines: Iterable[str], size: int, rng: random.Random) -> list[str]:
    """Returns ``size`` lines, each with equal probability (reservoir sampling), or all lines."""
    sample: list[str] = []
    for number, line in enumerate(lines):
        if number < size:
            sample.append(line)
        elif (index := rng.randrange(number + 1)) < size:
            sample[index] = line
    return sample
