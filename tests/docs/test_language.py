"""Docstrings, comments and messages of the package follow the rules of its language.

The patterns are searched in whole files, because none of them matches code. To correct a fault,
rewrite the sentence; the remedies are examples.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("longsum_jax", "longsum_plan")
# Indentation, comment signs, and the quotes of a message over several lines. Newlines stay, so that
# the numbers of lines do not change.
MARGINS = re.compile(r'^[ \t]*(?:#+:? ?|[fr]*"(?!""))?|(?<!") ?"$', re.MULTILINE)


class Rule(NamedTuple):
    """A kind of fault.

    Attributes:
        pattern: regular expression for text without indentation, see `normalize`.
        fault: description of the fault.
        remedy: instruction for the author.
        bad: example of the fault.
        good: similar text that is allowed.
    """

    pattern: str
    fault: str
    remedy: str
    bad: str
    good: str


RULES = {
    "of-entry": Rule(
        r'^\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*: of\b|\bhelp="of\b',
        'an entry or a help text that begins with "of"',
        'begin with a noun ("seed: random seed of the sampling")',
        "seed: of the sampling.",
        "seed: random seed of the sampling.",
    ),
    "returns-what": Rule(
        r"Returns\s(?:what|whether|which|how|where)\b",
        'a relative clause after "Returns"',
        'name the result ("Returns the length"), or write "Returns True if"',
        "Returns whether the file exists.",
        "Returns True if the file exists.",
    ),
    "tells-whether": Rule(
        r"\b[Tt]ells\s(?:whether|if|what|which|how|where|why)\b",
        "a function that tells",
        'write "Returns True if", or name the result',
        "Tells whether the file exists.",
        "Returns True if the file exists.",
    ),
    "is-no": Rule(
        r"\b(?:is|are)\sno(?<!here\sis\sno)(?<!here\sare\sno)\s(?!longer\b|more\b|less\b|fewer\b)\w+",
        '"is no X"',
        'write "is not an X" or "must be an X"',
        "path is no directory",
        "There is no name; there are no keys; it is no longer than the text; it has no name",
    ),
    "is-none-of": Rule(
        r"\b(?:is|are)\snone\sof\b",
        '"is none of"',
        'write "must be one of A, B" or "unsupported X; use A or B"',
        'the ending ".gif" is none of .png, .svg',
        "None if there is none; none of the documents has a label",
    ),
    "those-of": Rule(
        r"\b(?:those|that)\sof\b|\bthose\s(?:that|which|who|with|without)\b",
        '"those of", "that of" or "those that" for a noun',
        "repeat the noun",
        "its output equals that of the model",
        "a state that often occurs",
    ),
    "too": Rule(
        r",\stoo(?=[.;:)])",
        '", too" at the end',
        'write "also" before the verb',
        "The decoder reads it, too.",
        "the text is too long",
    ),
    "beside": Rule(
        r"\b[Bb]eside\b",
        '"beside"',
        'write "next to", "compared with" or "in addition to"',
        "bfloat16 beside float32",
        "besides",
    ),
    "anew": Rule(
        r"\banew\b",
        '"anew"',
        'write "again"',
        "The key is drawn anew.",
        "a new key",
    ),
    "alone": Rule(
        r"\balone\b(?<!let\salone)(?<!stand-alone)",
        '"alone" for "only"',
        'write "only"',
        "logits of input_ids alone",
        "a stand-alone file, let alone a directory",
    ),
    "says": Rule(
        r"\bsays\s(?:so|why|what|which|how|where|whether|that)\b",
        "a thing that says something",
        'write "records", "contains", "reports" or "describes"',
        "config.json says which layers share parameters",
        "config.json lists the layers that share parameters",
    ),
}

# Lists of English words, which are data.
WORD_LISTS = ("longsum_jax/text/abbreviations.py", "longsum_jax/text/entities.py")

# Participles and other words that do not name what a variable contains.
NOT_NOUNS = {
    "asked",
    "chosen",
    "each",
    "found",
    "given",
    "kept",
    "known",
    "own",
    "place",
    "places",
    "said",
    "taken",
    "wanted",
}
# Arguments and fields of public names.
PUBLIC_NAMES = {
    ("longsum_jax/checkpoints/huggingface.py", "place"),
    ("longsum_jax/checkpoints/state_dict.py", "place"),
    ("longsum_jax/layers/decoder_cache.py", "place"),
    ("longsum_jax/layers/decoder_cache.py", "said"),
    ("longsum_jax/models/encoder_decoder.py", "chosen"),
}


def find_identifiers(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the name of each variable, argument and assigned attribute."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def normalize(text: str) -> str:
    """Returns the lines without indentation, comment signs and quotes at their ends."""
    return MARGINS.sub("", text)


def test_prose_follows_the_rules():
    faults = []
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name in WORD_LISTS:
            continue
        text = normalize(path.read_text(encoding="utf-8"))
        for rule in RULES.values():
            for match in re.finditer(rule.pattern, text, re.MULTILINE):
                line = 1 + text.count("\n", 0, match.start())
                prose = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
                faults.append(f"{name}:{line}: {rule.fault}; {rule.remedy}: {prose}")
    assert faults == [], "\n".join(["", *faults])


@pytest.mark.parametrize("name", RULES)
def test_pattern_matches_the_bad_example_only(name):
    rule = RULES[name]
    assert re.search(rule.pattern, rule.bad, re.MULTILINE)
    for other, other_rule in RULES.items():
        assert not re.search(rule.pattern, other_rule.good, re.MULTILINE), other


def test_faults_over_two_lines_are_found():
    message = '    raise InputError(\n        f"{path} is "\n        f"no directory"\n    )\n'
    assert re.search(RULES["is-no"].pattern, normalize(message), re.MULTILINE)
    comment = "x = 1  # the size is that\n    # of the model\n"
    assert re.search(RULES["those-of"].pattern, normalize(comment), re.MULTILINE)


def test_identifiers_are_nouns():
    faults = []
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, identifier in find_identifiers(path.read_text(encoding="utf-8")):
            if identifier in NOT_NOUNS and (name, identifier) not in PUBLIC_NAMES:
                faults.append(f"{name}:{line}: rename {identifier} to a noun of the field")
    assert faults == [], "\n".join(["", *faults])


def test_identifiers_of_every_kind_are_found():
    source = (
        "def f(known, *, place=0):\n    self.kept = [each for each in known]\n    found: int = 1"
    )
    names = {name for _, name in find_identifiers(source)}
    assert names == {"known", "place", "kept", "each", "found"}


def test_classes_have_different_names():
    # Classes inside of classes, such as ``Options``, have the name of the outer class.
    modules: dict[str, list[str]] = {}
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


PAGE_RULES = (
    "is-no",
    "returns-what",
    "tells-whether",
    "is-none-of",
    "those-of",
    "anew",
    "says",
    "too",
    "beside",
)


def test_pages_follow_the_rules():
    folders = ("guide", "extend", "design", "api", "results")
    paths = [path for name in folders for path in sorted((ROOT / "docs" / name).glob("*.md"))]
    paths += [ROOT / "docs/index.md", ROOT / "docs/install.md"]
    paths += [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
        ROOT / "BUILD_NOTES.md",
    ]
    faults = []
    for path in paths:
        # Words in tables of results are those of their files.
        text = re.sub(
            r"<!-- tables.*?<!-- end", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        text = normalize(text)
        for name in PAGE_RULES:
            for match in re.finditer(RULES[name].pattern, text, re.MULTILINE):
                faults.append(f"{path.name}: {RULES[name].fault}: {match[0]}")
    assert faults == []
