"""Serialized examples: the records of shards."""

from typing import cast

from longsum_jax.data.examples.base import Example

# Keys of examples that have a different name in records.
_RECORD_NAMES = {"segment_lengths": "part_lengths"}
_EXAMPLE_NAMES = {record: example for example, record in _RECORD_NAMES.items()}


def pack(example: Example) -> bytes:
    """Returns the serialized record of an example."""
    from flax import serialization

    record = {
        _RECORD_NAMES.get(key, key): value for key, value in example.items()
    }
    if "vectors" in record:
        # msgpack does not support tuples
        record["vectors"] = list(example["vectors"])
    return serialization.msgpack_serialize(record)


def unpack(record: bytes) -> Example:
    """Returns the example in a serialized record."""
    from flax import serialization

    values = serialization.msgpack_restore(record)
    example = {
        _EXAMPLE_NAMES.get(key, key): value for key, value in values.items()
    }
    if "vectors" in example:
        example["vectors"] = tuple(example["vectors"])
    return cast(Example, example)
