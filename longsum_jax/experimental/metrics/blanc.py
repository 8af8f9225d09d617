"""BLANC-help: how much a summary helps a model predict masked words of its document."""

import dataclasses
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from longsum_jax.errors import check_whole
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import (
    ModelMetric,
    Requirement,
    longest_text,
)
from longsum_jax.text.sentences import split_sentences, splitter_name
from longsum_jax.tokenizers.base import Tokenizer, mask_id_of

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

# Constants of the published code.
MIN_LETTERS = 4  # minimum letters of a masked word of one token
# minimum letters of a word's first token; later ones are not masked
MIN_LETTERS_OF_LEAD = 2
UNKNOWN_LETTERS = len("[UNK]")  # letters counted for an unknown token
MAX_TOKENS = 512  # maximum tokens of the input
KEPT_TOKENS = 100  # minimum tokens kept of a sentence before the summary is cut
FILLER = "."


class Masked(NamedTuple):
    """A sentence with some tokens masked.

    Attributes:
        ids: int [tokens], masks included.
        positions: token positions of the masks.
        answers: original ids at the masks.
    """

    ids: np.ndarray
    positions: np.ndarray
    answers: np.ndarray


class Blanc(ModelMetric):
    """Accuracy gain of a masked language model from a summary (Vasilyev et al., 2020; BLANC 0.3.4).

    Each document sentence is read with every ``gap``-th of its longer words
    masked, once after the summary and once after as many dots. blanc_help is
    the share of masked words predicted only with the summary minus the share
    predicted only with the dots, from -100 to 100; blanc_improve divides the
    number of words predicted only with the summary by the number of masked
    words not predicted only with the dots. Both are 0 if no word can be masked.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Attributes: gap: distance of masked tokens; 6 in the paper, 2 in its code."""

        gap: int = 2

        def __post_init__(self) -> None:
            check_whole("metrics.blanc.gap", self.gap, 1)

    name = "blanc"
    columns = ("blanc_help", "blanc_improve")
    reads_references = False
    requirement: ClassVar = Requirement(
        "a masked language model", heads=("masked_lm",)
    )
    options: Options

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        pairs = zip(predictions, sources, strict=True)
        return [self._scores(model, *pair) for pair in pairs]

    def describe(self) -> dict[str, Any]:
        signature = (
            f"blanc|model:{self.user_model.label}|gap:{self.options.gap}"
            f"|split:{splitter_name().replace(' ', '-')}"
        )
        return {"signature": signature} | super().describe()

    def _scores(
        self, model: "LoadedModel", summary: str, source: str
    ) -> Scores:
        tokenizer = model.tokenizer
        template = _Template(model)
        help_ids = tokenizer.encode_batch(_sentences(summary))
        rows, masked = [], []
        for sentence in _sentences(source):
            ids = np.array(tokenizer.encode(sentence), np.int64)
            length, helping = template.fitted(len(ids), help_ids)
            fillers = [template.filler_id] * len(helping)
            can_mask = maskable(tokenizer, sentence, length)
            gap = self.options.gap
            for one in masked_sentences(
                ids[:length], can_mask, gap, template.mask_id
            ):
                rows += [
                    template.row(helping, one.ids),
                    template.row(fillers, one.ids),
                ]
                masked.append(one)
        return _help(self._right(model, template, rows, masked))

    def _right(
        self,
        model: "LoadedModel",
        template: "_Template",
        rows: Sequence[Sequence[int]],
        masked: Sequence[Masked],
    ) -> np.ndarray:
        """Returns True for correct predictions, bool [2, masks]: with summary, with dots."""
        from longsum_jax.inference.rows import most_likely, row_logits

        size = self.options.batch_size
        guesses = row_logits(model, rows, batch_size=size, reduce=most_likely)
        right: list[list[np.ndarray]] = [
            [np.zeros(0, bool)],
            [np.zeros(0, bool)],
        ]
        for number, (row, guessed) in enumerate(
            zip(rows, guesses, strict=True)
        ):
            one = masked[number // 2]
            positions = one.positions + template.offset(row, one.ids)
            right[number % 2].append(guessed[positions] == one.answers)
        return np.stack([np.concatenate(matches) for matches in right])


class _Template:
    """Concatenates a summary and a sentence into one input of a model."""

    def __init__(self, model: "LoadedModel") -> None:
        tokenizer = model.tokenizer
        prefix = tokenizer.encode(model.summarization.get("prefix", ""))
        around = tokenizer.add_special_tokens([])
        count = len(tokenizer.prefix_ids)
        self._before = [*around[:count], *prefix]
        self._after = around[count:]
        self._room = (
            longest_text(model, MAX_TOKENS)
            - len(self._before)
            - len(self._after)
        )
        self.mask_id = mask_id_of(tokenizer)
        self.filler_id = tokenizer.encode(FILLER)[-1]

    def row(self, helping: Sequence[int], sentence: np.ndarray) -> list[int]:
        """Returns the input with a sentence after the summary or filler."""
        return [*self._before, *helping, *sentence.tolist(), *self._after]

    def offset(self, row: Sequence[int], sentence: np.ndarray) -> int:
        """Returns the position of the sentence in its row."""
        return len(row) - len(self._after) - len(sentence)

    def fitted(
        self, length: int, summary: Sequence[Sequence[int]]
    ) -> tuple[int, list[int]]:
        """Returns the number of tokens to read of a sentence, and the ids to read of the summary.

        The end of the sentence is cut first, down to ``KEPT_TOKENS``, then the
        last sentences of the summary; if its first sentence is too long, only
        the end of that sentence is read.
        """
        whole = [token for sentence in summary for token in sentence]
        excess = max(length + len(whole) - self._room, 0)
        least = min(KEPT_TOKENS, self._room // 2)
        retained = max(length - excess, min(length, least))
        room = self._room - retained
        if len(whole) <= room:
            return retained, whole
        ends = np.cumsum([len(sentence) for sentence in summary])
        fitting = int(ends[ends <= room].max(initial=0))
        return retained, whole[:fitting] if fitting else list(
            summary[0][-room:]
        )


def maskable(tokenizer: Tokenizer, sentence: str, count: int) -> np.ndarray:
    """Returns True for tokens that may be masked, bool [count].

    A token continues a word if there is neither white space nor punctuation
    between it and the token before.
    """
    spans = tokenizer.spans(sentence)[:count]
    texts = [sentence[start:end].strip() for start, end in spans]
    letters = np.array([_num_letters(text) for text in texts], np.int64)
    unknown = (
        np.array(tokenizer.encode(sentence)[:count], np.int64)
        == tokenizer.unk_id
    )
    letters[unknown] = UNKNOWN_LETTERS
    continues = np.zeros(len(spans) + 1, bool)
    for i in range(1, len(spans)):
        start, end = spans[i - 1][1], spans[i][0]
        touches = start == end and not sentence[end : end + 1].isspace()
        continues[i] = (
            touches
            and _is_letter(texts[i - 1][-1:])
            and _is_letter(texts[i][:1])
        )
    is_first = ~continues[:-1]
    least = np.where(continues[1:], MIN_LETTERS_OF_LEAD, MIN_LETTERS)
    return is_first & (letters >= least)


def masked_sentences(
    ids: np.ndarray, can_mask: np.ndarray, gap: int, mask_id: int
) -> Iterator[Masked]:
    """Yields a sentence once per remainder modulo ``gap``, if there are tokens to mask.

    Args:
        ids: int [tokens].
        can_mask: bool [tokens].
        gap: distance of two masks, at most the number of tokens.
        mask_id: id of the mask token.
    """
    gap = min(gap, len(ids))
    for remainder in range(gap):
        positions = np.flatnonzero(
            can_mask & (np.arange(len(ids)) % gap == remainder)
        )
        if len(positions):
            masked = ids.copy()
            masked[positions] = mask_id
            yield Masked(masked, positions, ids[positions])


def _help(right: np.ndarray) -> Scores:
    """Returns the scores for correct predictions, bool [2, masks]; see ``Blanc._right``."""
    with_summary, with_dots = right
    gained = float((with_summary & ~with_dots).sum())
    lost = float((~with_summary & with_dots).sum())
    count = right.shape[1]
    return {
        "blanc_help": 100 * (gained - lost) / max(count, 1),
        "blanc_improve": 100 * gained / max(count - lost, 1),
    }


def _sentences(text: str) -> list[str]:
    return split_sentences(unicodedata.normalize("NFKD", text))


def _num_letters(text: str) -> int:
    return sum(not unicodedata.combining(character) for character in text)


def _is_letter(character: str) -> bool:
    """Returns True unless a character is punctuation; combining marks count as letters."""
    return character.isalnum() or bool(
        character and unicodedata.combining(character)
    )
