"""Writes metrics/summac.json and blanc.json: scores of the published packages on small models.

    python tests/evaluation/tiny_heads.py DIRECTORY        # where the tests run
    python tests/golden/make_head_metrics.py DIRECTORY     # with the packages of metrics/README.md

Both split into sentences by NLTK, whose data are not at hand: here they have our splitter.
"""

import json
import sys
from pathlib import Path

import nltk

from longsum_jax.text.sentences import split_sentences

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "evaluation"))

from tiny_heads import GUESSED, HELP, SOURCES, SUMMARIES, conv_layers  # noqa: E402

nltk.tokenize.sent_tokenize = split_sentences


def summac(models: Path) -> dict[str, object]:
    """Scores of SummaC-ZS and SummaC-Conv, and the layers of the latter."""
    from summac import model_summac

    card = {"model_card": str(models / "entailment"), "entailment_idx": 2, "contradiction_idx": 0}
    model_summac.model_map["tiny"] = card
    options = {"granularity": "sentence", "device": "cpu", "imager_load_cache": False}
    zero_shot = model_summac.SummaCZS(model_name="tiny", **options)
    result = {"zs": [float(score) for score in zero_shot.score(SOURCES, SUMMARIES)["scores"]]}
    for bins in ("percentile", "even50"):
        conv = model_summac.SummaCConv(models=["tiny"], bins=bins, **options)
        conv.load_state_dict(conv_layers(conv.n_bins))
        result[bins] = [float(score) for score in conv.score(SOURCES, SUMMARIES)["scores"]]
    return result


def blanc(models: Path) -> dict[str, object]:
    """Counts of masked words by whether they are guessed with dots and with the summary."""
    import blanc

    result = {}
    for gap in (2, 6):
        scorer = blanc.BlancHelp(
            model_name=str(models / "masked"),
            measure="relative-counts",
            gap=gap,
            show_progress_bar=False,
        )
        pairs = scorer.eval_pairs(GUESSED, HELP)
        result[f"gap {gap}"] = [{"relative": score, "counts": counts} for score, counts in pairs]
        scorer.measure = "improve"
        improve = scorer.eval_pairs(GUESSED, HELP)
        for row, value in zip(result[f"gap {gap}"], improve, strict=True):
            row["improve"] = value
    return result


def main() -> None:
    models = Path(sys.argv[1])
    for maker in (summac, blanc):
        path = HERE / "metrics" / f"{maker.__name__}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(maker(models), indent=1) + "\n")


if __name__ == "__main__":
    main()
