"""Parses untrusted XML: without entities and external files, with limited depth."""

import posixpath
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterable, Mapping
from typing import TypeVar
from xml.parsers import expat

from longsum_jax.errors import InputError
from longsum_jax.readers.archives import read_member
from longsum_jax.readers.source import Source

T = TypeVar("T")

_OFFICE_PROPERTIES = "docProps/core.xml"
_MOST_DIGITS = 9  # maximum of a level or a count

MAX_DEPTH = 200


def read_xml(
    archive: zipfile.ZipFile, path: str, source: Source
) -> ElementTree.Element:
    """Returns the root of an XML file in an archive.

    Args:
        archive: archive of a document, such as an office file.
        path: path of the file in the archive.
        source: source of the archive.

    Raises:
        InputError: see ``read_member`` and ``parse_xml``.
    """
    name = f"{source.name}/{path}"
    return parse_xml(read_member(archive, path, name, source), name)


def parse_xml(content: bytes, name: str) -> ElementTree.Element:
    """Returns the root of a document; names have the form "{namespace}tag".

    Args:
        content: content of the document.
        name: name in error messages.

    Raises:
        InputError: the XML is damaged, declares entities or is nested too
            deeply.
    """
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise InputError(
                f"{name}: XML nested deeper than {MAX_DEPTH} elements; not read"
            )
        builder.start(
            _full(tag), {_full(key): value for key, value in attributes.items()}
        )

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_full(tag))

    def entity(*_: object) -> None:
        # Entities may expand to gigabytes or refer to local files.
        raise InputError(f"{name}: XML with entity declarations; not read")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = entity
    parser.buffer_text = True
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, ValueError, LookupError, AssertionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name}: damaged XML ({error}); save the document again"
        ) from None


def _full(tag: str) -> str:
    return "{" + tag if "}" in tag else tag


def local_name(element: ElementTree.Element) -> str:
    """Returns the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def relationships(
    archive: zipfile.ZipFile, path: str, source: Source
) -> dict[str, str]:
    """Returns the targets of a part of an Office Open XML document, by relationship id.

    Args:
        archive: archive of the document.
        path: path of the part in the archive.
        source: source of the archive.

    Raises:
        InputError: see ``read_xml``.
    """
    folder, name = posixpath.split(path)
    links = f"{folder}/_rels/{name}.rels"
    if links not in archive.namelist():
        return {}
    targets = {}
    for link in read_xml(archive, links, source):
        if link.get("TargetMode") != "External":
            target = posixpath.join("/", folder, link.get("Target", ""))
            targets[link.get("Id", "")] = posixpath.normpath(target).lstrip("/")
    return targets


def relationship_id(element: ElementTree.Element) -> str:
    """Returns the relationship id of an element; "" without one."""
    return next(
        (
            value
            for key, value in element.items()
            if key.endswith("relationships}id")
        ),
        "",
    )


def office_title(archive: zipfile.ZipFile, source: Source) -> str | None:
    """Returns the title in the properties of an Office Open XML document; None without one.

    Args:
        archive: archive of the document.
        source: source of the archive.

    Raises:
        InputError: see ``read_xml``.
    """
    if _OFFICE_PROPERTIES not in archive.namelist():
        return None
    properties = read_xml(archive, _OFFICE_PROPERTIES, source).iter()
    titles = (
        element.text for element in properties if local_name(element) == "title"
    )
    return next(filter(None, titles), None)


def inherited(
    values: Mapping[str, T], bases: Mapping[str, str]
) -> dict[str, T]:
    """Returns the values of styles; a style without a value inherits from its base style.

    Args:
        values: values by style id.
        bases: base style ids by style id; a damaged document may have cycles.
    """
    result = dict(values)
    for identifier in bases:
        base, steps = identifier, 0
        while base not in values and base in bases and steps < len(bases):
            base, steps = bases[base], steps + 1
        if base in values:
            result[identifier] = values[base]
    return result


def table_row(cells: Iterable[str]) -> str:
    """Returns the non-empty cells of a row, joined by bars."""
    return " | ".join(filter(None, (" ".join(cell.split()) for cell in cells)))


def whole_number(value: str) -> int | None:
    """Returns the value of a short digit string; None for any other attribute value."""
    is_number = (
        value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    )
    return int(value) if is_number else None
