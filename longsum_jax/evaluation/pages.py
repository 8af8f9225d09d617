"""Self-contained HTML pages, which do not need network access."""

from importlib import resources


def read_part(name: str, package: str = "longsum_jax.evaluation") -> str:
    """Returns a file of a package: a template, a style sheet or a script."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def fill(template: str, **parts: str) -> str:
    """Returns a template with every ``{{name}}`` of ``parts`` replaced.

    Placeholders inside of the inserted parts are not replaced.
    """
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, end, rest = piece.partition("}}")
        has_value = end and name in parts
        filled.append(parts[name] + rest if has_value else "{{" + piece)
    return "".join(filled)
