"""Generated tasks with exact answers, each of which one mechanism of long inputs is for.

A text is ids of a small vocabulary: the symbol of its task, then facts among filler. No tokenizer
reads it. Letters below are SYMBOLS, digits DIGITS, "<" and "{" the two marks, "?" a question, "."
begins a sentence that nobody asked for; filler is drawn from the same symbols as facts are.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

Ids = list[int]
PAD, EOS, MARK, SECOND, QUESTION, DOT = range(6)
TASK_SYMBOLS = range(6, 15)
DIGITS = range(15, 24)  # one to nine
SYMBOLS = range(24, 64)
VOCABULARY = 64
SHORTEST = 16  # tokens; short texts have fewer facts that nobody asks for
SENTENCE = 4  # tokens
NUM_PAIRS, NUM_QUESTIONS = 8, 3  # of key-value recall
NUM_CHAINS = 4  # of the entity thread
NUM_TOPICS = 4  # of query focus
NUM_FACTS = 3  # of redundancy
LOOK_ALIKES = ((SECOND, MARK), (MARK, MARK), (SECOND, SECOND), (SECOND, MARK), (MARK, MARK))
VOTES = SYMBOLS[:4]
_NAMES = {PAD: "_", EOS: "$", MARK: "<", SECOND: "{", QUESTION: "?", DOT: "."}


class Text(NamedTuple):
    """One text.

    Attributes:
        body: its tokens after the task's symbol.
        answer: the tokens to be written.
        first, last: places in the body of the first and the last token that the answer must be
            joined from; the distance of a text is the number of tokens between them.
    """

    body: Ids
    answer: Ids
    first: int
    last: int


class Batch(NamedTuple):
    """Texts of one task and length.

    Attributes:
        ids: int32 [rows, length].
        answers: int32 [rows, answer_length], without an end.
        distances: int32 [rows], tokens.
    """

    ids: np.ndarray
    answers: np.ndarray
    distances: np.ndarray


def needle(rng: np.random.Generator, length: int) -> Text:
    """Copies a marked span:  x q < a b c d e m  ->  a b c d."""
    span = _draw(rng, 4)
    body, (place,) = _scatter(rng, length, [[MARK, *span]])
    return Text(body, span, place, length)


def multi_needle(rng: np.random.Generator, length: int) -> Text:
    """Copies spans by their numbers:  x < 2 c d q < 1 a b m < 3 e f  ->  a b c d e f."""
    spans = [_draw(rng, 2) for _ in range(3)]
    order = rng.permutation(3)
    pieces = [[MARK, DIGITS[i], *spans[i]] for i in order]
    body, places = _scatter(rng, length, pieces)
    return Text(body, _joined(spans), places[0], length)


def recall(rng: np.random.Generator, length: int) -> Text:
    """Finds values of keys:  x < a b q < c d m ? c a  ->  c d a b."""
    number = min(NUM_PAIRS, (length - 1 - NUM_QUESTIONS) // 3)
    keys, values = _draw(rng, number), _draw(rng, number)
    asked = rng.permutation(number)[:NUM_QUESTIONS]
    question = [QUESTION, *(keys[i] for i in asked)]
    pieces = [[MARK, *pair] for pair in zip(keys, values, strict=True)]
    body, places = _scatter(rng, length - len(question), pieces)
    answer = _joined((keys[i], values[i]) for i in asked)
    return Text(body + question, answer, min(places[i] for i in asked), len(body))


def salient_copy(rng: np.random.Generator, length: int) -> Text:
    """Copies marked sentences in order:  . x q m < a b c . e x g < d e f  ->  a b c d e f."""
    sentences = [_draw(rng, SENTENCE - 1) for _ in range(3)]
    body, places = _sentences(rng, length, [[MARK, *x] for x in sentences])
    return Text(body, _joined(sentences), places[0], length)


def count(rng: np.random.Generator, length: int) -> Text:
    """Counts marks and votes of four symbols:  a < b a x < a q < b  ->  3 a."""
    marks = int(rng.integers(1, len(DIGITS) + 1))
    body = _filler(rng, length)
    favorite = rng.choice(VOTES)
    is_vote = rng.random(length) < 0.5
    votes = np.where(rng.random(length) < 0.25, favorite, rng.choice(VOTES, length))
    body = np.where(is_vote, votes, body)
    body[rng.choice(length, marks, replace=False)] = MARK
    winner, *others = _most_frequent(body)
    if others:
        body[rng.choice(np.flatnonzero((body != MARK) & (body != winner)))] = winner
    return Text(body.tolist(), [DIGITS[marks - 1], winner], 0, length)


def entity(rng: np.random.Generator, length: int) -> Text:
    """Follows a name to a second mention:  < a b x < c d q { d f m { b e ? a  ->  a b e."""
    number = min(NUM_CHAINS, (length - 2) // 6)
    names, aliases, values = (_draw(rng, number) for _ in range(3))
    chains = list(zip(names, aliases, values, strict=True))
    name, alias, value = chains[0]
    pieces = [[MARK, a, b] for a, b, _ in chains] + [[SECOND, b, c] for _, b, c in chains]
    order = rng.permutation(len(pieces))
    body, places = _scatter(rng, length - 2, [pieces[i] for i in order])
    mentions = [places[np.flatnonzero(order == i)[0]] for i in (0, number)]
    return Text([*body, QUESTION, name], [name, alias, value], min(mentions), max(mentions))


def query_focus(rng: np.random.Generator, length: int) -> Text:
    """Copies what a question at the start asks for:  ? 2 . x q m 1 a b c 2 d e f  ->  d e f; four
    topics of two sentences each."""
    number = min(NUM_TOPICS, (length - 2) // (2 * SENTENCE))
    asked = int(rng.integers(number))
    topics = rng.permutation([*range(number)] * 2)
    sentences = [(topic, _draw(rng, SENTENCE - 1)) for topic in topics]
    body, places = _sentences(rng, length - 2, [[DIGITS[topic], *x] for topic, x in sentences])
    right = [i for i, (topic, _) in enumerate(sentences) if topic == asked]
    answer = _joined(sentences[i][1] for i in right)
    return Text([QUESTION, DIGITS[asked], *body], answer, 0, places[right[-1]] + 2)


def redundancy(rng: np.random.Generator, length: int) -> Text:
    """Says each fact once, by first mention:  < a b x < c d q < a b m < c d  ->  a b c d."""
    facts = list(zip(_draw(rng, NUM_FACTS), _draw(rng, NUM_FACTS), strict=True))
    again = np.repeat(np.arange(NUM_FACTS), rng.integers(0, 4, NUM_FACTS))
    again = rng.permutation(again)[: length // 3 - NUM_FACTS]
    mentions = [int(i) for i in rng.permutation([*range(NUM_FACTS), *again])]
    body, places = _scatter(rng, length, [[MARK, *facts[i]] for i in mentions])
    answer = _joined(facts[i] for i in dict.fromkeys(mentions))
    return Text(body, answer, places[0], length)


def distractor(rng: np.random.Generator, length: int) -> Text:
    """Copies after the right pair of marks alone:  { < e f x < { a b q < < g h  ->  a b; spans of
    four, five look-alikes."""
    span = _draw(rng, 4)
    others = LOOK_ALIKES[: length // 6 - 1]
    pieces = [[MARK, SECOND, *span], *([*marks, *_draw(rng, 4)] for marks in others)]
    order = rng.permutation(len(pieces))
    body, places = _scatter(rng, length, [pieces[i] for i in order])
    return Text(body, span, places[int(np.flatnonzero(order == 0)[0])], length)


Task = Callable[[np.random.Generator, int], Text]
TASKS: dict[str, Task] = {
    "needle": needle,
    "multi_needle": multi_needle,
    "recall": recall,
    "salient_copy": salient_copy,
    "count": count,
    "entity": entity,
    "query_focus": query_focus,
    "redundancy": redundancy,
    "distractor": distractor,
}


def draw(name: str, rows: int, length: int, seed: int | Sequence[int]) -> Batch:
    """Draws texts of a task, the same ones for the same arguments.

    Args:
        name: of ``TASKS``.
        rows: number of texts.
        length: tokens of each, at least ``SHORTEST``.
        seed: of NumPy's generator.

    Raises:
        ValueError: a length that facts do not fit into.
    """
    if length < SHORTEST:
        raise ValueError(f"length is {length}; facts need {SHORTEST} tokens")
    rng = np.random.default_rng(seed)
    texts = [TASKS[name](rng, length - 1) for _ in range(rows)]
    symbol = TASK_SYMBOLS[list(TASKS).index(name)]
    return Batch(
        np.array([[symbol, *text.body] for text in texts], np.int32),
        np.array([text.answer for text in texts], np.int32),
        np.array([text.last - text.first for text in texts], np.int32),
    )


def spell(ids: Sequence[int]) -> str:
    """Returns ids as characters, letters for symbols and a capital for the task."""
    letters = "abcdefghijklmnopqrstuvwxyzABFGHIJKLOPTVW"
    names = _NAMES | {TASK_SYMBOLS[i]: "NMRSCEQUD"[i] for i in range(len(TASK_SYMBOLS))}
    names |= {DIGITS[i]: str(i + 1) for i in range(len(DIGITS))}
    names |= dict(zip(SYMBOLS, letters, strict=True))
    return " ".join(names[int(i)] for i in ids)


def _joined(parts: Iterable[Iterable[int]]) -> Ids:
    """Returns the tokens of all parts."""
    return list(chain.from_iterable(parts))


def _draw(rng: np.random.Generator, number: int) -> Ids:
    """Returns different symbols."""
    return (SYMBOLS.start + rng.permutation(len(SYMBOLS))[:number]).tolist()


def _filler(rng: np.random.Generator, length: int) -> np.ndarray:
    """Returns symbols, int64 [length]."""
    return rng.integers(SYMBOLS.start, SYMBOLS.stop, length)


def _scatter(rng: np.random.Generator, length: int, pieces: Sequence[Ids]) -> tuple[Ids, list[int]]:
    """Returns filler of ``length`` tokens with the pieces in this order at random places, which
    are returned, too."""
    sizes = [len(piece) for piece in pieces]
    gaps = np.sort(rng.integers(0, length - sum(sizes) + 1, len(pieces)))
    places = (gaps + np.cumsum([0, *sizes[:-1]])).tolist()
    body = _filler(rng, length)
    for place, piece in zip(places, pieces, strict=True):
        body[place : place + len(piece)] = piece
    return body.tolist(), places


def _sentences(
    rng: np.random.Generator, length: int, sentences: Sequence[Ids]
) -> tuple[Ids, list[int]]:
    """Returns sentences that begin with DOT, but for those given, at random places in this order;
    a rest that is shorter than a sentence is filler."""
    body = _filler(rng, length)
    number = length // SENTENCE
    body[: number * SENTENCE : SENTENCE] = DOT
    places = (SENTENCE * np.sort(rng.choice(number, len(sentences), replace=False))).tolist()
    for place, sentence in zip(places, sentences, strict=True):
        body[place : place + SENTENCE] = sentence
    return body.tolist(), places


def _most_frequent(body: np.ndarray) -> Ids:
    """Returns the vote that stands most often, or all of them that do."""
    counts = [(body == vote).sum() for vote in VOTES]
    return [vote for vote, n in zip(VOTES, counts, strict=True) if n == max(counts)]
