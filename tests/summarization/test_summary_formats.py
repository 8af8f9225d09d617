from longsum_jax.readers.document import Document
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_formats import Entry


def test_documents_of_standard_input_have_a_dash_for_its_name():
    summary = Summary("A.", 1, 1, 0, 1, "eos")
    for name, expected in (
        ("standard input", "-"),
        ("standard input:the standard input.txt", "-:the standard input.txt"),
    ):
        entry = Entry.of(Document("A.", name, "-"), summary, 0.126)
        assert (entry.file, entry.seconds) == (expected, 0.13)
    assert Entry.of(Document("A.", "standard input", "a"), summary, 1.0).file == "standard input"
