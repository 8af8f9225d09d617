"""Flags that would have no effect are refused before anything is read."""

import importlib

import pytest

from longsum_jax.errors import InputError

PREPARE = "prepare --task=summaries --tokenizer=bytes --out=out"
PLAN = "plan --config=configs/quickstart.py"
CASES = [
    (f"{PREPARE} --ratio=0.3", "--ratio is for --objective=gap_sentences or summarize_segments"),
    (f"{PREPARE} --max_parts=9", "--max_parts is for --objective=summarize_segments or extract"),
    (
        f"{PREPARE} --objective=gap_sentences --summary_key=abstract",
        "--summary_key is for --objective=summarize or summarize_segments or extract or cloze or "
        "prefer, not for gap_sentences; leave it out",
    ),
    (f"{PREPARE} --rejected_key=bad", "--rejected_key is for --objective=prefer, not for summar"),
    (f"{PREPARE} --split=test --half=first", "--half=first is for --split=train, not for test"),
    (
        f"{PREPARE} --objective=classify --max_target_length=9",
        "--max_target_length is for --objective=gap_sentences or summarize",
    ),
    (f"{PREPARE} --data_dir=tfds", "--data_dir is for --source=tfds:NAME, not for json:"),
    (f"{PREPARE} --cache_dir=cache", "--cache_dir is for --source=tfds:NAME, not for json:"),
    (f"{PLAN} --batch_size=2", "--batch_size has no effect with --config; leave it out"),
    (f"{PLAN} --input_length=99", "--input_length has no effect with --config"),
    (f"{PLAN} --dtype=bfloat16", "--dtype has no effect with --config"),
    (f"{PLAN} --num_beams=2", "--num_beams has no effect with --config"),
    (f"{PLAN} --generation_option=a=1", "--generation_option has no effect with --config"),
    ("plan --model=m --programs=read", "--programs has no effect with --model; leave it out"),
    ("plan --model=m --config.a.b=1", "--config.a.b has no effect with --model; leave it out"),
    (
        "score a --references=b --split=test",
        "--split has no effect without --scrolls or --zero_scrolls; leave it out",
    ),
    ("score a --references=b --test=bootstrap", "--test has no effect without --against"),
    ("score a --document_key=text", "--document_key has no effect without --references"),
    (
        "score a --scrolls=qmsum --references=b --summary_key=text",
        "--summary_key has no effect with --scrolls=qmsum; leave it out",
    ),
    (
        "score a --scrolls=all --references=b --rounds=9",
        "--rounds cannot be combined with --scrolls=all",
    ),
    (
        "score a --scrolls=all --references=b --level=0.9",
        "--level cannot be combined with --scrolls=all",
    ),
    (
        "score a --scrolls=all --references=b --published=lsg:arxiv",
        "--published cannot be combined with",
    ),
    (
        "score a --stemmer --metric_option=rouge.stemmer=false",
        "--metric_option=rouge.stemmer=false contradicts --stemmer; leave one out",
    ),
    ("extract --oracle --data=a --out=b --threshold=0.3", "--threshold has no effect with"),
    ("summarize --batch_size=auto a", "--batch_size is for a model; give one with --model"),
    ("summarize --num_beams=2 a", "--num_beams is for a model; give one with --model"),
    ("extract --oracle --data=a --out=b --top_k=2", "--top_k has no effect with --oracle; leave"),
]


@pytest.mark.parametrize(("words", "problem"), CASES)
def test_flags_without_effect_are_refused(words, problem):
    command, *flags = words.split()
    with pytest.raises(InputError) as caught:
        importlib.import_module(f"longsum_jax.commands.{command}").main(flags)
    assert str(caught.value).startswith(problem)
