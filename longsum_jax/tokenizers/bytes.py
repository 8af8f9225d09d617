"""A tokenizer whose tokens are bytes, as in ByT5."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.tokenizers.files import (
    CHAT_TEMPLATE,
    checked_ids,
    fingerprint,
)
from longsum_jax.tokenizers.sentencepiece import SPECIAL_TOKENS, write_config
from longsum_jax.tokenizers.special_tokens import (
    SpecialTokens,
    SpecialTokenTemplate,
)

NUM_BYTE_IDS = 259  # pad, eos, unk and 256 bytes
NAMED = {"<pad>": 0, "</s>": 1, "<unk>": 2}


class ByteTokenizer(SpecialTokenTemplate):
    """Encodes UTF-8 bytes as ids from 3 on, as ByT5 does.

    Extra ids follow the bytes, `<extra_id_0>` first as in transformers, and are
    followed by added tokens. White space around `<pad>`, `</s>` and `<unk>` is
    part of these tokens.

    Args:
        extra_ids: number of `<extra_id_n>` sentinels.
        unused_ids: number of rows without a token at the end of the embedding.
        added: additional tokens in the order of their ids, {"content": text, "special":
            ...}; special ones are dropped from decoded text.
        chat_template: Jinja template of conversations; None for none.
    """

    pad_id, eos_id, unk_id = NAMED.values()
    mask_id: int | None = None
    middle_ids = suffix_ids = (eos_id,)
    named_tokens = SPECIAL_TOKENS

    def __init__(
        self,
        extra_ids: int = 0,
        unused_ids: int = 0,
        added: Sequence[Mapping[str, Any]] = (),
        chat_template: str | None = None,
    ):
        self.chat_template = chat_template
        self.extra_ids, self.unused_ids = extra_ids, unused_ids
        self._added = [
            {"content": token["content"], "special": bool(token.get("special"))}
            for token in added
        ]
        sentinels = [f"<extra_id_{index}>" for index in range(extra_ids)]
        following = [*sentinels, *(token["content"] for token in self._added)]
        ids = {
            text: index for index, text in enumerate(following, NUM_BYTE_IDS)
        }
        self._special = SpecialTokens(NAMED | ids, with_spaces=NAMED)
        self.control_ids = self._special.ids - {self.unk_id}
        self.vocab_size = NUM_BYTE_IDS + len(following) + unused_ids
        self._bytes = {
            index: bytes([index - 3]) for index in range(3, NUM_BYTE_IDS)
        }
        for token in self._added:
            if not token["special"]:
                self._bytes[ids[token["content"]]] = token["content"].encode()

    @functools.cached_property
    def fingerprint(self) -> str:
        if self._added:
            content = json.dumps(self._added).encode()
        else:
            content = b""
        return fingerprint("bytes", content, self.extra_ids, self.unused_ids)

    def encode(self, text: str) -> list[int]:
        if self._is_plain:
            return _encode_bytes(text)
        return self._special.encode(text, _encode_bytes)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        if self._is_plain:
            return _byte_spans(text)
        return self._special.spans(text, _byte_spans)

    def decode(self, ids: Iterable[int]) -> str:
        ids = checked_ids(ids, self.vocab_size)
        content = b"".join(self._bytes.get(index, b"") for index in ids)
        return content.decode(errors="ignore")

    def save(self, directory: str | Path) -> None:
        entries = {}
        if self._added:
            entries = self._added_entries()
        if self.chat_template is not None:
            entries[CHAT_TEMPLATE] = self.chat_template
        write_config(
            directory,
            "ByT5Tokenizer",
            self.extra_ids,
            self.unused_ids,
            **entries,
        )

    def _added_entries(self) -> dict[str, Any]:
        """Returns all tokens except the bytes, in transformers' format for added tokens."""
        is_special = {
            token["content"]: token["special"] for token in self._added
        }
        decoder = {}
        for text, index in self._special.by_text.items():
            flags = dict.fromkeys(("lstrip", "rstrip"), text in NAMED)
            flags |= {"single_word": False, "normalized": False}
            flags["special"] = is_special.get(text, True)
            decoder[str(index)] = {"content": text, **flags}
        special = [
            token["content"] for token in decoder.values() if token["special"]
        ]
        special = [text for text in special if text not in NAMED]
        return {
            "added_tokens_decoder": decoder,
            "additional_special_tokens": special,
        }


def _byte_spans(text: str) -> list[tuple[int, int]]:
    return [
        (i, i + 1)
        for i, character in enumerate(text)
        for _ in character.encode()
    ]


def _encode_bytes(text: str) -> list[int]:
    return [byte + 3 for byte in text.encode()]
