"""Small BERTs with heads over pairs and words, with the same weights on every machine.

    python tests/evaluation/tiny_heads.py DIRECTORY

writes them for scripts in tests/golden.
"""

import json
import sys
from pathlib import Path

import numpy as np
from tiny_checkpoints import _write

POSITIONS = 512  # as many as the published packages take for granted
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": POSITIONS,
}
# Few words, so that a model without training guesses some of them.
WORDS = ["rain", "rivers", "boats", "water", "##falls", "##s", "storm", "a", "of", "cafe", "town"]
ENTAILMENT = ("contradiction", "neutral", "entailment")
FACTS = ("CORRECT", "INCORRECT")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER")


SOURCES = [
    "The river rose after three days of rain. Boats carried families to the school on the hill. "
    "Engineers had warned the council in 2019 about the old dam. Nobody was hurt. Too short.",
    "A storm. The mayor promised a new dam before winter, of $3 million.",
    "Rain fell on the town and on the hills behind it, all day long and all of the night.",
]
SUMMARIES = [
    "Boats carried families after days of rain. The council knew. An old dam failed in 2019, "
    "engineers said.",
    "A new dam was promised. " * 12,
    "",
]
# Of the words that the masked language model knows.
GUESSED = [
    "Rain rivers boats a storm. Waterfalls of a town storm boats. Café rivers, waters of rain!",
    "Storm. A of a. boats boats boats rain rain rain town town storm storm storm rivers cafe.",
    "Ωmega rain of unknown storm. " + "Rain rivers boats town storm cafe " * 60 + ".",
]
HELP = ["Storm rivers of boats. Town rain.", "", "Rain boats town. " * 130]


def conv_layers(bins):
    """The layers of SummaC-Conv over so many bins, as its training saves them."""
    import torch

    shapes = {
        "mlp.weight": (1, bins),
        "mlp.bias": (1,),
        "layer_final.weight": (2, 3),
        "layer_final.bias": (2,),
    }
    draw = np.random.RandomState(0).standard_normal
    return {name: torch.tensor(draw(shape)).float() for name, shape in shapes.items()}


def write_entailment(directory: Path) -> Path:
    """A classifier of pairs with the labels of entailment."""
    return _with_labels("BertForSequenceClassification", directory, ENTAILMENT)


def write_facts(directory: Path) -> Path:
    """A classifier of pairs with the labels of FactCC."""
    return _with_labels("BertForSequenceClassification", directory, FACTS)


def write_tags(directory: Path) -> Path:
    """A model that labels words."""
    return _with_labels("BertForTokenClassification", directory, TAGS)


def write_answers(directory: Path) -> Path:
    """A model that answers questions."""
    return _write_bert("BertForQuestionAnswering", directory)


def write_masked(directory: Path) -> Path:
    """A masked language model of a dozen words."""
    return _write_bert("BertForMaskedLM", directory, words_only=True)


def _with_labels(name, directory, labels):
    numbered = dict(enumerate(labels))
    return _write_bert(name, directory, num_labels=len(labels), id2label=numbered)


def _write_bert(name, directory, words_only=False, **config):
    import torch
    import transformers

    letters = [] if words_only else "abcdefghijklmnopqrstuvwxyz0123456789,$%@"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *letters]
    pieces += [f"##{letter}" for letter in letters if letter.isalnum()]
    pieces += [word for word in WORDS if word not in pieces]
    model = getattr(transformers, name)(
        transformers.BertConfig(vocab_size=len(pieces), **SIZES, **config)
    )
    _write(model, directory)
    with torch.no_grad():
        if hasattr(model, "classifier"):
            model.classifier.weight *= 4  # certain of some pairs
        if words_only:
            model.cls.predictions.bias[:6] -= 10  # guesses words, mostly
    model.save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n")
    _write_tokenizer(pieces, directory)
    return directory


def _write_tokenizer(pieces, directory):
    import tokenizers

    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizers.BertWordPieceTokenizer(vocabulary).save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    for write in (write_entailment, write_facts, write_tags, write_answers, write_masked):
        write(Path(sys.argv[1]) / write.__name__.removeprefix("write_"))
