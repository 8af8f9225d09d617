import json

from longsum_jax.commands import corpus
from longsum_jax.text.overlap import NgramOverlap


def test_shared_ngrams_are_counted_in_order_and_without_punctuation():
    overlap = NgramOverlap(["a b c d", "d c b a", "a b", "x y z"], size=3)
    overlap.add("Say: A, b, C! And a b.")
    overlap.add("")
    assert overlap.shares() == [0.5, 0, 0, 0]
    overlap.add("q x y z")
    assert overlap.shares() == [0.5, 0, 0, 1]
    assert NgramOverlap([]).shares() == []


def test_the_command(tmp_path, capsys):
    words = [f"w{n}" for n in range(30)]
    texts = {"train": [words], "test": [words[:20], words[10:] + words[:10], words[::-1]]}
    for split, rows in texts.items():
        lines = [
            json.dumps({"id": f"{n}", "document": " ".join(row)}) for n, row in enumerate(rows)
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    test, out = f"{tmp_path}/test.jsonl", tmp_path / "out.json"
    corpus.main(["overlap", test, f"--train={tmp_path}/train.jsonl", f"--out={out}"])
    assert capsys.readouterr().out.splitlines()[1].split() == [test, "3", "2", "1"]
    shares = json.loads(out.read_text(encoding="utf-8"))[test]
    assert shares == {"0": 1.0, "1": 8 / 18}
