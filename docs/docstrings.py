"""Docstrings of this library, made safe for reStructuredText.

They are plain text with ``code`` and Google sections. Drawings and tables in them are indented, a
star is a star, and a bar is a bar.
"""

import inspect
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples?|Notes?):\s*(\S.*)?$")
_RESULTS = ("Returns", "Yields")
_NAMED = re.compile(r"^    \w+: ")
_ITEM = re.compile(r"^(- |\* |\d+\. )")
_CODE = re.compile(r"(``.+?``|`[^`\n]+`)")
_SPECIAL = re.compile(r"([*|\\])|_(?![A-Za-z0-9_])|(?<![`])`")


def tidy(lines: Sequence[str]) -> list[str]:
    """Returns ``lines`` with escapes, drawings as literal blocks, and even indents in sections."""
    result: list[str] = []
    section, block, item = "", False, False
    for line in _joined_code(lines):
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            result.append("")
            item = False
            continue
        if not indent:
            results = _SECTION.match(line)
            section = results[1] if results else ""
            if block:
                result.append("")
            block, item = False, bool(_ITEM.match(line))
            if results and results[2]:  # "Attributes: name: text" in one line
                result += [f"{results[1]}:", f"    {escape(results[2])}"]
            else:
                result.append(line if section else escape(line))
        elif section in _RESULTS:
            if _NAMED.match(line) and result[-1].strip() != f"{section}:":
                result.append("")  # one paragraph for each named result
            result.append("    " + escape(line.strip()))
        elif section:
            result.append(" " * min(indent, 8) + escape(line.strip()))
        elif item and not block:
            result.append("  " + escape(line.strip()))
        else:
            if not block:
                result += ["", "::", ""]
            block = True
            result.append(line)
    return [*result, ""]


def escape(text: str) -> str:
    """Returns ``text`` with markup characters escaped outside code."""
    pieces = _CODE.split(text)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = _SPECIAL.sub(lambda found: "\\" + found[0], piece)
        elif not piece.startswith("``"):
            pieces[i] = f"`{piece}`"
    return "".join(pieces)


def _joined_code(lines: Iterable[str]) -> list[str]:
    """Returns ``lines`` with code that runs over the end of a line moved to the next line."""
    result: list[str] = []
    carried = ""
    for line in lines:
        if carried and line.strip():
            line = line[: len(line) - len(line.lstrip())] + carried + " " + line.lstrip()
            carried = ""
        without_code = _CODE.sub(lambda code: " " * len(code[0]), line)
        start = without_code.find("`")
        if start >= 0:
            carried = line[start:].rstrip()
            line = line[:start].rstrip()
            if not line:
                continue
        result.append(line)
    return [*result, carried] if carried else result


def is_foreign(member: Any, packages: Collection[str]) -> bool:
    """Returns True if other packages define a member of a class, or its docstring."""
    if (member.__doc__ or "").startswith("Alias for field number"):
        return True  # of a NamedTuple
    target = inspect.unwrap(member.fget if isinstance(member, property) else member)
    target = getattr(target, "__func__", target)
    module = getattr(target, "__module__", None)
    if module is not None and not _is_in(module, packages):
        return True
    if not inspect.isfunction(target) or target.__doc__:
        return False
    # Autodoc shows the docstring of the method that this one overrides.
    owner, _, name = target.__qualname__.rpartition(".")
    for base in getattr(sys.modules[module], owner, object).__mro__:
        if getattr(vars(base).get(name), "__doc__", None):
            return not _is_in(base.__module__, packages)
    return False


def _is_in(module: str, packages: Collection[str]) -> bool:
    return module.partition(".")[0] in packages


def shorten(text: str) -> str:
    """Returns a signature without the parts of its types that a reader does not need."""
    text = re.sub(r"Annotated\[(\w+), Range\([^()]*\)\]", r"\1", text)
    text = text.replace("jaxlib._jax.Array", "Array")
    # A JAX or a NumPy array of the same shape.
    array = r"(~?[\w.]+)\[~?Array, ('[^']*')\]"
    text = re.sub(array + r" \| \1\[~?(?:numpy\.)?ndarray, \2\]", r"\1[Array, \2]", text)
    return re.sub(r"<(?:class|function) '?([\w.]+).*?>", r"\1", text)
