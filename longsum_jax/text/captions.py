"""Captions of figures and tables, detected by their beginning."""

import re

LONGEST_CAPTION = 150  # words; longer texts continue after the caption

_OF = r"(?:(?:supplementary|supplemental|suppl\.|extended data|appendix)\s+)?"
_FIGURE = r"fig(?:ure|\.)?|table|tab\.|abb(?:ildung|\.)|tabelle|tableau|figura|tabla|tabella|tabela"
_OTHERS = "scheme|chart|diagram|graph|plate|map|image|photo|illustration|listing|algorithm"
_NUMBER = (
    r"(?:(?:[A-Z]{1,2}[.-]?)?\d{1,4}(?:[.-]\d{1,3})*[a-z]?|[IVXL]{1,6}|[A-Z])"
)
_CAPTION = re.compile(
    rf"[*_(\[]*(?i:{_OF}(?:({_FIGURE})|{_OTHERS}))(?:\s+|(?<=\.)){_NUMBER}[*_)\]]*"
    # "Figure 3: The", "Table 2. Costs", "Fig. 4 - Costs", "Figure 5"; figures
    # only: "Fig. 3 The".
    r"(?:\s?:[*_]*(?:\s|\Z)|\.[*_]*(?:\s+(?![a-z])|\Z)|\s+[|\u2013\u2014-]\s+(?![a-z])|\Z|"
    r"(?(1)\s+(?=[A-Z]\w)|(?!)))"
)


def begins_caption(text: str) -> bool:
    """Returns True if a text begins like a caption, such as "Figure 1: ..." or "Table 2. ...".

    "Figure 1 shows that" and "Table 2, which" are beginnings of sentences.
    """
    return _CAPTION.match(text) is not None
