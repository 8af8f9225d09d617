"""The page of the server: a form, and summaries with their sources.

The page is one text without any address of another machine. Its policy allows
only the script and the style sheet that it contains, by their hashes, so that
a report that a browser stores from the page has the same protection.
"""

import base64
import hashlib
from typing import NamedTuple

from longsum_jax.evaluation.pages import fill, read_part
from longsum_jax.text.alignment import MAX_SOURCES, SUPPORTED

_SHARED_SCRIPTS = ("report.js", "report_viewer.js")
_PACKAGE = "longsum_jax.serving"


class WebPage(NamedTuple):
    """The page and the headers of its response."""

    text: str
    headers: dict[str, str]


def make_page(*, max_bytes: int) -> WebPage:
    """Returns the page of a server.

    Args:
        max_bytes: maximum size of a request.
    """
    style = read_part("report.css") + read_part("page.css", _PACKAGE)
    scripts = [read_part(name) for name in _SHARED_SCRIPTS]
    script = "\n".join(
        ['"use strict";', *scripts, read_part("page.js", _PACKAGE)]
    )
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )
    text = fill(
        read_part("page.html", _PACKAGE),
        policy=policy,
        style=style,
        script=script,
        max_bytes=str(max_bytes),
        supported=str(SUPPORTED),
        max_sources=str(MAX_SOURCES),
    )
    headers = {
        # Browsers ignore frame-ancestors inside of pages.
        "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return WebPage(text, headers)


def _hash(text: str) -> str:
    """Returns a text's hash as a source of a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
