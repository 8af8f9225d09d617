"""APES: questions about the reference that a model can answer from the summary."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from longsum_jax.data.derived import ClozeOptions
from longsum_jax.evaluation.answers import Answers
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import ModelMetric, Requirement
from longsum_jax.experimental.metrics.taggers import (
    describe_tagger,
    entity_tagger,
    tag,
)
from longsum_jax.experimental.tasks.cloze import (
    ClozeQuestion,
    cloze_questions,
    question_context,
)
from longsum_jax.text.sentences import splitter_name

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

EXAMPLES_AT_ONCE = 64


class _ReferenceQuestions(NamedTuple):
    """The questions about a reference, and the part of the document to answer them from."""

    questions: Sequence[ClozeQuestion]
    context: str


class Apes(ModelMetric):
    """Question answering from the summary, compared with the reference and the document.

    Each entity in a reference sentence becomes a cloze question, which a model
    answers from the summary. apes is the F1 of these answers with the entities
    (Eyal et al., 2019), apes_src the F1 with the same model's answers from the
    document (Huang et al., 2021, section 5), from 0 to 100. Only the part of
    the document with the highest recall of the reference is read. Questions
    whose answer is not in that part count as well; they are only excluded in
    training. Values of a data set are computed over all its questions together.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of APES.

        Attributes:
            tagger: tagger of the entities, see ``taggers.entity_tagger``.
            context_words, question_words: numbers of words, see
                ``data.derived.ClozeOptions``.
        """

        tagger: str = "rules"
        context_words: int = ClozeOptions.context_words
        question_words: int = ClozeOptions.question_words

        @property
        def cloze(self) -> ClozeOptions:
            """The options for generating questions."""
            return ClozeOptions(self.context_words, self.question_words)

    name = "apes"
    # The last two columns are sums of the questions' F1, from 0 to the number
    # of questions.
    columns = ("apes", "apes_src", "questions", "answered", "answered_src")
    requirement: ClassVar = Requirement(
        "a model that answers questions, as configs/apes.py trains it",
        heads=("question_answering",),
    )
    options: Options

    def __init__(
        self, options: Options | None = None, model: "LoadedModel | None" = None
    ) -> None:
        super().__init__(options, model)
        self._cloze = self.options.cloze
        self._tagger = entity_tagger(self.options.tagger, "metrics.apes")

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        entities = tag(self._tagger, references)
        scores: list[Scores] = []
        for start in range(0, len(predictions), EXAMPLES_AT_ONCE):
            some = slice(start, start + EXAMPLES_AT_ONCE)
            rows = zip(
                references[some], entities[some], sources[some], strict=True
            )
            questions = [self._questions(*row) for row in rows]
            scores += self._scores(model, predictions[some], questions)
        return scores

    def from_means(self, means: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **means,
            **_shares(
                means["questions"], means["answered"], means["answered_src"]
            ),
        }

    def describe(self) -> dict[str, Any]:
        tagged = describe_tagger("apes", self.options.tagger, self._tagger)
        signature = (
            f"apes|model:{self.user_model.label}|tagger:{tagged['tagger']}"
            f"|context:{self.options.context_words}|split:{splitter_name().replace(' ', '-')}"
        )
        return super().describe() | tagged | {"signature": signature}

    def _questions(
        self, reference: str, entities: Sequence[str], source: str
    ) -> _ReferenceQuestions:
        context = question_context(source, reference, self._cloze.context_words)
        return _ReferenceQuestions(
            cloze_questions(reference, entities, self._cloze), context
        )

    def _scores(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        questions: Sequence[_ReferenceQuestions],
    ) -> list[Scores]:
        contexts = [entry.context for entry in questions]
        from_summaries = self._answers(model, questions, predictions)
        from_sources = self._answers(model, questions, contexts)
        scores = []
        for entry, answers, of_source in zip(
            questions, from_summaries, from_sources, strict=True
        ):
            answered = _sum_of_f1(
                answers, [question.answer for question in entry.questions]
            )
            answered_src = _sum_of_f1(answers, of_source)
            count = float(len(entry.questions))
            sums = {
                "questions": count,
                "answered": answered,
                "answered_src": answered_src,
            }
            shares = _shares(count, answered, answered_src)
            scores.append(
                {
                    name: float(value)
                    for name, value in {**shares, **sums}.items()
                }
            )
        return scores

    def _answers(
        self,
        model: "LoadedModel",
        entries: Sequence[_ReferenceQuestions],
        texts: Sequence[str],
    ) -> Iterator[list[str]]:
        """Yields the answers to the questions from each text; empty answers if it is blank."""
        # A local import, because jax takes a second to import.
        from longsum_jax.inference.answers import answer

        questions, documents = [], []
        for entry, text in zip(entries, texts, strict=True):
            if text.strip():
                questions += [question.question for question in entry.questions]
                documents += [text] * len(entry.questions)
        answers = iter(
            answer(
                model,
                questions,
                documents,
                batch_size=self.options.batch_size,
            )
        )
        for entry, text in zip(entries, texts, strict=True):
            if text.strip():
                yield [next(answers).text for _ in entry.questions]
            else:
                yield [""] * len(entry.questions)


def _sum_of_f1(answers: Sequence[str], right: Sequence[str]) -> float:
    scores = Answers().score(answers, right, [""] * len(answers))
    return sum(score["answer_f1"] for score in scores) / 100


def _shares(count: Any, answered: Any, answered_src: Any) -> dict[str, Any]:
    """Returns percentages of questions; 0 without questions."""
    divisor = np.where(count > 0, count, 1)
    return {
        "apes": 100 * answered / divisor,
        "apes_src": 100 * answered_src / divisor,
    }
