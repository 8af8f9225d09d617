"""Extractive summaries without a neural model: sentences of the document, chosen by a ranker."""

from collections.abc import Iterable, Iterator

from longsum_jax.errors import InputError
from longsum_jax.ranking.ranker import DEFAULT_LENGTH, Ranker, builtin_ranker
from longsum_jax.summarization.stream import Result
from longsum_jax.summarization.summary import (
    Request,
    Summary,
    check_no_file_name,
    check_request,
    check_text,
)
from longsum_jax.text.coverage import statement_coverage
from longsum_jax.text.lengths import Length, parse_length
from longsum_jax.text.statements import NO_OUTLINE, Outline


def summarize(
    text: str,
    *,
    length: str | int | Length = DEFAULT_LENGTH,
    query: str | None = None,
    outline: Outline | None = None,
) -> Summary:
    """Summarizes a document by its most important sentences, chosen by the built-in ranker.

    No neural model is loaded and nothing is downloaded. For abstractive
    summaries, use ``longsum_jax.load`` and ``Model.summarize``.

    Args:
        text: document of any length. The ranker was trained on English.
        length: length of the summary: "auto" (150 words for documents of up to
            1,000 words, 340 for 10,000, 600 for books), "short" (75 words),
            "medium" (150), "long" (400), "250 words", "7 sentences" or "5%" of
            the document's words; a number counts words. The summary is not
            longer, unless every sentence of the document is.
        query: topic of the summary; None for the whole document.
        outline: positions of headings and pages in ``text``, so that
            ``sources`` can name them (``Document.outline`` of
            ``readers.read_documents``); None to detect headings.

    Returns:
        The summary. Its ``text`` has one sentence per line; in summaries of
        long texts, empty lines and lines with the chapter in brackets separate
        the passages. Its ``sources`` contain the location of each sentence.

    Raises:
        InputError: an empty document, a file name instead of a text, a blank
            query, or an invalid length.
    """
    outline = NO_OUTLINE if outline is None else outline
    request = Request(text, "the document", query, outline)
    check_text(request)
    check_no_file_name(request)
    return _summary(request, builtin_ranker(), length)


def summarize_stream(
    requests: Iterable[Request], *, length: str | int | Length = DEFAULT_LENGTH
) -> Iterator[list[Result]]:
    """Yields the index of every document with its summary, or with its error.

    Args:
        requests: documents, as for ``Model.stream``.
        length: length of the summaries, as for ``summarize``.

    Raises:
        InputError: an invalid length, or a text instead of a request.
    """
    return _results(requests, builtin_ranker(), parse_length(length))


def _results(
    requests: Iterable[Request], ranker: Ranker, length: Length
) -> Iterator[list[Result]]:
    for index, request in enumerate(map(check_request, requests)):
        try:
            yield [(index, _summary(request, ranker, length))]
        except InputError as error:
            yield [(index, InputError(f"{request.name}: {error}"))]


def _summary(
    request: Request, ranker: Ranker, length: str | int | Length
) -> Summary:
    extract = ranker.summarize(
        request.text,
        length=length,
        query=request.query,
        outline=request.outline,
    )
    return Summary(
        text=extract.text,
        document_tokens=extract.document_words,
        read_tokens=extract.document_words,
        dropped_tokens=0,
        summary_tokens=extract.summary_words,
        ended="eos",
        unit="words",
        strategy="extract",
        coverage=statement_coverage(request.text, extract.statements),
        request=request,
        statements=extract.statements,
    )
