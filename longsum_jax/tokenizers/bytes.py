"""A tokenizer whose tokens are bytes, as in ByT5."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from longsum_jax.tokenizers.files import checked_ids, fingerprint
from longsum_jax.tokenizers.sentencepiece import write_config
from longsum_jax.tokenizers.special_tokens import SpecialTokens, SpecialTokenTemplate

NUM_BYTE_IDS = 259  # pad, eos, unk and 256 bytes


class ByteTokenizer(SpecialTokenTemplate):
    """Encodes UTF-8 bytes as ids from 3 on, as ByT5 does.

    Extra ids follow the bytes, `<extra_id_0>` first as in transformers.
    """

    pad_id, eos_id, unk_id = 0, 1, 2
    mask_id = None
    middle_ids = suffix_ids = (eos_id,)

    def __init__(self, extra_ids: int = 0, unused_ids: int = 0):
        self.extra_ids, self.unused_ids = extra_ids, unused_ids
        self.vocab_size = NUM_BYTE_IDS + extra_ids + unused_ids
        sentinels = {f"<extra_id_{index}>": NUM_BYTE_IDS + index for index in range(extra_ids)}
        self._special = SpecialTokens({"<pad>": 0, "</s>": 1, "<unk>": 2} | sentinels)

    @functools.cached_property
    def fingerprint(self) -> str:
        return fingerprint("bytes", b"", self.extra_ids, self.unused_ids)

    def encode(self, text: str) -> list[int]:
        return self._special.encode(text, _encode_bytes)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self._special.spans(text, _byte_spans)

    def decode(self, ids: Iterable[int]) -> str:
        ids = checked_ids(ids, self.vocab_size)
        content = bytes(index - 3 for index in ids if 3 <= index < NUM_BYTE_IDS)
        return content.decode(errors="ignore")

    def save(self, directory: str | Path) -> None:
        write_config(directory, "ByT5Tokenizer", self.extra_ids, self.unused_ids)


def _byte_spans(text: str) -> list[tuple[int, int]]:
    return [(i, i + 1) for i, character in enumerate(text) for _ in character.encode()]


def _encode_bytes(text: str) -> list[int]:
    return [byte + 3 for byte in text.encode()]
