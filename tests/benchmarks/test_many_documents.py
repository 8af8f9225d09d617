"""Many documents: both sides write the same, and a report that is there already is gone on with."""

import json
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.slow
def test_both_write_the_same_and_parts_are_measured_once(report, scripts, tmp_path, monkeypatch):
    flags = ["--size=tiny", "--models=bart", "--documents=4", "--part=2", "--shortest=20"]
    flags += ["--longest=90", "--max_source_length=64", "--max_new_tokens=12"]
    flags += ["--min_new_tokens=4", "--peer_batch_sizes=1,2"]
    result = report("many_documents", *flags)
    ours, peer = result["rows"]
    assert ours["documents"] == peer["documents"] == 4
    assert peer["equal"] == 1
    assert peer["warm_ratio"] > peer["ratio"] > 0
    assert [part["first"] for part in result["parts"]] == [0, 2]

    out = tmp_path / "many_documents.json"
    result["parts"].pop()
    out.write_text(json.dumps(result))
    again = report("many_documents", *flags)
    first, second = again["parts"]
    assert first == result["parts"][0]
    assert second["documents"] == 2
    monkeypatch.setattr(sys, "argv", ["many_documents.py", "--models=bart", f"--out={out}"])
    with pytest.raises(SystemExit, match="has bart with other settings"):
        scripts("many_documents").main()


def test_a_summary_ends_with_the_first_end(scripts):
    until_end = scripts("many_documents").until_end
    assert until_end([7, 8, 3, 1, 1], [3, 4]) == [7, 8, 3]
    assert until_end([7, 8], [3]) == [7, 8]
