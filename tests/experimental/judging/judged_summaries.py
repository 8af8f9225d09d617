"""Documents, summaries and filled sheets for tests of judgements."""

import csv
import io

import numpy as np

from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.experimental.judging.judging import make_key

NAMES = [f"doc{number}" for number in range(30)]
PAIRS = {
    name: Pair(name, f"Text of {number}. </script>", f"Reference & {number}.")
    for number, name in enumerate(NAMES)
}
# Three sentences, two, and one or (every fifth summary) none.
SYSTEMS = {
    "lead.jsonl": lambda number: f'The {number} first, "so". It is. It was.',
    "ours.jsonl": lambda number: f"<b>Second {number} {{{{prompt}}}}.\n\rIt sat.",
    "best.jsonl": lambda number: f"Third {number}." if number % 5 else "",
}
SYSTEMS = {
    system: {name: Prediction(text(number)) for number, name in enumerate(NAMES)}
    for system, text in SYSTEMS.items()
}


def key_of(protocol="awesome", **options):
    options = {"documents": 5, "seed": 1} | options
    return make_key(protocol, list(PAIRS.values()), SYSTEMS, **options)


def sheet(key, fill, judges=(0, 1, 2), delimiter=","):
    """A filled sheet: ``fill(item, sentence, question)`` for every cell that is asked."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    questions = (*key.of_sentences, *key.of_summaries)
    writer.writerow(["item", "sentence", *(question.name for question in questions)])
    for name, item in key.items.items():
        if item.judge not in judges:
            continue
        for sentence in [*range(1, item.sentences + 1), 0]:
            asked = key.of_sentences if sentence else key.of_summaries
            cells = [
                fill(item, sentence, question) if question in asked else "-"
                for question in questions
            ]
            writer.writerow([name, sentence or "", *cells])
    return text.getvalue()


def random_answers(key):
    """An answer to every question; ranks contain 1."""
    generator = np.random.default_rng(5)
    answers = {}
    for item in key.items.values():
        for sentence in range(item.sentences + 1):
            for question in key.of_sentences if sentence else key.of_summaries:
                answer = int(generator.choice(question.answers))
                if question.kind == "rank" and item.system == "best.jsonl":
                    answer = 1
                answers[item, sentence, question.name] = answer
    return lambda item, sentence, question: answers[item, sentence, question.name]
