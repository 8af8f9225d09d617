import json

import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import checkpoint_metadata
from longsum_jax.training.checkpointing import restore_params

METADATA = "3/meta/metadata"


def test_another_format_is_refused(tmp_path, monkeypatch, toy):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_metadata, "FORMAT_VERSION", 99)
        toy.save_checkpoints(tmp_path, {3: None})
    with pytest.raises(
        InputError, match=r"step 3 has checkpoint format 99 .* this version reads format 1"
    ):
        restore_params(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "step 3 is not a checkpoint of this library"),
        ("[]", "step 3 is not a checkpoint of this library"),
        ("[" * 100_000, "step 3 is not a checkpoint of this library"),
        ({"parameters": {"bias": [[-1], "float32"]}}, "list of its parameters"),
        ({"parameters": {"bias": [[10**12, 10**12], "float32"]}}, "parameters are missing or"),
        ({"parameters": {"bias": [[3], "float33"]}}, "list of its parameters"),
        ({"parameters": {"bias": [[3], "a,,b,["]}}, "list of its parameters"),
        ({"parameters": 7}, "list of its parameters"),
        ({"state": {"step": None}}, "list of its state"),
        ({"metrics": [1]}, "evaluation is missing or damaged"),
        ({"metrics": {"mean_rouge": "1"}}, "evaluation is missing or damaged"),
        ({"metrics": {"mean_rouge": True}}, "evaluation is missing or damaged"),
        ({"metrics": {"mean_rouge": 10**400}}, "evaluation is missing or damaged"),
        ({"metrics": ...}, "evaluation is missing or damaged"),
        ({"best_metric": ["mean_rouge"]}, "name of its best metric is missing or damaged"),
        ({"best_metric": ...}, "name of its best metric is missing or damaged"),
        ({"format_version": True}, "checkpoint format True of .*reads format 1"),
    ],
)
def test_damaged_metadata_without_sums_are_one_sentence(tmp_path, content, message, toy):
    toy.save_checkpoints(tmp_path, {3: None})
    toy.forget_sums(tmp_path / "3")
    if isinstance(content, dict):
        changed = json.loads((tmp_path / METADATA).read_text()) | content
        retained = {name: value for name, value in changed.items() if value is not ...}
        content = json.dumps(retained)
    (tmp_path / METADATA).write_text(content)
    with pytest.raises(InputError, match=message):
        restore_params(tmp_path)
