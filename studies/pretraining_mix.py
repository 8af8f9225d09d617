"""A mix of tasks that teach a model to use its source, made of any documents.

    python studies/pretraining_mix.py --data=novels/train.jsonl.xz,papers/train.jsonl.xz \
        --tasks=copy --words=24 --examples=60000 --out=copy.jsonl.gz

A small model that is trained on summaries alone learns to write what summaries are like and ignores
what it reads. Each of these tasks can only be done by reading, and says in its first words what is
to be written:

    copy      the words of the text, which are in random order
    lead      the first sentences
    marked    the sentences between two marks, in their order
    find      the sentence that begins with some words
    mend      the words that were taken out of the text
    gap       the sentences that say most of the others, which are taken out (LOCOST, section 5.2)
    rank      the sentences that the built-in ranker would choose

--tasks names some of them. Begin with `copy` alone, of 24 words: the only way to less loss is to
look at the source, while texts can also be guessed at. It takes about a thousand steps of 64 rows,
in the first half of which nothing seems to happen; above a learning rate of 1e-3, or with few rows,
it may never. Then short pieces of all tasks, and longer ones after them: one file for each length,
and each training begins with the last one's model. `configs/locost_small.py` has the commands.
Long texts are read as extracts of them: --pieces=extract, with --tasks=marked,lead,rank and
--most_copied=0.5, teaches to copy hundreds of words out of what the ranker chose.

A row has `id`, which names its task, `document` and `summary`. A document is a piece of --words
words of one text, at whole sentences; texts come in turns from the files of --data, whose rows have
`document` or `text`. The same flags give the same rows. With several cores, write --part=0/4
to --part=3/4 at once, each to a file of its own, and join them with cat.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.atomic import open_text
from longsum_jax.errors import InputError
from longsum_jax.ranking.ranker import builtin_ranker
from longsum_jax.text.documents import read_json_lines
from longsum_jax.text.gap_sentences import GapSentenceOptions, gap_sentence_example
from longsum_jax.text.lengths import Length
from longsum_jax.text.sentences import join_wrapped_lines, split_sentences

Sentences = Sequence[str]
Example = tuple[str, str]  # source and target
OPEN, CLOSE, HOLE = "<<", ">>", "_"
MIN_COPIED = 3  # sentences that a target may always have, however few --most_copied gives
MOST_COPIED = 0.25
MIN_SENTENCES = 3  # of a piece, where tasks choose among them
PIECES_OF_TEXT = 20  # taken before the next text, at most
EXTRACTS_OF_TEXT = 4
MOST_FRUITLESS = 1000  # texts without a row, one after another, before it is said


def copy(sentences: Sentences, rng: np.random.Generator) -> Example:
    """Asks for all words, in a random order that only the source shows."""
    words = " ".join(rng.permutation(" ".join(sentences).split()))
    return f"copy: {words}", words


def lead(sentences: Sentences, rng: np.random.Generator, most: float = MOST_COPIED) -> Example:
    """Asks for the first sentences."""
    count = _some(sentences, rng, most)
    return f"lead {count}: {' '.join(sentences)}", " ".join(sentences[:count])


def marked(sentences: Sentences, rng: np.random.Generator, most: float = MOST_COPIED) -> Example:
    """Asks for sentences between marks."""
    selected = np.sort(rng.choice(len(sentences), _some(sentences, rng, most), replace=False))
    shown = list(sentences)
    for place in selected:
        shown[place] = f"{OPEN} {shown[place]} {CLOSE}"
    return f"marked: {' '.join(shown)}", " ".join(sentences[place] for place in selected)


def find(sentences: Sentences, rng: np.random.Generator) -> Example:
    """Asks for the sentence that begins with some words."""
    sentence = sentences[rng.integers(len(sentences))]
    beginning = " ".join(sentence.split()[: rng.integers(2, 5)])
    return f"find {beginning}: {' '.join(sentences)}", sentence


def mend(sentences: Sentences, rng: np.random.Generator) -> Example | None:
    """Asks for the words that are missing: a seventh of them, three at a time."""
    words = " ".join(sentences).split()
    starts = np.flatnonzero(rng.random(len(words) // 3) < 1 / 7) * 3
    if not len(starts):
        return None
    missing = []
    for start in starts:
        missing.append(" ".join(words[start : start + 3]))
        words[start : start + 3] = [HOLE, "", ""]
    shown = " ".join(word for word in words if word)
    return f"mend: {shown}", f" {HOLE} ".join(missing)


def gap(sentences: Sentences, rng: np.random.Generator) -> Example | None:
    """Asks for sentences that were taken out, those that say most of the others."""
    example = gap_sentence_example(sentences, GapSentenceOptions(), rng)
    return None if example is None else (f"gap: {example.source}", example.target)


def rank(
    sentences: Sentences, rng: np.random.Generator, most: float = MOST_COPIED
) -> Example | None:
    """Asks for what the built-in ranker chooses."""
    text = "\n".join(sentences)
    expected = Length(_some(sentences, rng, most), "sentences")
    selected = builtin_ranker().summarize(text, length=expected)
    return (f"summarize: {' '.join(sentences)}", selected.text) if selected.text else None


def _some(sentences: Sentences, rng: np.random.Generator, most: float) -> int:
    highest = min(max(MIN_COPIED, int(most * len(sentences))), len(sentences))
    return int(rng.integers(1, highest + 1))


class Task(NamedTuple):
    """A task: its share, what makes an example of the sentences of a piece, and whether that takes
    the largest share of them that a target has.
    """

    share: float
    make: Callable[..., Example | None]
    takes_most: bool = False


TASKS = {
    "copy": Task(0.1, copy),
    "lead": Task(0.1, lead, takes_most=True),
    "marked": Task(0.2, marked, takes_most=True),
    "find": Task(0.2, find),
    "mend": Task(0.1, mend),
    "gap": Task(0.1, gap),
    "rank": Task(0.2, rank, takes_most=True),
}


def texts_of(path: str, part: int, parts: int) -> Iterator[str]:
    """Yields every ``parts``-th text of a file of JSON lines, from a number on, again and again."""
    while True:
        rows = read_json_lines(path, document_key="document|text", require_summary=False)
        row = None
        for row in islice(rows, part, None, parts):
            yield row.document
        if row is None:
            raise InputError(f"{path} has no text for part {part} of {parts}; ask for fewer parts")


def pieces_of(
    sentences: Sentences, words: int, rng: np.random.Generator, *, least: int, most: int
) -> Iterator[Sentences]:
    """Yields some pieces of a text at whole sentences, at random places.

    Args:
        sentences: of the text.
        words: of a piece at most.
        rng: draws the places.
        least: fewest sentences of a piece.
        most: most pieces.
    """
    counts = np.array([len(sentence.split()) for sentence in sentences])
    total = int(counts.sum())
    ends = np.cumsum(counts)
    for _ in range(min(most, max(1, total // words))):
        start = int(rng.integers(len(sentences)))
        end = int(np.searchsorted(ends, ends[start] - counts[start] + words, side="right"))
        if end - start >= least:
            yield sentences[start:end]


def extracts_of(
    text: str, words: int, rng: np.random.Generator, *, least: int
) -> Iterator[Sentences]:
    """Yields what the built-in ranker chooses of a text, of several lengths.

    Args:
        text: of any length.
        words: of an extract at most; a third of them at least.
        rng: draws the lengths.
        least: sentences of an extract.
    """
    for _ in range(EXTRACTS_OF_TEXT):
        expected = int(rng.integers(words // 3, words + 1))
        extract = builtin_ranker().summarize(text, length=Length(expected, "words"))
        if len(extract.statements) >= least:
            yield [statement.text for statement in extract.statements]


def examples(args: argparse.Namespace, part: int, parts: int) -> Iterator[dict[str, str]]:
    """Yields rows of one of the parts of the texts, without an end.

    Raises:
        InputError: many texts, one after another, that give no row.
    """
    rng = np.random.default_rng((args.seed, part))
    tasks = args.tasks.split(",")
    shares = np.array([TASKS[name].share for name in tasks])
    shares /= shares.sum()
    least = 1 if tasks == ["copy"] else MIN_SENTENCES
    sources = [texts_of(path, part, parts) for path in args.data.split(",")]
    number, fruitless = 0, 0
    while fruitless < MOST_FRUITLESS:
        for source in sources:
            before = number
            for piece in _pieces(next(source), args, rng, least):
                name = tasks[rng.choice(len(tasks), p=shares)]
                options = {"most": args.most_copied} if TASKS[name].takes_most else {}
                example = TASKS[name].make(piece, rng, **options)
                if example is not None:
                    document, summary = example
                    row_id = f"{name}-{part}-{number}"
                    yield {"id": row_id, "document": document, "summary": summary}
                    number += 1
            fruitless = fruitless + 1 if number == before else 0
    raise InputError(
        f"{fruitless:,} texts, one after another, gave no row; pieces of {args.words} words need "
        f"{least} sentences: give longer texts, or other --words"
    )


def _pieces(
    text: str, args: argparse.Namespace, rng: np.random.Generator, least: int
) -> Iterator[Sentences]:
    if args.pieces == "extract":
        return extracts_of(text, args.words, rng, least=least)
    sentences = split_sentences(join_wrapped_lines(text))
    return pieces_of(sentences, args.words, rng, least=least, most=PIECES_OF_TEXT)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="files of JSON lines, comma-separated")
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated; default: all")
    parser.add_argument("--words", type=int, default=100, help="of a piece; default: 100")
    parser.add_argument(
        "--pieces",
        choices=("passage", "extract"),
        default="passage",
        help="sentences that follow each other, or those that the ranker chooses of a whole text, "
        "a third of --words to all of them; default: passage",
    )
    parser.add_argument(
        "--most_copied",
        type=float,
        default=MOST_COPIED,
        help=f"of a piece's sentences in a target, {MIN_COPIED} or more; default: {MOST_COPIED}",
    )
    parser.add_argument("--examples", type=int, default=100_000, help="rows; default: 100,000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part",
        default="0/1",
        metavar="I/N",
        help="from every N-th text of each file alone, to share the work; default: 0/1",
    )
    parser.add_argument("--out", required=True, help="file to write, also .gz or .xz")
    args = parser.parse_args()
    tasks = args.tasks.split(",")
    unknown = [name for name in tasks if name not in TASKS]
    if unknown:
        parser.error(f'--tasks: "{unknown[0]}" is none of {", ".join(TASKS)}')
    if not 0 < args.most_copied <= 1:
        parser.error(f"--most_copied: {args.most_copied} is no share; give 1 at most, and above 0")
    if not (match := re.fullmatch(r"(\d+)/(\d+)", args.part)) or int(match[1]) >= int(match[2]):
        parser.error(f'--part: "{args.part}" is no I/N with I from 0 to N - 1')
    part, parts = map(int, match.groups())
    rows = examples(args, part, parts)
    try:
        with open_text(Path(args.out)) as file:
            for number, row in zip(range(args.examples), rows, strict=False):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                if number % 10_000 == 0:
                    print(f"{number:,} rows", file=sys.stderr)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
