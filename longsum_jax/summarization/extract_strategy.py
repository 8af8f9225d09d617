"""Strategy "extract": the model reads the best sentences of the built-in ranker."""

import itertools

import numpy as np

from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import builtin_ranker, without_fragments
from longsum_jax.ranking.selection import take_sentences
from longsum_jax.summarization.strategies import Steps, StrategyInput, direct
from longsum_jax.text.joining import BLANK_LINE
from longsum_jax.text.sentences import join_wrapped_lines


def extract(source: StrategyInput) -> Steps:
    """Reads as many sentences as fit into one input, selected by the built-in ranker."""
    if len(source.document.ids) <= source.reader.longest_input:
        return (yield from direct(source))
    # One call of the model; the sentences keep the document's order.
    piece = source.piece(_best_sentences(source), source.final_tokens)
    [summary] = yield [source.final(piece)]
    return source.last_draft(summary)._replace(
        read_tokens=len(piece.document.ids)
    )


def _best_sentences(source: StrategyInput) -> str:
    """Returns the highest-ranked sentences that fit into one input, in document order."""
    text = BLANK_LINE.join(source.parts)
    query = source.request.query
    parsed = parse_document(join_wrapped_lines(text))
    scores = without_fragments(parsed, builtin_ranker().scores(parsed, query))
    lengths = map(len, source.reader.tokenizer.encode_batch(parsed.sentences))
    costs = np.array([length + 1 for length in lengths])  # plus a space
    selected = take_sentences(parsed, scores, costs, source.room)
    # Find the document of each sentence, to put separators back between the
    # documents.
    ends = np.cumsum([len(part) + len(BLANK_LINE) for part in source.parts])
    # [sentences], the number of the part that contains each one
    part_of = np.searchsorted(ends, parsed.starts, side="right")
    groups = itertools.groupby(selected, lambda sentence: part_of[sentence])
    parts = []
    for _, group in groups:
        sentences = [parsed.sentences[sentence] for sentence in group]
        parts.append(" ".join(sentences))
    best = source.reader.separator.join(parts)
    # Joined sentences may have more tokens than the sum; then keep the first
    # segment.
    if source.is_input(best):
        return best
    return source.cut([best])[0]
