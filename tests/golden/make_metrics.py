"""Writes metrics/*.json: scores of published packages on the models of tests/evaluation.

python tests/evaluation/tiny_checkpoints.py DIRECTORY   # where the tests run
python tests/golden/make_metrics.py DIRECTORY           # see metrics/README.md for its packages
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "evaluation"))

from tiny_checkpoints import POSITIONS, SENTENCES  # noqa: E402

A, B, C, D, E = SENTENCES
# One that is its reference, short and empty ones, and two beyond the models' positions.
PREDICTIONS = [B, A, "the dam", "", E + " ", A + " " + C]
REFERENCES = [A, A, C, D, D, C + " " + A]
OTHER_REFERENCES = [C, B, D, E, A, B]
DOCUMENTS = [" ".join(SENTENCES), " ".join([C, A, E]), D]
SUMMARIES = [" ".join([D, B]), E, "the dam"]
BASELINE = [0.1, 0.2, 0.3]
LAYERS = {"bert": 2, "roberta": 2, "bart": 1}


def bertscore(models: Path) -> dict[str, list[list[float]]]:
    """Precision, recall and F1 by model and option."""
    from bert_score import BERTScorer

    result = {}
    for name, layer in LAYERS.items():
        for idf in (False, True):
            scorer = BERTScorer(
                model_type=str(models / name),
                num_layers=layer,
                idf=idf,
                idf_sents=REFERENCES if idf else None,
                nthreads=0,
            )
            # One pair at a time: padding of a batch counts as a token of similarity 0.
            scores = scorer.score(PREDICTIONS, REFERENCES, batch_size=1)
            result[f"{name}|idf:{'yes' if idf else 'no'}"] = [each.tolist() for each in scores]
    baseline = models / "baseline.csv"
    rows = [[layer, *(value * layer for value in BASELINE)] for layer in range(4)]
    lines = ["LAYER,P,R,F", *(",".join(map(str, row)) for row in rows)]
    baseline.write_text("\n".join(lines) + "\n")
    scorer = BERTScorer(
        model_type=str(models / "bert"),
        num_layers=LAYERS["bert"],
        lang="en",
        rescale_with_baseline=True,
        baseline_path=str(baseline),
    )
    several = [list(pair) for pair in zip(REFERENCES, OTHER_REFERENCES, strict=True)]
    scores = scorer.score(PREDICTIONS, several, batch_size=1)
    result["bert|two references|rescaled"] = [each.tolist() for each in scores]
    return result


def bartscore(models: Path) -> dict[str, list[float]]:
    """BARTScore by direction, and LongDocFACTScore."""
    import re
    import types

    import torch
    import transformers

    def cos_sim(a: np.ndarray, b: np.ndarray) -> torch.Tensor:
        a, b = (torch.nn.functional.normalize(torch.tensor(x), dim=-1) for x in (a, b))
        return torch.atleast_2d(a) @ b.T

    # The package's sentence encoder is one of sentence-transformers; here it is the tiny BERT.
    stub = types.ModuleType("sentence_transformers")
    stub.util = types.SimpleNamespace(cos_sim=cos_sim)
    stub.SentenceTransformer = None
    sys.modules["sentence_transformers"] = stub
    from longdocfactscore import ldfacts

    class Sentences:
        """Means of all states, as sentence-transformers with mean pooling."""

        tokenizer = transformers.AutoTokenizer.from_pretrained(models / "bert")
        model = transformers.BertModel.from_pretrained(models / "bert").eval()

        def encode(self, texts: list[str] | str, show_progress_bar: bool) -> np.ndarray:
            rows = [texts] if isinstance(texts, str) else texts
            means = []
            for row in rows:
                inputs = self.tokenizer(row, return_tensors="pt", truncation=True)
                with torch.no_grad():
                    means.append(self.model(**inputs).last_hidden_state[0].mean(0).numpy())
            return means[0] if isinstance(texts, str) else np.stack(means)

    # NLTK's splitter needs data of its own; these sentences end with a period and a space.
    ldfacts.sent_tokenize = lambda text: re.split(r"(?<=\.) ", text)
    scorer = ldfacts.BARTScore(device="cpu", checkpoint=str(models / "bart"))
    scorer.max_length = POSITIONS
    result = {
        "src_hyp": scorer.bart_score(OTHER_REFERENCES, PREDICTIONS),
        "ref_hyp": scorer.bart_score(REFERENCES, PREDICTIONS),
        "hyp_ref": scorer.bart_score(PREDICTIONS, REFERENCES),
    }
    long = object.__new__(ldfacts.LongDocFACTScore)
    long.sent_model = Sentences()
    long.metric_function = scorer.bart_score
    scores = long.score_src_hyp_long(DOCUMENTS, SUMMARIES)
    return result | {"longdocfactscore": [float(score) for score in scores]}


def main() -> None:
    models = Path(sys.argv[1])
    makers = (bertscore, bartscore)
    for maker in makers:
        path = HERE / "metrics" / f"{maker.__name__}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(maker(models), indent=1) + "\n")


if __name__ == "__main__":
    main()
