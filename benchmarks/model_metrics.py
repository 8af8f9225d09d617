"""Metrics over random models and their peers, for metrics.py.

Peers are the packages bert-score, summac, blanc and longdocfactscore where they are installed (its
BARTScore is the published class); DiscoScore and FactCC, which are no packages, are loops over
transformers written after their published code, one text and one sentence at a time. All split
into sentences by our splitter, whose data is always at hand. What the packages ask of older
versions of transformers is given to them here.
"""

import contextlib
import importlib.util
import itertools
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from input import synthetic_documents

from longsum_jax.evaluation.bertscore import BertScore
from longsum_jax.evaluation.summac import SummaC
from longsum_jax.experimental.metrics.bartscore import BartScore
from longsum_jax.experimental.metrics.blanc import Blanc
from longsum_jax.experimental.metrics.discoscore import DiscoScore
from longsum_jax.experimental.metrics.factcc import FactCC
from longsum_jax.experimental.metrics.longdocfactscore import LongDocFactScore
from longsum_jax.experimental.metrics.taggers import rule_nouns
from longsum_jax.text.sentences import split_sentences

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
# Standard deviations of logarithms of lengths, as papers, technical reports and meetings have them:
# 0.3 to 0.7 of summaries, 0.7 to 0.8 of sentences.
SPREAD = 0.5
SENTENCE_SPREAD = 0.7
SENTENCE = 18  # words, in the middle
SENTENCES = 12  # of a document
WORDS = 3_000  # of a BERT's vocabulary
PIECES = 5_000  # of a BART's
LABELS = ("contradiction", "neutral", "entailment")
FACTS = ("CORRECT", "INCORRECT")

Score = Callable[[Sequence["Texts"]], np.ndarray]


class Texts(NamedTuple):
    """A summary with its reference and its document."""

    summary: str
    reference: str
    document: str = ""


class Case(NamedTuple):
    """A metric, its peer, and what both score.

    Attributes:
        name: of the metric.
        peer: package of the reference implementation.
        ours, theirs: from texts to scores, float64 [texts, columns].
        texts: to score.
        note: on the peer, where it is not the package itself.
    """

    name: str
    peer: str
    ours: Score
    theirs: Score
    texts: Sequence[Texts]
    note: str = ""


def drawn_texts(count: int, words: int, seed: int) -> list[Texts]:
    """Returns texts whose lengths are spread as those of real summaries.

    Args:
        count: of documents.
        words: of a summary, in the middle; the document has ``SENTENCES`` sentences.
        seed: of words and lengths.
    """
    rng = np.random.default_rng(seed)
    [pool] = synthetic_documents(1, 2 * count * words, seed)
    drawn = iter(itertools.cycle(pool.replace(".", "").lower().split()))

    def sentence() -> str:
        length = max(round(rng.lognormal(np.log(SENTENCE), SENTENCE_SPREAD)), 3)
        return " ".join(itertools.islice(drawn, length)).capitalize() + "."

    def text(length: float) -> str:
        return " ".join(sentence() for _ in range(max(round(length / SENTENCE), 1)))

    lengths = rng.lognormal(np.log(words), SPREAD, (count, 2))
    return [
        Texts(*map(text, pair), " ".join(sentence() for _ in range(SENTENCES)))
        for pair in lengths.tolist()
    ]


def model_cases(
    size: str, count: int, words: int, seed: int, directory: Path
) -> Iterator[Callable[[], Case]]:
    """Yields makers of the cases of one size whose peers are installed.

    Args:
        size: of the models: tiny or base; base has BERTScore, SummaC and BARTScore alone.
        count, words, seed: see ``drawn_texts``.
        directory: for the models.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    texts = drawn_texts(count, words, seed)
    write_bert(size, texts, directory / "bert", "BertForMaskedLM")
    write_bert(size, texts, directory / "nli", "BertForSequenceClassification", LABELS)
    write_bart(size, texts, directory / "bart")
    # Documents take long: SummaC reads every sentence with every other one.
    some = max(count // (4 if size == "tiny" else 20), 1)
    few = [each._replace(summary=_first(each.summary, 4)) for each in texts[:some]]
    written = texts if size == "tiny" else texts[: max(count // 4, 1)]
    with_package: list[tuple[str, Callable[[], Case]]] = [
        ("bert_score", lambda: bertscore_case(size, texts, directory / "bert")),
        ("summac", lambda: summac_case(size, few, directory / "nli")),
        ("torch", lambda: bartscore_case(size, written, directory / "bart")),
    ]
    if size == "tiny":
        write_bert(size, texts, directory / "facts", "BertForSequenceClassification", FACTS)
        paths = directory / "bart", directory / "bert"
        with_package += [
            ("longdocfactscore", lambda: longdocfactscore_case(size, few, *paths)),
            ("torch", lambda: discoscore_case(size, texts, directory / "bert")),
            ("blanc", lambda: blanc_case(size, few, directory / "bert")),
            ("torch", lambda: factcc_case(size, few, directory / "facts")),
        ]
    for package, make in with_package:
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed; its row is left out", file=sys.stderr)
        else:
            yield make


def _first(text: str, sentences: int) -> str:
    return " ".join(split_sentences(text)[:sentences])


def _ours(metric: Any, columns: Sequence[str]) -> Score:
    """Returns the metric as a function of texts."""

    def score(texts: Sequence[Texts]) -> np.ndarray:
        scores = metric.score(*zip(*texts, strict=True))
        return np.array([[each[column] for column in columns] for each in scores])

    return score


def bertscore_case(size: str, texts: Sequence[Texts], model: Path) -> Case:
    from bert_score import BERTScorer

    layer = LAYERS[size]
    metric = BertScore(BertScore.Options(model=str(model), layer=layer))
    scorer = BERTScorer(model_type=str(model), num_layers=layer)
    columns = [f"bertscore_{part}" for part in ("precision", "recall", "f1")]

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        summaries, references, _ = map(list, zip(*texts, strict=True))
        return 100 * np.stack(scorer.score(summaries, references), 1)

    return Case(f"BERTScore, {size}", "bert_score", _ours(metric, columns), theirs, texts)


def summac_case(size: str, texts: Sequence[Texts], model: Path) -> Case:
    with _importing_packages():
        from summac import model_summac

    model_summac.nltk.tokenize.sent_tokenize = split_sentences
    card = {"model_card": str(model), "entailment_idx": 2, "contradiction_idx": 0}
    model_summac.model_map["random"] = card
    options = {"granularity": "sentence", "device": "cpu", "imager_load_cache": False}
    scorer = model_summac.SummaCZS(model_name="random", **options)
    scorer.imager.load_nli()
    tokenizer = scorer.imager.tokenizer

    def encode(pairs: Sequence[tuple[str, str]], truncation_strategy: str, **reading: Any) -> Any:
        del truncation_strategy  # which "truncation" overrides
        return tokenizer(*map(list, zip(*pairs, strict=True)), **reading)

    tokenizer.batch_encode_plus = encode
    metric = SummaC(SummaC.Options(model=str(model)))

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        scorer.imager.cache.clear()
        summaries, _, documents = map(list, zip(*texts, strict=True))
        return 100 * np.array(scorer.score(documents, summaries)["scores"])[:, None]

    return Case(f"SummaC-ZS, {size}", "summac", _ours(metric, ["summac_zs"]), theirs, texts)


def bartscore_case(size: str, texts: Sequence[Texts], model: Path) -> Case:
    options = BartScore.Options(model=str(model), directions=("ref_hyp",))
    peer = _BartLoop(model, options.batch_size)

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        summaries, references, _ = map(list, zip(*texts, strict=True))
        return np.array(peer.log_probs(references, summaries))[:, None]

    ours = _ours(BartScore(options), ["bartscore_ref_hyp"])
    return Case(f"BARTScore, {size}", "transformers", ours, theirs, texts, "the published loop")


class _BartLoop:
    """Mean log-probabilities of texts given others, as BARTScore's published class has them."""

    def __init__(self, model: Path, batch_size: int) -> None:
        from transformers import AutoTokenizer, BartForConditionalGeneration

        self._model = BartForConditionalGeneration.from_pretrained(model).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._batch_size = batch_size

    def log_probs(self, given: Sequence[str], scored: Sequence[str]) -> list[float]:
        result = []
        for start in range(0, len(given), self._batch_size):
            some = slice(start, start + self._batch_size)
            result += self._of_batch(list(given[some]), list(scored[some]))
        return result

    def _of_batch(self, given: list[str], scored: list[str]) -> list[float]:
        import torch

        reading = {"truncation": True, "padding": True, "return_tensors": "pt"}
        source, target = (self._tokenizer(texts, **reading) for texts in (given, scored))
        with torch.no_grad():
            logits = self._model(
                input_ids=source.input_ids,
                attention_mask=source.attention_mask,
                labels=target.input_ids,
            ).logits
        log_probs = torch.log_softmax(logits, -1)
        selected = log_probs.gather(2, target.input_ids[..., None])[..., 0]
        real = target.attention_mask
        return ((selected * real).sum(1) / real.sum(1)).tolist()


def longdocfactscore_case(size: str, texts: Sequence[Texts], bart: Path, bert: Path) -> Case:
    with _importing_packages():
        from longdocfactscore import ldfacts

    ldfacts.sent_tokenize = split_sentences
    scorer = object.__new__(ldfacts.LongDocFACTScore)
    scorer.sent_model = _SentenceVectors(bert)
    scorer.metric_function = ldfacts.BARTScore(device="cpu", checkpoint=str(bart)).bart_score
    options = LongDocFactScore.Options(model=str(bart), sentence_model=str(bert))
    metric = LongDocFactScore(options)

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        summaries, _, documents = map(list, zip(*texts, strict=True))
        return np.array(scorer.score_src_hyp_long(documents, summaries))[:, None]

    ours = _ours(metric, ["longdocfactscore"])
    note = "sentence vectors of transformers, 32 at a time"
    return Case(f"LongDocFACTScore, {size}", "longdocfactscore", ours, theirs, texts, note)


class _SentenceVectors:
    """Means of all states, as sentence-transformers with mean pooling."""

    def __init__(self, model: Path) -> None:
        import transformers

        self._tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self._model = transformers.BertModel.from_pretrained(model).eval()

    def encode(self, texts: list[str] | str, show_progress_bar: bool) -> np.ndarray:
        import torch

        del show_progress_bar
        rows = [texts] if isinstance(texts, str) else texts
        means = []
        reading = {"truncation": True, "max_length": 128, "padding": True, "return_tensors": "pt"}
        for start in range(0, len(rows), 32):
            inputs = self._tokenizer(rows[start : start + 32], **reading)
            with torch.no_grad():
                states = self._model(**inputs).last_hidden_state
            mask = inputs.attention_mask[..., None]
            means.append(((states * mask).sum(1) / mask.sum(1)).numpy())
        return means[0][0] if isinstance(texts, str) else np.concatenate(means)


def blanc_case(size: str, texts: Sequence[Texts], model: Path) -> Case:
    with _importing_packages():
        import blanc

    blanc.blanc.sent_tokenize = split_sentences
    options = {"gap": 2, "show_progress_bar": False, "device": "cpu"}
    scorer = blanc.BlancHelp(model_name=str(model), inference_batch_size=16, **options)
    metric = Blanc(Blanc.Options(model=str(model), gap=2))

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        summaries, _, documents = map(list, zip(*texts, strict=True))
        return 100 * np.array(scorer.eval_pairs(documents, summaries))[:, None]

    return Case(f"BLANC-help, {size}", "blanc", _ours(metric, ["blanc_help"]), theirs, texts)


def discoscore_case(size: str, texts: Sequence[Texts], model: Path) -> Case:
    options = DiscoScore.Options(model=str(model), layer=LAYERS[size])
    peer = _DiscoLoop(model, LAYERS[size])

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        return np.array([peer.scores(each.summary, each.reference) for each in texts])

    ours = _ours(DiscoScore(options), ["ds_focus_nn", "ds_sent_nn"])
    note = "a loop after the published code"
    return Case(f"DiscoScore, {size}", "transformers", ours, theirs, texts, note)


class _DiscoLoop:
    """DS_Focus_NN and DS_SENT_NN, one text at a time."""

    def __init__(self, model: Path, layers: int) -> None:
        import transformers

        self._tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self._model = transformers.BertModel.from_pretrained(model).eval()
        self._model.encoder.layer = self._model.encoder.layer[:layers]

    def scores(self, summary: str, reference: str) -> tuple[float, float]:
        import torch

        (nouns, rows), (other_nouns, other_rows) = map(self._read, (summary, reference))
        common = nouns.keys() & other_nouns.keys()
        differences = [float((nouns[noun] - other_nouns[noun]).square().sum()) for noun in common]
        cosine = torch.nn.functional.cosine_similarity
        if len(other_rows) == 1:
            similarity = cosine(other_rows, rows).mean()
        else:
            pooled = [
                torch.cat([x.min(0).values, x.mean(0), x.max(0).values, x.sum(0)])
                for x in (rows, other_rows)
            ]
            similarity = cosine(*pooled, dim=0)
        return sum(differences) / max(len(nouns), 1), float(similarity)

    def _read(self, text: str) -> tuple[dict[str, Any], Any]:
        """Returns the vectors of nouns and of sentences."""
        import torch

        sentences = split_sentences(text) or [""]
        nouns = rule_nouns(sentences)
        ids, owners, places = [self._tokenizer.cls_token_id], [0], []
        for number, sentence in enumerate(sentences):
            for word in sentence.split():
                pieces = self._tokenizer.encode(word, add_special_tokens=False)
                ids += pieces
                owners += [number] * len(pieces)
                places.append((word, len(ids) - 1))
        limit = self._model.config.max_position_embeddings
        with torch.no_grad():
            states = self._model(torch.tensor([ids[:limit]])).last_hidden_state[0]
        known = set(itertools.chain(*nouns))
        result: dict[str, Any] = {}
        for word, place in places:
            if word in known and place < len(states):
                result[word] = result.get(word, 0) + states[place] / states[place].norm()
        owner = torch.tensor(owners[:limit])
        count = int(owner[-1]) + 1
        means = torch.stack([states[owner == i].mean(0) for i in range(count)])
        rows = means.clone()
        for i, j in itertools.combinations(range(count), 2):
            if set(nouns[i]) & set(nouns[j]):
                rows[i] += means[j] / (j - i)
        return result, rows / rows.norm(dim=1, keepdim=True)


def factcc_case(size: str, texts: Sequence[Texts], model: Path) -> Case:
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    classifier = BertForSequenceClassification.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    metric = FactCC(FactCC.Options(model=str(model)))
    reading = {"truncation": "only_first", "max_length": 512, "return_tensors": "pt"}

    def probability(document: str, claim: str) -> float:
        with torch.no_grad():
            logits = classifier(**tokenizer(document, claim, **reading)).logits[0]
        return float(torch.softmax(logits, -1)[0])

    def theirs(texts: Sequence[Texts]) -> np.ndarray:
        result = [
            np.mean([probability(each.document, claim) for claim in split_sentences(each.summary)])
            for each in texts
        ]
        return 100 * np.array(result)[:, None]

    note = "a loop after the published code"
    return Case(f"FactCC, {size}", "transformers", _ours(metric, ["factcc"]), theirs, texts, note)


@contextlib.contextmanager
def _importing_packages() -> Iterator[None]:
    """Gives packages what they import from older versions, or from packages that need downloads."""
    import torch
    import transformers

    if not hasattr(transformers, "AdamW"):
        transformers.AdamW = torch.optim.AdamW
    stubs: dict[str, Any] = {
        "sentence_transformers": {
            "util": types.SimpleNamespace(cos_sim=_cosines),
            "SentenceTransformer": None,
        },
        "blanc.estime": {"Estime": None},  # other metrics, over models that are gone
        "blanc.shannon": {"Shannon": None},
    }
    before = {name: sys.modules.get(name) for name in stubs}
    for name, content in stubs.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(content)
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def _cosines(a: np.ndarray, b: np.ndarray) -> Any:
    import torch

    first, second = (torch.nn.functional.normalize(torch.tensor(x), dim=-1) for x in (a, b))
    return torch.atleast_2d(first) @ second.T


def write_bert(
    size: str, texts: Sequence[Texts], directory: Path, kind: str, labels: Sequence[str] = ()
) -> None:
    """Writes a random BERT whose vocabulary is the most frequent words of the texts."""
    import tokenizers
    import torch
    import transformers

    counts = Counter(word for each in texts for text in each for word in text.lower().split())
    letters = sorted(set("".join(counts)))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [f"##{letter}" for letter in letters]
    pieces += [word for word, _ in counts.most_common(WORDS) if len(word) > 1]
    torch.manual_seed(0)
    heads = {"num_labels": len(labels), "id2label": dict(enumerate(labels))} if labels else {}
    config = transformers.BertConfig(vocab_size=len(pieces), **BERTS[size], **heads)
    getattr(transformers, kind)(config).save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizers.BertWordPieceTokenizer(vocabulary).save(str(directory / "tokenizer.json"))
    _write_tokenizer_config(directory, "BertTokenizer", config.max_position_embeddings)


def write_bart(size: str, texts: Sequence[Texts], directory: Path) -> None:
    """Writes a random BART with byte-level BPE learnt of the texts."""
    import tokenizers
    import torch
    import transformers

    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    plain = [text for each in texts for text in each]
    tokenizer.train_from_iterator(plain, PIECES, special_tokens=special, show_progress=False)
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    torch.manual_seed(0)
    config = transformers.BartConfig(vocab_size=tokenizer.get_vocab_size(), **BARTS[size])
    transformers.BartForConditionalGeneration(config).save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    vocabulary = dict(sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]))
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    _write_tokenizer_config(directory, "BartTokenizer", config.max_position_embeddings)


def _write_tokenizer_config(directory: Path, tokenizer_class: str, length: int) -> None:
    content = {"tokenizer_class": tokenizer_class, "model_max_length": length}
    (directory / "tokenizer_config.json").write_text(json.dumps(content))
