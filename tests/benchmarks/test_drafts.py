"""What drafts save, by the benchmark and by the search."""

import numpy as np
import pytest

from longsum_jax.decoding.drafts import look_up


@pytest.mark.parametrize(("count", "longest"), [(2, 1), (4, 2)])
def test_tokens_that_a_step_keeps_are_those_of_the_search(scripts, count, longest):
    rng = np.random.default_rng(0)
    document = rng.integers(0, 9, 30).tolist()
    summary = [*document[3:9], *rng.integers(0, 9, 3).tolist(), *document[12:18]]
    sequence = np.array([[99, *summary, *[98] * count]], np.int32)
    written = steps = 0
    while written < len(summary):
        draft = look_up(np.array([document]), sequence, np.array([written]), count, longest)[0]
        follows = sequence[0, 1 + written : 1 + written + count]
        written += 1 + int(np.cumprod(draft == follows).sum())
        steps += 1
    retained = scripts("drafts").tokens_per_step(document, summary, count, longest)
    assert 1 < retained == len(summary) / steps


@pytest.mark.slow
def test_steps_are_measured(report):
    flags = ("--models=bart", "--size=tiny", "--lengths=64", "--new_tokens=4", "--repeats=1")
    rows = report("drafts", "steps", "--drafted=2", *flags)["rows"]
    assert [(row["drafted"], row["study"]) for row in rows] == [(0, "steps"), (2, "steps")]
    assert rows[0]["times as long"] == 1
