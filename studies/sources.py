"""What sentences of summaries rest on: methods beside known sources, and what flags find.

    python studies/sources.py --data=DATA --out=sources.json

DATA has a folder for each data set with test.jsonl, as `configs/builtin_extractor.py` reads it;
LONGSUM_JAX_DATA names one, too. Without it, --documents documents are drawn here, and what needs
references is left out. Of each data set the first --documents are read (a fifth of them of crd3).

"methods": sentences are drawn from a document and rewritten, so that their sources are known.

- "drop" leaves a third of the words out;
- "replace" puts words of the document in place of a third of them;
- "shorten" keeps one half, the first or the second;
- "merge" joins two sentences by "and";
- "all" merges two, of which a quarter of the words is left out and a tenth replaced.

Methods name sentences for each: "alignment" is ours (`longsum_jax.text.alignment`), "greedy ROUGE"
adds sentences as long as ROUGE-1 plus ROUGE-2 grows, "nearest by ROUGE-1" and "nearest by ROUGE-2"
name one. With --model=DIR, "attention" is that model's cross-attention; it must read the documents
in one piece. Precision is the share of the named sentences that are right, recall that of the known
sentences that are named, means over rewritten sentences. "settings" rows vary what alignment is
allowed.

"thresholds": the share of reference sentences that reach a support, beside their own document and
beside the next one of the data set, and the area under the curve (AUC) between the two.

"corrupted": sentences are changed by the rules of FactCC (`experimental.tasks.claims`), with what
stands elsewhere in the document ("same"), or in the next one ("other"). Claims are sentences of the
document with FactCC's noise, and those of references. AUC says how often a changed sentence looks
worse than an unchanged one, by one less the support, by the number of flags, by that of names,
numbers and dates that the sources lack, and by the sum of the first two. "flagged" rows count
unchanged sentences with flags.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
import numpy as np
from common import print_table, write_report
from input import synthetic_documents
from scipy.stats import rankdata

from longsum_jax.configs import builtin_extractor as recipe
from longsum_jax.experimental.tasks.claims import (
    CORRECT,
    TRANSFORMATIONS,
    Claim,
    ClaimOptions,
    ClaimSentence,
    add_noise,
)
from longsum_jax.readers.document import PARAGRAPH
from longsum_jax.summarization.attended import attended_sources
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.text.alignment import MAX_SOURCES, MIN_GAIN, SUPPORTED, Support, align
from longsum_jax.text.entities import Entity, find_entities
from longsum_jax.text.ngrams import count_ngrams, unicode_words
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.support import PlacedSentences, find_flags

DATA_SETS = ("scisummnet", "techspecs", "qmsum", "sumpubmed", "crd3")
FEWER = {"crd3": 5}  # times fewer documents, which are long
PER_RULE = 6  # sentences of a document
WORDS = range(8, 61)  # of a sentence that is drawn
NOISE = ClaimOptions()
THRESHOLDS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
GAINS = (0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25)
SETTINGS = [(sources, gain) for sources in (1, 2, 3, 5) for gain in GAINS]

Rng = np.random.Generator
Row = dict[str, Any]


class Text(NamedTuple):
    """A document cut into sentences, and the sentences of its reference."""

    sentences: list[str]
    reference: list[str]


class Rewritten(NamedTuple):
    """A sentence made of others, and the numbers of these."""

    text: str
    known: tuple[int, ...]


def read_texts(data: Path | None, name: str, count: int) -> list[Text]:
    """Returns the first documents of the test split of a data set, or drawn ones."""
    if data is None:
        documents = [_named(text, i) for i, text in enumerate(synthetic_documents(count, 60, 0))]
        return [Text(PlacedSentences.of(text).sentences, []) for text in documents]
    rows = recipe.documents(data, name, "test")
    result: dict[str, Text] = {}
    for row in rows:
        if len(result) == count:
            break
        if row.document not in result:
            sentences = PlacedSentences.of(row.document).sentences
            result[row.document] = Text(sentences, split_sentences(row.summary))
    return list(result.values())


def _named(text: str, number: int) -> str:
    """Returns a drawn text with a name, a number and a verb in every sentence."""
    lines = split_sentences(text)
    return " ".join(
        f"Then Mr. Aba{chr(97 + (i + number) % 26)} was with {i * 7 + number} of "
        f"{line[0].lower()}{line[1:]}"
        for i, line in enumerate(lines)
    )


# Rewriting


def drop(words: Sequence[str], share: float, rng: Rng) -> list[str]:
    """Leaves a share of the words out."""
    retained = np.sort(rng.permutation(len(words))[round(share * len(words)) :])
    return [words[i] for i in retained]


def replace(words: Sequence[str], share: float, others: Sequence[str], rng: Rng) -> list[str]:
    """Puts other words in place of a share of them."""
    changed = list(words)
    for i in rng.permutation(len(words))[: round(share * len(words))]:
        changed[i] = others[rng.integers(len(others))]
    return changed


def shorten(words: Sequence[str], rng: Rng) -> list[str]:
    """Keeps the first or the second half."""
    middle = len(words) // 2
    return list(words[:middle] if rng.random() < 0.5 else words[middle:])


def rewrite(sentences: Sequence[str], rng: Rng) -> dict[str, list[Rewritten]]:
    """Returns sentences of a document rewritten by each rule."""
    drawn = _candidates(sentences)
    others = [word for sentence in sentences for word in sentence.split()]
    if len(drawn) < 2:
        return {}

    def words(number: int) -> list[str]:
        return sentences[number].rstrip(".").split()

    def one(change: Callable[[list[str]], list[str]]) -> Rewritten:
        number = int(rng.choice(drawn))
        return Rewritten(" ".join(change(words(number))) + ".", (number,))

    def two(change: Callable[[list[str]], list[str]]) -> Rewritten:
        pair = tuple(map(int, rng.choice(drawn, 2, replace=False)))
        first, second = (" ".join(change(words(number))) for number in pair)
        return Rewritten(f"{first}, and {second}.", pair)

    rules: Mapping[str, Callable[[], Rewritten]] = {
        "drop": lambda: one(lambda old: drop(old, 1 / 3, rng)),
        "replace": lambda: one(lambda old: replace(old, 1 / 3, others, rng)),
        "shorten": lambda: one(lambda old: shorten(old, rng)),
        "merge": lambda: two(list),
        "all": lambda: two(lambda old: replace(drop(old, 1 / 4, rng), 1 / 10, others, rng)),
    }
    return {rule: [make() for _ in range(PER_RULE)] for rule, make in rules.items()}


def _candidates(sentences: Sequence[str]) -> list[int]:
    """Returns sentences of a common length whose words no other sentence has in this order."""
    seen: dict[tuple[str, ...], list[int]] = {}
    for number, sentence in enumerate(sentences):
        seen.setdefault(tuple(unicode_words(sentence)), []).append(number)
    result = [numbers[0] for words, numbers in seen.items() if len(numbers) == 1]
    return [number for number in result if len(sentences[number].split()) in WORDS]


# Methods

Method = Callable[[Sequence[str], Sequence[str]], list[list[int]]]


def alignment(written: Sequence[str], sentences: Sequence[str]) -> list[list[int]]:
    """Names the sentences that ``align`` finds."""
    return [result.indices for result in align(written, sentences)]


def greedy_rouge(written: Sequence[str], sentences: Sequence[str]) -> list[list[int]]:
    """Names the sentences of the greedy oracle."""
    return [greedy_oracle(sentences, sentence) for sentence in written]


def nearest_by_rouge(size: int) -> Method:
    """Returns a method that names the sentence with the best F1 of n-grams."""

    def method(written: Sequence[str], sentences: Sequence[str]) -> list[list[int]]:
        result = []
        for sentence in written:
            held, expected = count_ngrams(sentences, [sentence], size, tokenize=unicode_words)
            common = np.minimum(held.counts, expected.dense()[0][held.ngram])
            hits = np.bincount(held.text, common, len(sentences))
            f1 = 2 * hits / np.maximum(held.total + expected.total.sum(), 1)
            result.append([int(f1.argmax())] if hits.any() else [])
        return result

    return method


def by_attention(model: Model) -> Method:
    """Returns a method that names the sentences that a model attends to."""

    def method(written: Sequence[str], sentences: Sequence[str]) -> list[list[int]]:
        named = []
        for start in range(0, len(written), PER_RULE):
            named += _attended(model, written[start : start + PER_RULE], sentences)
        return named

    return method


def _attended(model: Model, written: Sequence[str], sentences: Sequence[str]) -> list[list[int]]:
    request = Request(PARAGRAPH.join(sentences), "document", None)
    summary = Summary(PARAGRAPH.join(written), 0, 0, 0, 0, "eos").of(request)
    named: list[list[int]] = [[] for _ in written]
    for statement in attended_sources(model, summary):
        # The splitter may see several sentences in one.
        result = named[_owner(statement.start, written)]
        for source in statement.sources:
            number = _owner(source.start, sentences)
            result += [number] if number not in result else []
    return named


def _owner(place: int, texts: Sequence[str]) -> int:
    """Returns the number of the text that holds a place of all of them, joined."""
    ends = np.cumsum([len(text) + len(PARAGRAPH) for text in texts])
    return int(np.searchsorted(ends, place, side="right"))


METHODS: Mapping[str, Method] = {
    "alignment": alignment,
    "greedy ROUGE": greedy_rouge,
    "nearest by ROUGE-1": nearest_by_rouge(1),
    "nearest by ROUGE-2": nearest_by_rouge(2),
}


def agreement(named: Sequence[int], known: Sequence[int]) -> tuple[float, float]:
    """Returns precision and recall; nothing that is named has a precision of 0."""
    right = len(set(named) & set(known))
    return right / max(len(named), 1), right / len(known)


def method_rows(
    name: str, texts: Sequence[Text], seed: int, methods: Mapping[str, Method] = METHODS
) -> list[Row]:
    """Returns how well each method names the sources of rewritten sentences."""
    rng = np.random.default_rng(seed)
    result: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for text in texts:
        made = rewrite(text.sentences, rng)
        labelled = [(rule, each) for rule, some in made.items() for each in some]
        written = [each.text for _, each in labelled]
        named = {
            ("methods", *key): result for key, result in _named_by(written, text, methods).items()
        }
        for key, of_method in named.items():
            for (rule, each), numbers in zip(labelled, of_method, strict=True):
                result.setdefault((rule, *key), []).append(agreement(numbers, each.known))
    rows = []
    for (rule, _, *key), values in result.items():
        precision, recall = np.mean(values, 0).tolist()
        f1 = 2 * precision * recall / max(precision + recall, 1e-12)
        row = {"data_set": name, "rule": rule, "sentences": len(values)}
        if len(key) == 1:
            row |= {"part": "methods", "method": key[0]}
        else:
            row |= {"part": "settings", "max_sources": key[0], "min_gain": key[1]}
        rows.append(row | {"precision": precision, "recall": recall, "f1": f1})
    return rows


def _named_by(
    written: Sequence[str], text: Text, methods: Mapping[str, Method]
) -> dict[tuple[Any, ...], list[list[int]]]:
    """Returns what every method names, and alignment with every setting."""
    named: dict[tuple[Any, ...], list[list[int]]] = {}
    if not written:
        return named
    for method, function in methods.items():
        named[(method,)] = function(written, text.sentences)
    every = align(written, text.sentences, max_sources=max(SETTINGS)[0], min_gain=0)
    for sources, gain in SETTINGS:
        named[(sources, gain)] = [_within(each, sources, gain) for each in every]
    return named


def _within(found: Support, max_sources: int, min_gain: float) -> list[int]:
    """Returns what ``align`` would have named with these options; gains fall from step to step."""
    scores = found.scores[1:max_sources]
    return found.indices[: 1 + sum(score > min_gain for score in scores)]


def mean_rows(rows: Sequence[Row], keys: Sequence[str], values: Sequence[str]) -> list[Row]:
    """Returns means of equal weight over the rows that have equal keys."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    means = []
    for key, group in groups.items():
        row = dict(zip(keys, key, strict=True))
        row |= {value: float(np.mean([each[value] for each in group])) for value in values}
        means.append(row | {"data_set": "mean"})
    return means


# Thresholds


def threshold_rows(name: str, texts: Sequence[Text]) -> list[Row]:
    """Returns shares of reference sentences that reach thresholds of support."""
    own, other = [], []
    for text, following in _pairs(texts):
        own += [result.total for result in align(text.reference, text.sentences)]
        other += [result.total for result in align(text.reference, following.sentences)]
    if not own:
        return []
    row = {"part": "thresholds", "data_set": name, "sentences": len(own)}
    rows = []
    for threshold in THRESHOLDS:
        shares = {
            "own": float(np.mean(np.array(own) >= threshold)),
            "other": float(np.mean(np.array(other) >= threshold)),
        }
        right = (shares["own"] + 1 - shares["other"]) / 2
        rows.append(row | {"threshold": threshold, **shares, "balanced_accuracy": right})
    return [*rows, row | {"part": "separation", "auc": auc(own, other)}]


def _pairs(texts: Sequence[Text]) -> Iterator[tuple[Text, Text]]:
    """Yields every document with the next one."""
    return zip(texts, [*texts[1:], *texts[:1]], strict=True)


def auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Returns how often a value of the first list is above one of the second; ties count half."""
    ranks = rankdata([*higher, *lower])
    above = ranks[: len(higher)].sum() - len(higher) * (len(higher) + 1) / 2
    return float(above / (len(higher) * len(lower)))


# Corrupted sentences

FEWEST = 20  # changed sentences of a data set that are counted
MEASURES = ("support", "document flags", "all flags", "support and flags")


class Base(NamedTuple):
    """Sentences to corrupt, each with its entities, and what may take their place."""

    claims: list[str]
    entities: list[list[Entity]]
    swaps: Mapping[str, list[Entity]]


def corruption_rows(name: str, texts: Sequence[Text], seed: int) -> list[Row]:
    """Returns how well measures tell corrupted sentences from others."""
    rng = np.random.default_rng(seed)
    result: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for text, following in _pairs(texts):
        swaps = {"same": _entities(text), "other": _entities(following)}
        bases = {"document": _drawn(text.sentences, rng), "reference": text.reference}
        for base, claims in bases.items():
            some = Base(claims, find_entities(claims), swaps)
            for key, wrong in _corrupted(some, rng).items():
                if base == "document":
                    wrong = _noisy(wrong, rng)
                values = _measures([claim.text for claim in wrong], text.sentences)
                result.setdefault((base, *key), []).append(values)
    rows = []
    unchanged = {base: np.concatenate(result.pop((base, "none", ""))) for base in bases}
    for (base, kind, swap), tables in result.items():
        wrong = np.concatenate(tables)
        if len(wrong) < FEWEST:
            continue
        row = {"part": "corrupted", "data_set": name, "sentence_of": base, "kind": kind}
        row |= {"swap": swap, "sentences": len(wrong)}
        columns = zip(wrong.T, unchanged[base].T, strict=True)
        areas = [auc(changed, before) for changed, before in columns]
        rows.append(row | dict(zip(MEASURES, areas, strict=True)))
    for base, table in unchanged.items():
        if len(table):
            row = {"part": "flagged", "data_set": name, "sentence_of": base}
            shares = {"by_document": float((table[:, 1] > 0).mean())}
            shares["by_any"] = float((table[:, 2] > 0).mean())
            rows.append(row | {"sentences": len(table), **shares})
    return rows


def _entities(text: Text) -> list[Entity]:
    return [entity for result in find_entities(text.sentences) for entity in result]


def _drawn(sentences: Sequence[str], rng: Rng) -> list[str]:
    candidates = _candidates(sentences)
    return [sentences[i] for i in rng.permutation(candidates)[: 2 * PER_RULE]]


def _corrupted(base: Base, rng: Rng) -> dict[tuple[str, str], list[Claim]]:
    """Returns the sentences unchanged and changed, by the kind of change and what was put in."""
    result = {("none", ""): [Claim(claim, CORRECT) for claim in base.claims]}
    for kind, transform in TRANSFORMATIONS.items():
        is_swap = kind in ("name", "date", "number")
        for swap in base.swaps if is_swap else ("",):
            others = base.swaps.get(swap, [])
            given = zip(base.claims, base.entities, strict=True)
            claims = [transform(ClaimSentence(*each, others), rng) for each in given]
            result[kind, swap] = [claim for claim in claims if claim is not None]
    return result


def _noisy(claims: Sequence[Claim], rng: Rng) -> list[Claim]:
    return [add_noise(claim, NOISE, rng) for claim in claims]


def _measures(written: Sequence[str], sentences: Sequence[str]) -> np.ndarray:
    """Returns the ``MEASURES`` of sentences, higher ones for worse, [sentences, 4]."""
    table = np.zeros((len(written), len(MEASURES)))
    result = align(written, sentences) if written else []
    flags = find_flags(written, sentences, [each.indices for each in result])
    for row, (support, flagged) in enumerate(zip(result, flags, strict=True)):
        unsupported = 1 - support.total
        of_document = sum(flag.missing == "document" for flag in flagged)
        table[row] = unsupported, of_document, len(flagged), unsupported + len(flagged)
    return table


def main() -> None:
    """Measures everything and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    given = os.environ.get("LONGSUM_JAX_DATA")
    parser.add_argument("--data", type=Path, default=given, help="folder of the data sets")
    parser.add_argument("--data_sets", default=",".join(DATA_SETS), help="to read, with commas")
    parser.add_argument("--documents", type=int, default=100, help="of each; default: 100")
    parser.add_argument("--model", help="whose attention is a method, too")
    parser.add_argument("--seed", type=int, default=0, help="random seed; default: 0")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    methods = dict(METHODS)
    if args.model:
        methods["attention"] = by_attention(load(args.model))
    rows: list[Row] = []
    for name in args.data_sets.split(",") if args.data else ["drawn"]:
        texts = read_texts(args.data, name, max(2, args.documents // FEWER.get(name, 1)))
        rows += method_rows(name, texts, args.seed, methods)
        rows += threshold_rows(name, texts)
        rows += corruption_rows(name, texts, args.seed)
        print(f"{name}: {len(texts)} documents", flush=True)
    by_part = {part: [row for row in rows if row["part"] == part] for part in _MEANS}
    for part, (keys, values) in _MEANS.items():
        rows += mean_rows(by_part[part], ("part", *keys), values)
    rows = [row for row in rows if row["part"] != "settings" or row["data_set"] == "mean"]
    print_table([row for row in rows if row["data_set"] == "mean"])
    if args.out:
        settings = {"max_sources": MAX_SOURCES, "min_gain": MIN_GAIN, "supported": SUPPORTED}
        write_report(args.out, rows, settings=settings)


_MEANS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "methods": (("rule", "method"), ("precision", "recall", "f1")),
    "settings": (("max_sources", "min_gain"), ("precision", "recall", "f1")),
    "thresholds": (("threshold",), ("own", "other", "balanced_accuracy")),
    "separation": ((), ("auc",)),
    "corrupted": (("sentence_of", "kind", "swap"), MEASURES),
    "flagged": (("sentence_of",), ("by_document", "by_any")),
}


if __name__ == "__main__":
    main()
