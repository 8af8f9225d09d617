import hashlib
import re

from longsum_jax.data.minutes import SIZES
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task


def test_summaries_are_the_decisions_in_their_order():
    task = get_task("minutes")
    rows = list(documents(task, "validation"))
    assert len(rows) == SIZES["validation"]
    for row in rows:
        sentences = re.findall(r"[^.]+\.", row.document)
        decisions = [text for text in sentences if "It was decided" in text]
        assert row.summary == "".join(decisions).strip()
        assert len(decisions) in (1, 2)
        assert not row.document.startswith("It was decided")  # lead does not find them
    assert rows == list(documents(task, "validation"))


def test_splits_and_documents_differ():
    texts = {row.document for row in documents(get_task("minutes"), "validation")}
    train = documents(get_task("minutes"), "train")
    texts |= {next(train).document for _ in range(SIZES["validation"])}
    assert len(texts) == 2 * SIZES["validation"]


def test_documents_stay_as_they_were():
    """Results that are stored are of these."""
    rows = documents(get_task("minutes"), "validation")
    text = "\n".join(f"{row.document}\n{row.summary}" for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e29b40636ff75eb2"
