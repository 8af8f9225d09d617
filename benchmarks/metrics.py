"""Metrics of summaries beside their reference implementations: largest difference, pairs/s.

    python benchmarks/metrics.py --out=metrics.json [--pairs=40] [--words=500] [--models=tiny,base]

Pairs are summaries of --words words drawn from a Zipf law, in sentences of 12 to 28, one a line, of
which the second has half of its sentences from the first; "ROUGE-L of long texts" has 9,000 and 600
words. Both sides take turns on one thread, the faster of two turns counts, and seconds are of the
processor. Differences are of scores from 0 to 100. Peers are rouge-score, NLTK with a WordNet that
knows no synonyms, and for tests of significance over --documents documents scipy.

--models adds metrics over random models of these sizes, written by transformers: BERTScore beside
bert-score if it is installed, BARTScore beside the published loop over a BART of
transformers, four pairs at a time. Their differences are of scores from 0 to 100, and of
log-probabilities.
"""

import argparse
import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import fastest, print_table, write_report
from input import synthetic_documents
from nltk.translate.meteor_score import single_meteor_score
from rouge_score.rouge_scorer import RougeScorer
from scipy import stats

from longsum_jax.evaluation.bartscore import BartScore
from longsum_jax.evaluation.bertscore import BertScore
from longsum_jax.evaluation.meteor import Meteor
from longsum_jax.evaluation.rouge import Rouge
from longsum_jax.evaluation.significance import bootstrap_intervals, randomization_test
from longsum_jax.text.ngrams import words_of
from longsum_jax.text.sentences import split_sentences

TYPES = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum")
SENTENCE = 20  # words on average
LONG = (9_000, 600)  # words
ROUNDS = 10_000

# Size of a random model -> fields of its config; those that are not here are of the base models.
BERTS = {
    "tiny": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    | {"intermediate_size": 512},
    "base": {},
}
BARTS = {
    "tiny": {"d_model": 128, "encoder_layers": 2, "decoder_layers": 2}
    | {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    | {"encoder_ffn_dim": 512, "decoder_ffn_dim": 512},
    "base": {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6}
    | {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    | {"encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
}
LAYERS = {"tiny": 2, "base": 9}  # whose states BERTScore compares
WORDS = 3_000  # of a BERT's vocabulary
PIECES = 5_000  # of a BART's

Pair = tuple[str, str]


class Case(NamedTuple):
    """A metric, its peer, and what both score.

    Attributes:
        name: of the metric.
        peer: package of the reference implementation.
        ours, theirs: from pairs to scores, float64 [pairs, columns].
        pairs: of texts.
    """

    name: str
    peer: str
    ours: Callable[[Sequence[Pair]], np.ndarray]
    theirs: Callable[[Sequence[Pair]], np.ndarray]
    pairs: Sequence[Pair]


class NoSynonyms:
    """A WordNet without words."""

    def synsets(self, word: str) -> list[Any]:
        del word
        return []


def drawn_pairs(count: int, words: int, seed: int) -> list[Pair]:
    """Returns pairs of texts that have half of their sentences in common, one a line."""
    texts = synthetic_documents(2 * count, max(words // SENTENCE, 2), seed)
    lines = [split_sentences(text) for text in texts]
    return [
        ("\n".join(first), "\n".join(first[::2] + second[1::2]))
        for first, second in zip(lines[::2], lines[1::2], strict=True)
    ]


def rouge_case(name: str, pairs: Sequence[Pair], types: Sequence[str], stemmer: bool) -> Case:
    metric = Rouge(Rouge.Options(types=tuple(types), stemmer=stemmer, splitter="lines"))
    scorer = RougeScorer(types, use_stemmer=stemmer)

    def ours(pairs: Sequence[Pair]) -> np.ndarray:
        scores = metric.score(*zip(*pairs, strict=True), [""] * len(pairs))
        return np.array([[score[name] for name in types] for score in scores])

    def theirs(pairs: Sequence[Pair]) -> np.ndarray:
        scores = [scorer.score(reference, prediction) for prediction, reference in pairs]
        return np.array([[100 * score[name].fmeasure for name in types] for score in scores])

    return Case(name, "rouge_score", ours, theirs, pairs)


def meteor_case(pairs: Sequence[Pair]) -> Case:
    metric = Meteor()

    def ours(pairs: Sequence[Pair]) -> np.ndarray:
        scores = metric.score(*zip(*pairs, strict=True), [""] * len(pairs))
        return np.array([score["meteor"] for score in scores])

    def theirs(pairs: Sequence[Pair]) -> np.ndarray:
        words = [[[word.decode() for word in words_of(text)] for text in pair] for pair in pairs]
        scores = [single_meteor_score(b, a, wordnet=NoSynonyms()) for a, b in words]
        return 100 * np.array(scores)

    return Case("METEOR, words and stems", "nltk", ours, theirs, pairs)


def bertscore_case(size: str, pairs: Sequence[Pair], directory: Path) -> Case:
    from bert_score import BERTScorer

    write_bert(size, pairs, directory)
    layer = LAYERS[size]
    metric = BertScore(BertScore.Options(model=str(directory), layer=layer))
    scorer = BERTScorer(model_type=str(directory), num_layers=layer)
    parts = ("precision", "recall", "f1")

    def ours(pairs: Sequence[Pair]) -> np.ndarray:
        scores = metric.score(*zip(*pairs, strict=True), [""] * len(pairs))
        return np.array([[score[f"bertscore_{part}"] for part in parts] for score in scores])

    def theirs(pairs: Sequence[Pair]) -> np.ndarray:
        return 100 * np.stack(scorer.score(*map(list, zip(*pairs, strict=True))), 1)

    return Case(f"BERTScore, {size}", "bert_score", ours, theirs, pairs)


def bartscore_case(size: str, pairs: Sequence[Pair], directory: Path) -> Case:
    import torch
    from transformers import AutoTokenizer, BartForConditionalGeneration

    write_bart(size, pairs, directory)
    options = BartScore.Options(model=str(directory), directions=("ref_hyp",))
    metric = BartScore(options)
    model = BartForConditionalGeneration.from_pretrained(directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    reading = {"truncation": True, "padding": True, "return_tensors": "pt"}

    def ours(pairs: Sequence[Pair]) -> np.ndarray:
        scores = metric.score(*zip(*pairs, strict=True), [""] * len(pairs))
        return np.array([score["bartscore_ref_hyp"] for score in scores])

    def theirs(pairs: Sequence[Pair]) -> np.ndarray:
        scores = []
        for start in range(0, len(pairs), options.batch_size):
            batch = pairs[start : start + options.batch_size]
            scored, given = (
                tokenizer(list(texts), **reading) for texts in zip(*batch, strict=True)
            )
            with torch.no_grad():
                logits = model(
                    input_ids=given.input_ids,
                    attention_mask=given.attention_mask,
                    labels=scored.input_ids,
                ).logits
            log_probs = torch.log_softmax(logits, -1)
            chosen = log_probs.gather(2, scored.input_ids[..., None])[..., 0]
            real = scored.attention_mask
            scores += ((chosen * real).sum(1) / real.sum(1)).tolist()
        return np.array(scores)

    return Case(f"BARTScore, {size}", "transformers", ours, theirs, pairs)


def write_bert(size: str, pairs: Sequence[Pair], directory: Path) -> None:
    """Writes a random BERT whose vocabulary is the most frequent words of the pairs."""
    import tokenizers
    import torch
    import transformers

    counts = Counter(word for pair in pairs for text in pair for word in text.lower().split())
    letters = sorted(set("".join(counts)))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [f"##{letter}" for letter in letters]
    pieces += [word for word, _ in counts.most_common(WORDS) if len(word) > 1]
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(pieces), **BERTS[size])
    transformers.BertModel(config).save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizers.BertWordPieceTokenizer(vocabulary).save(str(directory / "tokenizer.json"))
    _write_tokenizer_config(directory, "BertTokenizer", config.max_position_embeddings)


def write_bart(size: str, pairs: Sequence[Pair], directory: Path) -> None:
    """Writes a random BART with byte-level BPE learnt of the pairs."""
    import tokenizers
    import torch
    import transformers

    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = [text for pair in pairs for text in pair]
    tokenizer.train_from_iterator(texts, PIECES, special_tokens=special, show_progress=False)
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    torch.manual_seed(0)
    config = transformers.BartConfig(vocab_size=tokenizer.get_vocab_size(), **BARTS[size])
    transformers.BartForConditionalGeneration(config).save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_tokenizer_config(directory, "BartTokenizer", config.max_position_embeddings)


def _write_tokenizer_config(directory: Path, tokenizer_class: str, length: int) -> None:
    content = {"tokenizer_class": tokenizer_class, "model_max_length": length}
    (directory / "tokenizer_config.json").write_text(json.dumps(content))


def row_of(case: Case) -> dict[str, Any]:
    """Returns differences and speeds of one case."""
    difference = np.abs(case.ours(case.pairs) - case.theirs(case.pairs)).max()
    calls = {
        "ours": lambda: case.ours(case.pairs),
        "peer": lambda: case.theirs(case.pairs),
    }
    seconds = fastest(calls, 2, warm_ups=0)
    speeds = {name: len(case.pairs) / max(taken.cpu, 1e-9) for name, taken in seconds.items()}
    return {
        "metric": case.name,
        "peer": f"{case.peer} {metadata.version(case.peer)}",
        "pairs": len(case.pairs),
        "largest_difference": float(difference),
        "pairs_per_second": speeds["ours"],
        "peer_pairs_per_second": speeds["peer"],
        "ratio": speeds["ours"] / speeds["peer"],
    }


def significance_rows(documents: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Returns seconds of tests and intervals of one column of scores."""
    rng = np.random.default_rng(seed)
    first = rng.normal(40, 10, documents)
    second = first + rng.normal(0.3, 5, documents)
    options = {"n_resamples": rounds, "vectorized": True, "rng": seed}

    def mean_difference(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return (x - y).mean(axis)

    calls = {
        "randomization": lambda: randomization_test(first, second, rounds=rounds),
        "peer of randomization": lambda: (
            stats.permutation_test(
                (first, second), mean_difference, permutation_type="samples", batch=100, **options
            ).pvalue
        ),
        "interval": lambda: bootstrap_intervals(first, rounds=rounds),
        "peer of interval": lambda: (
            stats.bootstrap(
                (first,), np.mean, method="percentile", batch=100, **options
            ).confidence_interval
        ),
    }
    seconds = fastest(calls, 2, warm_ups=0)
    return [
        {
            "test": name,
            "peer": f"scipy {metadata.version('scipy')}",
            "documents": documents,
            "rounds": rounds,
            "seconds": seconds[name].cpu,
            "peer_seconds": seconds[f"peer of {name}"].cpu,
            "ratio": seconds[f"peer of {name}"].cpu / seconds[name].cpu,
        }
        for name in ("randomization", "interval")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON report to write")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--words", type=int, default=500, help="of a summary")
    parser.add_argument("--documents", type=int, default=1000, help="of tests of significance")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of tests of significance")
    parser.add_argument("--long", type=int, default=LONG[0], help="words of the longest text")
    parser.add_argument(
        "--models", default="", help="sizes of random models for metrics over models: tiny,base"
    )
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    pairs = drawn_pairs(flags.pairs, flags.words, flags.seed)
    [long_pair] = drawn_pairs(1, flags.long, flags.seed)
    few = "\n".join(long_pair[1].split("\n")[: flags.long // LONG[0] * LONG[1] // SENTENCE or 2])
    cases = [
        rouge_case("ROUGE-1, -2, -3, -L, -Lsum", pairs, TYPES, False),
        rouge_case("the same, stemmed", pairs, TYPES, True),
        rouge_case("ROUGE-L of long texts", [(long_pair[0], few)], ["rougeL"], False),
        meteor_case(pairs),
    ]
    rows = [row_of(case) for case in cases]
    cases_of_models = [bartscore_case]
    if importlib.util.find_spec("bert_score"):
        cases_of_models.append(bertscore_case)
    for size in filter(None, flags.models.split(",")):
        for case_of in cases_of_models:
            with tempfile.TemporaryDirectory() as directory:
                rows.append(row_of(case_of(size, pairs, Path(directory))))
    print_table(rows)
    tests = significance_rows(flags.documents, flags.rounds, flags.seed)
    print_table(tests)
    if flags.out:
        write_report(flags.out, [*rows, *tests], seed=flags.seed, words=flags.words)


if __name__ == "__main__":
    main()
