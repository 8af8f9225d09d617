import pytest

from longsum_jax.analysis.model_card import (
    MARK,
    CardFacts,
    best_record,
    copy_card,
    model_card,
    write_card,
)

RECORD = {
    "step": 40,
    "documents": 8,
    "scores": {"rouge1": 45.678, "mean_rouge": 40.0, "lead_rouge1": 20.0, "summary_tokens": 12.0},
    "intervals": {"rouge1": [41.0, 49.5], "mean_rouge": [36.0, 44.0]},
}
FACTS = CardFacts(
    name="led-reports",
    family="led",
    objective="summarize",
    base="allenai/led-base-16384",
    task="summaries",
    source="hf:org/reports/main@0123abcd",
    split="validation",
    steps=40,
    num_parameters=161_844_480,
    record=RECORD,
    settings={"learning rate": "3e-05", "schedule": "linear: [*]"},
    hardware="1 x NVIDIA H100",
    versions={"jax": "0.10.2"},
)


def test_the_hub_reads_the_metadata():
    cards = pytest.importorskip("huggingface_hub")
    data = cards.ModelCard(model_card(FACTS)).data
    assert data.library_name == "longsum_jax"
    assert data.pipeline_tag == "summarization"
    assert data.base_model == "allenai/led-base-16384"
    assert data.datasets == ["org/reports"]
    first, second = data.eval_results
    assert (first.metric_type, first.metric_name, first.metric_value) == (
        "rouge",
        "ROUGE-1",
        45.678,
    )
    assert (first.dataset_type, first.dataset_revision) == ("org/reports", "0123abcd")
    assert second.metric_name == "mean ROUGE"


def test_scores_have_intervals_and_baselines():
    card = model_card(FACTS)
    assert "| ROUGE-1 | 45.68 | 41 to 49.5 | 20 |  |" in card
    assert "161,844,480 parameters" in card
    assert r"- schedule: linear: \[\*\]" in card
    assert "- hardware: 1 x NVIDIA H100" in card


@pytest.mark.parametrize("baseline", ["majority", "chance"])
def test_scores_of_labels_are_compared_with_their_baseline(baseline):
    scores = {"accuracy": 81.0, "negative_loss": -0.5, f"{baseline}_accuracy": 50.0}
    record = RECORD | {"scores": scores, "intervals": {}}
    card = model_card(FACTS._replace(objective="classify", record=record))
    assert f'"validation".\n\n| score | value | interval | {baseline} |\n' in card
    assert "| accuracy | 81 |  | 50 |\n" in card
    assert f"{baseline}_accuracy" not in card  # it is not the model's
    assert f"{baseline}\\_accuracy" not in card


def test_local_directories_are_not_published():
    local = FACTS._replace(
        base="/home/alice/secret/model",
        source="json:/home/alice/reports/{split}.jsonl",
        name='a "quoted"\nname',
        record=None,
    )
    card = model_card(local)
    assert "alice" not in card
    assert "continues model," in card
    assert "source: json:{split}.jsonl" in card
    assert "Not evaluated." in card
    assert "base_model" not in card


def test_sources_of_mixtures_are_published_like_others():
    parts = "0.7*json:/home/alice/a.jsonl+0.3*hf:org/name@abc+2*json:/home/alice/a.jsonl.gz"
    card = model_card(FACTS._replace(source=f"mix:{parts}"))
    assert r"mix:0.7\*json:a.jsonl+0.3\*hf:org/name@abc+2\*json:a.jsonl.gz" in card
    assert "alice" not in card


def test_a_card_that_its_author_changed_stays(tmp_path):
    path = tmp_path / "README.md"
    assert write_card(path, FACTS)
    assert write_card(path, FACTS._replace(steps=80))
    text = path.read_text(encoding="utf-8")
    assert "- steps: 80" in text
    path.write_text(text.replace(MARK, "Mine."), encoding="utf-8")
    assert not write_card(path, FACTS)
    assert "Mine." in path.read_text(encoding="utf-8")


def test_the_card_of_a_model_is_no_longer_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    copy_card(tmp_path, tmp_path / "model")
    assert not (tmp_path / "model" / "README.md").exists()
    write_card(tmp_path / "README.md", FACTS)
    copy_card(tmp_path, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert text == model_card(FACTS).replace(f"{MARK}\n", "")


def test_the_best_evaluation_is_the_one_that_is_loaded():
    records = [
        {"step": step, "scores": {"a": value}} for step, value in ((1, 2.0), (2, 5.0), (3, 4.0))
    ]
    assert best_record(records, "a")["step"] == 2
    tied = [*records, {"step": 4, "scores": {"a": 5.0}}, {"step": 5, "scores": {"a": None}}]
    assert best_record(tied, "a")["step"] == 4
    assert best_record(records, None)["step"] == 3
    assert best_record([], "a") is None
