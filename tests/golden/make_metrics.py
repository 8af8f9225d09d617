"""Writes metrics/*.json: scores of published packages on the models of tests/evaluation.

python tests/evaluation/tiny_checkpoints.py DIRECTORY   # where the tests run
python tests/golden/make_metrics.py DIRECTORY           # see metrics/README.md for its packages
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "evaluation"))

from tiny_checkpoints import SENTENCES  # noqa: E402

A, B, C, D, E = SENTENCES
# One that is its reference, short and empty ones, and two beyond the models' positions.
PREDICTIONS = [B, A, "the dam", "", E + " ", A + " " + C]
REFERENCES = [A, A, C, D, D, C + " " + A]
OTHER_REFERENCES = [C, B, D, E, A, B]
BASELINE = [0.1, 0.2, 0.3]
LAYERS = {"bert": 2, "roberta": 2, "bart": 1}


def bertscore(models: Path) -> dict[str, list[list[float]]]:
    """Precision, recall and F1 by model and option."""
    from bert_score import BERTScorer

    found = {}
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
            found[f"{name}|idf:{'yes' if idf else 'no'}"] = [each.tolist() for each in scores]
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
    found["bert|two references|rescaled"] = [each.tolist() for each in scores]
    return found


def main() -> None:
    models = Path(sys.argv[1])
    makers = (bertscore,)
    for maker in makers:
        path = HERE / "metrics" / f"{maker.__name__}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(maker(models), indent=1) + "\n")


if __name__ == "__main__":
    main()
