"""Forms of the names of speakers, such as "Dr. Cleo van der Marsh (guest)"."""

import re

_REMARK = re.compile(r"\s*\([^()]*\)|,.*")  # "(guest)" or ", CFO" after a name
_NAME_PARTICLES = """
al and bin da de del della den der des di do dos du e el et i la le of ten ter
the und van von y zu zum zur
"""
_PARTICLES = frozenset(_NAME_PARTICLES.split())


def words_of_name(name: str) -> list[str]:
    """Returns the words of a name without particles ("van der") and remarks ("(guest)")."""
    words = _REMARK.sub("", name).split()
    return [word for word in words if word not in _PARTICLES]


def is_capitalized(name: str) -> bool:
    """Returns True if no word of a name begins in lower case, except for particles."""
    words = words_of_name(name)
    return bool(words) and not any(word[0].islower() for word in words)
