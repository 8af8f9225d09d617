"""Registries whose classes and families are imported on first use."""

import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LazyClasses(MutableMapping[str, T], Generic[T]):
    """Classes by name, imported on first use.

    Listing the names imports nothing. A process needs few of the classes: a
    model has one family and few attentions, and a command's help shows only the
    names of metrics. Other packages add classes as to a dictionary,
    ``REGISTRY["name"] = Class``.

    Args:
        paths: name -> "module:Class".
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._entries: dict[str, T | str] = dict(paths)

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        module, _, class_name = entry.partition(":")
        loaded: T = getattr(importlib.import_module(module), class_name)
        self._entries[name] = loaded
        return loaded

    def __setitem__(self, name: str, value: T) -> None:
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def with_experimental(
    get_attribute: Callable[[str], Any], modules: Mapping[str, str]
) -> Callable[[str], Any]:
    """Returns a ``__getattr__`` that also finds names in ``longsum_jax.experimental``.

    Names that were public in a package before they moved can still be imported
    from it.

    Args:
        get_attribute: the package's ``__getattr__``.
        modules: name -> its module within ``longsum_jax.experimental``.
    """

    def get(name: str) -> Any:
        if name not in modules:
            return get_attribute(name)
        module = f"longsum_jax.experimental.{modules[name]}"
        return getattr(importlib.import_module(module), name)

    return get
