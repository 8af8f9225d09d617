"""Captions of figures and tables, known by how they begin."""

import re

LONGEST_CAPTION = 150  # words; more of them are a text that goes on behind a caption

_OF = r"(?:(?:supplementary|supplemental|suppl\.|extended data|appendix)\s+)?"
_FIGURE = r"fig(?:ure|\.)?|table|tab\.|abb(?:ildung|\.)|tabelle|tableau|figura|tabla|tabella|tabela"
_OTHERS = "scheme|chart|diagram|graph|plate|map|image|photo|illustration|listing|algorithm"
_NUMBER = r"(?:(?:[A-Z]{1,2}[.-]?)?\d{1,4}(?:[.-]\d{1,3})*[a-z]?|[IVXL]{1,6}|[A-Z])"
_CAPTION = re.compile(
    rf"[*_(\[]*(?i:{_OF}(?:({_FIGURE})|{_OTHERS}))(?:\s+|(?<=\.)){_NUMBER}[*_)\]]*"
    # "Figure 3: The", "Table 2. Costs", "Fig. 4 - Costs", "Figure 5", and "Fig. 3 The" of a figure.
    r"(?:\s?:[*_]*(?:\s|\Z)|\.[*_]*(?:\s+(?![a-z])|\Z)|\s+[|\u2013\u2014-]\s+(?![a-z])|\Z|"
    r"(?(1)\s+(?=[A-Z]\w)|(?!)))"
)


def begins_caption(text: str) -> bool:
    """Tells whether a text begins as a caption does, as "Figure 1: ..." or "Table 2. ...".

    "Figure 1 shows that" and "Table 2, which" begin sentences.
    """
    return _CAPTION.match(text) is not None
