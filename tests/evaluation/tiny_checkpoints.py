"""Small models as transformers writes them, with the same weights on every machine.

    python tests/evaluation/tiny_checkpoints.py DIRECTORY

writes them for scripts in tests/golden.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

SENTENCES = [
    "The river rose after three days of rain, and the lower town was flooded.",
    "Boats carried families to the school on the hill.",
    "Engineers had warned the council about the old dam in spring.",
    "Nobody was hurt.",
    "The mayor promised a new dam before winter.",
]
WORDS = [
    "the",
    "dam",
    "river",
    "town",
    "rain",
    "was",
    "and",
    "##ed",
    "##s",
    "##er",
    "##ing",
    "##or",
]
MERGES = "t h,th e,Ġ the,d a,da m,Ġ dam,e r,o w,Ġ w,r i,ri v,riv er,Ġ river,e d,i n,in g,Ġ a"
POSITIONS = 40

BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": POSITIONS,
}
BART = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": POSITIONS,
}


def write_bert(directory: Path) -> Path:
    """A BERT for masked words, 40 positions; WordPieces of characters and of a few words."""
    import tokenizers
    import transformers

    letters = sorted(set("".join(SENTENCES).lower()) - {" "})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [f"##{letter}" for letter in letters if letter.isalpha()]
    pieces += [word for word in WORDS if word not in pieces]
    config = transformers.BertConfig(vocab_size=len(pieces), **BERT)
    _write(transformers.BertForMaskedLM(config), directory)
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary)
    tokenizer.save(str(directory / "tokenizer.json"))
    return _write_tokenizer_config(directory, "BertTokenizer")


def write_roberta(directory: Path) -> Path:
    """A RoBERTa for masked words, 40 positions, with byte-level BPE."""
    import transformers

    sizes = BERT | {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
    config = transformers.RobertaConfig(vocab_size=_num_bytes_and_merges(), **sizes)
    _write(transformers.RobertaForMaskedLM(config), directory)
    return _write_byte_level(directory, "RobertaTokenizer")


def write_bart(directory: Path) -> Path:
    """A BART that summarizes, 40 positions on both sides, with byte-level BPE."""
    import transformers

    config = transformers.BartConfig(vocab_size=_num_bytes_and_merges(), **BART)
    _write(transformers.BartForConditionalGeneration(config), directory)
    return _write_byte_level(directory, "BartTokenizer")


def _write(model, directory):
    """Writes a model whose parameters are drawn so that texts differ in their states."""
    import torch

    draw = np.random.RandomState(0).standard_normal  # the same stream in all versions of numpy
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            scale = 1.0 if "embed" in name else 0.3 if parameter.ndim > 1 else 0.1
            center = 1.0 if re.search(r"[nN]orm.*weight", name) else 0.0
            parameter.copy_(torch.tensor(center + scale * draw(tuple(parameter.shape))))
    model.save_pretrained(directory)


def _bytes():
    """The characters that stand for the bytes in byte-level BPE."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def _merges():
    return [tuple(merge.split(" ")) for merge in MERGES.split(",")]


def _vocabulary():
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *_bytes(), *map("".join, _merges()), "<mask>"]
    return {piece: i for i, piece in enumerate(pieces)}


def _num_bytes_and_merges():
    return len(_vocabulary())


def _write_byte_level(directory, tokenizer_class):
    import tokenizers
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

    vocabulary, merges = _vocabulary(), _merges()
    (directory / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    lines = ["#version: 0.2", *map(" ".join, merges)]
    (directory / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.add_special_tokens([*special, AddedToken("<mask>", lstrip=True)])
    tokenizer.save(str(directory / "tokenizer.json"))
    return _write_tokenizer_config(directory, tokenizer_class)


def _write_tokenizer_config(directory, tokenizer_class):
    content = {"tokenizer_class": tokenizer_class, "model_max_length": POSITIONS}
    (directory / "tokenizer_config.json").write_text(json.dumps(content))
    return directory


if __name__ == "__main__":
    for write in (write_bert, write_roberta, write_bart):
        write(Path(sys.argv[1]) / write.__name__.removeprefix("write_"))
