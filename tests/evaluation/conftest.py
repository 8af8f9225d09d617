"""Small models for metrics over a model, as transformers writes them; a browser for pages."""

import importlib.util
import os
from pathlib import Path

import pytest

SENTENCES = [
    "The river rose after three days of rain, and the lower town was flooded.",
    "Boats carried families to the school on the hill.",
    "Engineers had warned the council about the old dam in spring.",
    "Nobody was hurt.",
    "The mayor promised a new dam before winter.",
]


@pytest.fixture(scope="session")
def sentences():
    """Sentences of one story."""
    return list(SENTENCES)


def word_pieces(texts):
    """A vocabulary of WordPiece: characters, and the words that occur twice."""
    words = [word for text in texts for word in text.lower().replace(".", " .").split()]
    letters = sorted(set("".join(words)))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [f"##{letter}" for letter in letters]
    return pieces + sorted({word for word in words if words.count(word) > 1 and len(word) > 1})


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """A directory with a random BERT of transformers: 3 layers, 40 positions, and its tokenizer."""
    import torch
    import transformers

    directory = tmp_path_factory.mktemp("tiny_bert") / "model"
    pieces = word_pieces(SENTENCES)
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.BertForMaskedLM(config).save_pretrained(directory)
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("\n".join(pieces) + "\n")
    transformers.BertTokenizer(str(vocabulary), model_max_length=40).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser, for tests marked `browser`."""
    path = Path(__file__).with_name("browser.py")
    spec = importlib.util.spec_from_file_location("evaluation_browser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = os.environ["LONGSUM_JAX_BROWSER"]
    started = module.Browser(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
