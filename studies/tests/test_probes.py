"""The probes: generated tasks beside a slow reading of their texts, and a tiny cell."""

import json
import sys
from argparse import Namespace

import numpy as np
import pytest

LENGTHS = (16, 64, 65, 300)


@pytest.fixture(scope="module")
def tasks(scripts):
    return scripts("probe_tasks")


@pytest.fixture(scope="module")
def models(scripts):
    return scripts("probe_models")


@pytest.fixture(scope="module")
def training(scripts):
    return scripts("probe_training")


@pytest.fixture(scope="module")
def probes(scripts):
    return scripts("probes")


def spelled(tasks, ids):
    """Characters of a text; the first one, the task, is left out."""
    return tasks.spell(ids).split()[1:]


def after(text, *marks):
    """Places behind every occurrence of marks in a row."""
    n = len(marks)
    return [i + n for i in range(len(text) - n + 1) if tuple(text[i : i + n]) == marks]


def read_needle(text):
    (i,) = after(text, "<")
    return text[i : i + 4]


def read_multi_needle(text):
    spans = {text[i]: text[i + 1 : i + 3] for i in after(text, "<")}
    return spans["1"] + spans["2"] + spans["3"]


def read_recall(text):
    values = {text[i]: text[i + 1] for i in after(text, "<")}
    asked = text[text.index("?") + 1 :]
    return [token for key in asked for token in (key, values[key])]


def read_salient_copy(text):
    return [token for i in after(text, "<") for token in text[i : i + 3]]


def read_count(text):
    votes = {letter: text.count(letter) for letter in "abcd"}
    best = [letter for letter, n in votes.items() if n == max(votes.values())]
    return [str(text.count("<")), *best]


def read_entity(text):
    aliases = {text[i]: text[i + 1] for i in after(text, "<")}
    values = {text[i]: text[i + 1] for i in after(text, "{")}
    alias = aliases[text[-1]]
    return [text[-1], alias, values[alias]]


def read_query_focus(text):
    assert text[0] == "?"
    return [token for i in after(text, text[1])[1:] for token in text[i : i + 3]]


def read_redundancy(text):
    facts = dict.fromkeys(tuple(text[i : i + 2]) for i in after(text, "<"))
    return [token for fact in facts for token in fact]


def read_distractor(text):
    (i,) = after(text, "<", "{")
    return text[i : i + 4]


READERS = {name[5:]: read for name, read in globals().items() if name.startswith("read_")}


def test_every_task_has_a_reader(tasks):
    assert READERS.keys() == tasks.TASKS.keys()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("length", LENGTHS)
def test_answers_are_what_a_reader_finds(tasks, name, length):
    batch = tasks.draw(name, 40, length, 7)
    assert batch.ids.shape == (40, length)
    assert batch.ids.max() < tasks.VOCABULARY
    assert batch.ids.min() > tasks.EOS
    for ids, answer in zip(batch.ids, batch.answers, strict=True):
        assert tasks.spell(answer).split() == READERS[name](spelled(tasks, ids))


def test_short_texts_without_votes_have_a_winner(tasks):
    batch = tasks.draw("count", 1000, tasks.SHORTEST, 0)
    for ids, answer in zip(batch.ids, batch.answers, strict=True):
        assert tasks.spell(answer).split() == read_count(spelled(tasks, ids))


def test_the_first_symbol_is_the_task(tasks):
    first = {int(tasks.draw(name, 1, 64, 0).ids[0, 0]) for name in tasks.TASKS}
    assert len(first) == len(tasks.TASKS)


@pytest.mark.parametrize("name", READERS)
def test_same_seed_same_texts(tasks, name):
    one, same, other = (tasks.draw(name, 5, 64, [seed, 2]) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one.ids, other.ids)


def test_distance_is_from_the_fact_to_the_question(tasks):
    needle = tasks.draw("needle", 50, 100, 0)
    marks = (needle.ids == tasks.MARK).argmax(1)
    assert (needle.distances == 100 - marks).all()
    entity = tasks.draw("entity", 50, 100, 0)
    for ids, distance in zip(entity.ids, entity.distances, strict=True):
        text = spelled(tasks, ids)
        _, alias, _ = read_entity(text)
        places = [after(text, "<", text[-1])[0] - 2, after(text, "{", alias)[0] - 2]
        assert distance == abs(places[0] - places[1])


def test_facts_stand_everywhere(tasks):
    distances = tasks.draw("needle", 2000, 64, 0).distances
    counts = np.bincount(distances, minlength=65)[5:64]
    assert counts.min() > 10


def test_texts_that_are_too_short_are_refused(tasks):
    with pytest.raises(ValueError, match="facts need 16 tokens"):
        tasks.draw("entity", 1, 15, 0)


def test_models_have_as_many_parameters(models):
    whole = [(encoder, "hepos", "none") for encoder in models.ENCODERS]
    whole += [("s4d", cross, "none") for cross in models.CROSSES]
    of_facts = [("full", "full", memory) for memory in models.SAY_FACTS]
    alone = {"none", *models.SAY_FACTS}
    in_segments = [("full", "full", memory) for memory in models.MEMORIES if memory not in alone]
    for names in (whole, in_segments, of_facts):
        sizes = [models.num_parameters(*models.make_config(*name)) for name in names]
        assert max(sizes) < 1.005 * min(sizes)


def test_lengths_of_a_plan_take_turns(training):
    assert training.plan_of("16:300,64+256:200") == [([16], 300), ([64, 256], 200)]


def test_segments_are_of_sixteen_to_sixty_four_tokens(training):
    shapes = [training.segments(np.zeros((2, n), int)).shape for n in (16, 32, 64, 256, 1024)]
    assert shapes == [(2, 1, 16), (2, 2, 16), (2, 4, 16), (2, 4, 64), (2, 16, 64)]


def test_segments_read_marked_facts_of_others(tasks, training):
    ids = np.full((1, 64), tasks.SYMBOLS[0], np.int32)
    fact = [tasks.MARK, *tasks.SYMBOLS[1:5]]
    ids[0, 14:19] = fact  # two tokens in the first segment of sixteen, three in the second
    parts = training.segments(ids)
    batch = {"input_ids": parts, "attention_mask": np.ones(parts.shape, bool)}
    text = training.with_text(batch, ids)
    tails, masks = text["input_ids"][0, :, 16:], text["attention_mask"][0, :, 16:]
    assert masks.tolist() == [[False] * 2 + [True] * 3, [True] * 2 + [False] * 3] + [[True] * 5] * 2
    assert (tails == np.where(masks, fact, tasks.PAD)).all()
    assert (text["input_ids"][..., :16] == parts).all()
    vectors = training.with_vectors(batch, ids)
    assert vectors["slots"].reshape(64).tolist() == [-1] * 14 + [0, 1, 2, 3, 4] + [-1] * 45
    assert vectors["reads"][0].tolist() == np.where(masks, np.arange(5), -1).tolist()


def test_memories_of_one_fact_take_no_other_task(probes):
    flags = {"encoders": "full", "crosses": "full", "memories": "se3,text"}
    flags |= {"plan": "", "seeds": "0"}
    assert len(probes.cells(Namespace(tasks="needle", **flags))) == 2
    with pytest.raises(SystemExit, match='memory "text" is for texts of one fact'):
        probes.cells(Namespace(tasks="needle,recall", **flags))


def test_facts_are_said_in_the_segment_where_they_end(tasks, training):
    cell = training.Cell("needle", "full", "full", "attentive_decoder", "16:1", 0)
    args = Namespace(plan="16:1", learning_rate=1e-3, tokens=64)
    probe = training.make_probe(cell, args)
    batch = probe._batch(64, [0])
    text = tasks.draw("needle", 1, 64, [0, 0])
    end = int((text.ids == tasks.MARK).argmax()) + 4
    labels = batch["labels"][0]
    expected = [*text.answers[0], tasks.EOS]
    assert labels[-1].tolist() == labels[end // 16].tolist() == expected
    assert (labels != -100).any(1).sum() == len({3, end // 16})


def test_means_by_distance(probes):
    cell = dict.fromkeys(("task", "encoder", "cross", "memory", "length", "tasks", "plan"), "x")
    seeds = [
        cell | {"exact": 0.0, "texts": 4, "by_distance": exact, "tokens_by_distance": tokens}
        for exact, tokens in (
            ([0.5, 0.0, None, None], [0.5, 0.25, 0.0, None]),
            ([1.0, 0.5, 0.5, None], [0.7, 0.25, None, None]),
        )
    ]
    [row] = probes.means(seeds)
    assert row["mean_by_distance"] == [0.75, 0.25, 0.5, None]
    assert row["mean_tokens_by_distance"] == [pytest.approx(0.6), 0.25, 0.0, None]
    assert row["interval_tokens_by_distance"] == [pytest.approx(1.27062), 0.0, None, None]


def test_interval_of_seeds_and_of_texts(probes):
    assert probes.interval([0.5, 0.7], 40) == pytest.approx(12.7062 * 0.1, rel=1e-4)
    assert probes.interval([0.5], 100) == pytest.approx(0.0962, abs=1e-4)
    assert probes.interval([1.0], 100) > 0.01


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    out = tmp_path_factory.mktemp("probes") / "out.json"
    small = ["--tasks=needle+recall", "--encoders=local", "--crosses=hepos", "--plan=16:2,16+32:3"]
    small += ["--tokens=64", "--lengths=64", "--read_tokens=1", "--least=3"]
    return [*small, f"--out={out}"], out


def test_a_tiny_cell_runs_and_goes_on(probes, flags, monkeypatch, capsys):
    small, out = flags
    make_probe, made = probes.make_probe, []

    def make_once(cell, args):
        made[:] = made or [make_probe(cell, args)]
        return made[0]

    # The second start would compile the same again.
    monkeypatch.setattr(probes, "make_probe", make_once)
    monkeypatch.setattr(probes.jax, "clear_caches", lambda: None)

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["probes.py", *small, *more])
        probes.main()
        assert "needle" in capsys.readouterr().out
        return json.loads(out.read_text())["rows"]

    first = run("--seeds=0")
    assert [row["task"] for row in first] == ["needle", "recall"] * 2
    both = run("--seeds=0,1")
    assert both[:2] == first[:2]
    assert [row.get("seed") for row in both] == [0, 0, 1, 1, None, None]
    for row in both[:4]:
        assert row["texts"] == sum(row["texts_by_distance"]) == 3
        assert 0 <= row["exact"] <= row["tokens"] <= 1
        texts = [n or None for n in row["texts_by_distance"]]
        assert [x is None for x in row["tokens_by_distance"]] == [n is None for n in texts]
    assert [row["seeds"] for row in both[4:]] == [2, 2]
    monkeypatch.setattr(probes, "make_probe", None)  # nothing is left to do
    assert run("--seeds=0,1") == both
