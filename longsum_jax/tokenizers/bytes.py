"""Bytes as tokens, in ByT5's manner."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from longsum_jax.tokenizers.files import checked_ids, fingerprint
from longsum_jax.tokenizers.sentencepiece import write_config
from longsum_jax.tokenizers.special_tokens import Closing, SpecialTokens

NUM_BYTE_IDS = 259  # pad, eos, unk and 256 bytes


class ByteTokenizer(Closing):
    """UTF-8 bytes shifted by three, as in ByT5; extra ids follow, `<extra_id_0>` first as in
    transformers."""

    pad_id, eos_id, unk_id = 0, 1, 2
    mask_id = None
    suffix_ids = (eos_id,)

    def __init__(self, extra_ids: int = 0, unused_ids: int = 0):
        self.extra_ids, self.unused_ids = extra_ids, unused_ids
        self.vocab_size = NUM_BYTE_IDS + extra_ids + unused_ids
        sentinels = {f"<extra_id_{index}>": NUM_BYTE_IDS + index for index in range(extra_ids)}
        self._special = SpecialTokens({"<pad>": 0, "</s>": 1, "<unk>": 2} | sentinels)

    @functools.cached_property
    def fingerprint(self) -> str:
        return fingerprint("bytes", b"", self.extra_ids, self.unused_ids)

    def encode(self, text: str) -> list[int]:
        return self._special.encode(text, lambda part: [byte + 3 for byte in part.encode()])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        ids = checked_ids(ids, self.vocab_size)
        return bytes(index - 3 for index in ids if 3 <= index < NUM_BYTE_IDS).decode(
            errors="ignore"
        )

    def save(self, directory: str | Path) -> None:
        write_config(directory, "ByT5Tokenizer", self.extra_ids, self.unused_ids)
