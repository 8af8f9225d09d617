"""Decoder weights in bfloat16 or int8, with which decoding steps compute in float32."""

from typing import Any, NamedTuple

import jax

from longsum_jax.errors import InputError
from longsum_jax.ops.storage import STORAGES, Storage, Stored, store
from longsum_jax.typing import Array

# Maps that decoding steps apply, with the number of axes they contract. The
# encoder's key and value maps and the maps of memories are not converted.
_STORED_MAPS = {
    **{("self_attention", name): 1 for name in ("q", "k", "v")},
    **{
        (attention, "o"): 2
        for attention in ("self_attention", "cross_attention")
    },
    ("cross_attention", "q"): 1,
    **{("feed_forward", name): 1 for name in ("wi", "wi_0", "wi_1", "wo")},
}

_store = jax.jit(store, static_argnums=(1, 2))  # one program per shape


class StoredDecoder(NamedTuple):
    """Weights of a decoder in a storage type, see ``ops.storage``.

    Attributes:
        layers: parameters of every layer.
        logits_table: output embedding table, [d_model, vocab].
    """

    layers: tuple[Any, ...]
    logits_table: Stored


def check_storage(config: Any, storage: str) -> None:
    """Raises InputError for an unknown storage type, or one that a model does not support."""
    if storage not in STORAGES:
        raise InputError(
            f'decoder_storage={storage!r} is not supported; give "float32", "bfloat16" or "int8"'
        )
    if storage == "float32":
        return
    where = f'decoder_storage="{storage}"'
    if config.head != "language_model":
        raise InputError(f"{where} is for models that write text; leave it out")
    if config.dtype != "float32":
        raise InputError(
            f'{where} computes in float32; leave out dtype="{config.dtype}"'
        )
    if config.has_memory:
        raise InputError(
            f"{where} is not for models with a memory of segments; leave it out"
        )
    if config.cross_attention == "nearest":
        raise InputError(
            f'{where} is not for cross_attention "nearest", which chooses keys by exact scores; '
            "leave it out"
        )


def stored_decoder(
    layers: tuple[Any, ...], table: Array, storage: Storage
) -> StoredDecoder:
    """Copies the weights that a decoding step reads to a storage type.

    Args:
        layers: parameters of every layer.
        table: output embedding table, [vocab, d_model].
        storage: "bfloat16" or "int8".
    """
    copies = []
    for layer in layers:
        stored = {name: dict(module) for name, module in layer.items()}
        for (module, name), num_inputs in _STORED_MAPS.items():
            # One attention has the maps of both if the config merges them.
            if name in stored.get(module, {}):
                linear = stored[module][name]
                # One scale for each output: the contracted axes come first.
                kernel = _store(
                    linear["kernel"], storage, tuple(range(num_inputs))
                )
                stored[module][name] = dict(linear, kernel=kernel)
        copies.append(stored)
    return StoredDecoder(tuple(copies), _store(table.T, storage, (0,)))
