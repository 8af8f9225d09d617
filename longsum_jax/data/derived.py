"""Documents with labels that rules make of documents without: claims and cloze questions.

Each claim or question is a document of its own, so that it is read, batched and evaluated like one
whose label people gave.
"""

from collections.abc import Iterable, Iterator

from longsum_jax.data.pieces import cut_text
from longsum_jax.text.claims import ClaimOptions, claims_of
from longsum_jax.text.cloze import ClozeOptions, cloze_questions, question_context
from longsum_jax.text.documents import Document
from longsum_jax.text.entities import find_entities
from longsum_jax.text.sentences import split_sentences


def with_claims(docs: Iterable[Document], options: ClaimOptions) -> Iterator[Document]:
    """Yields, for every claim about a piece of a document, the piece with the claim as query.

    Ids are ``<id>#<n>``, labels those of ``text.claims``.
    """
    for document in docs:
        pieces = cut_text(document.document, options.piece_words)
        claims = [(piece, claim) for piece in pieces for claim in claims_of(piece, options)]
        for number, (piece, claim) in enumerate(claims):
            name = f"{document.id}#{number}"
            yield Document(name, piece, summary=None, query=claim.text, label=claim.label)


def with_cloze_questions(docs: Iterable[Document], options: ClozeOptions) -> Iterator[Document]:
    """Yields, for every cloze question on a summary, the context of the answer with the question.

    Questions whose answer does not stand in the context word for word are left out (Huang et al.
    2021, section 5). Ids are ``<id>#<n>``, the label is the answer.
    """
    for document in docs:
        summary = document.only_summary
        found = find_entities(split_sentences(summary))
        entities = [entity.text for sentence in found for entity in sentence]
        questions = cloze_questions(summary, entities, options)
        context = question_context(document.document, summary, options.context_words)
        for number, (question, answer) in enumerate(questions):
            if answer in context:
                name = f"{document.id}#{number}"
                yield Document(name, context, summary=None, query=question, label=answer)
