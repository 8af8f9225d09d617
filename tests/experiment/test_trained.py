import dataclasses
import json

import pytest

from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.experiment.trained import objective_of
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.bytes import ByteTokenizer

SENTENCES = {"document": "One is. Two is. Three is.", "summary": "Two is."}
CHOICES = {"context": "It rains.", "question": "What?", "choices": ["rain", "Ann"], "label": 0}


@pytest.mark.parametrize(
    ("task", "head", "row", "wanted", "length"),
    [
        ("extracts", "extraction", SENTENCES, None, 9),  # as ``Model.extract``
        ("extracts", "extraction", SENTENCES, 12, 12),
        ("choices", "multiple_choice", CHOICES, None, 40),
        ("choices", "multiple_choice", CHOICES, 30, 30),
        ("masked_tokens", "masked_lm", {"text": "It rains."}, None, 40),
    ],
)
def test_a_model_is_scored_on_what_it_reads(tmp_path, task, head, row, wanted, length):
    """Sentences as long as those that it was trained on, and no more than it has positions for."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    family = get_family("bert")
    config = dataclasses.replace(
        family.presets["tiny"],
        vocab_size=300,
        max_position_embeddings=40,
        head=head,
        max_sentence_length=9,
    )
    model = Model(family, config, None, ByteTokenizer(extra_ids=4))
    task = get_task(task, source=f"json:{path}")
    objective = objective_of(model, task, split="test", max_source_length=wanted)
    assert objective.setup.task.max_source_length == length

    path.write_text("")
    with pytest.raises(InputError):  # before anything is scored
        objective_of(model, task, split="test", max_source_length=wanted)
