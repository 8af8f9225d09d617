"""Sphinx configuration: python -m sphinx -W --keep-going -b html docs docs/_build"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

import flax.linen as nn  # noqa: E402
from docstrings import is_foreign, shorten, tidy  # noqa: E402
from sphinx.util.typing import stringify_annotation  # noqa: E402

import longsum_jax  # noqa: E402

project = "longsum_jax"
copyright = "the longsum_jax authors"
release = version = longsum_jax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "sphinx_book_theme"
html_title = "longsum_jax"
html_theme_options = {
    # The sidebar has a search field. The theme would show two more.
    "navbar_persistent": [],
    "article_header_end": ["theme-switcher"],
    # The sidebar of a page lists its own section: with every page of every section in every
    # sidebar, most of the time of a build went into sidebars.
    "collapse_navbar": True,
}

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks train a model; tests/notebooks runs their cells

autosummary_generate = True
autodoc_default_options = {"members": True, "special-members": "__call__"}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# Keeps entries with several names ("dt_min, dt_max: ...") in one piece.
napoleon_custom_sections = [("Attributes", "params_style")]

PACKAGES = ("longsum_jax", "longsum_plan")

# Rooms with a public API, in the order of their ranks, and what each page says first.
ROOMS = {
    "ops": "Pure functions of arrays.",
    "tokenizers": "Tokenizers of all families, and training of new ones.",
    "decoding": "Greedy, beam and sampled search, and their options.",
    "layers": "Flax modules: attentions, state-space layers, encoder and decoder stacks.",
    "text": "Sentences, segments, gap sentences and important sentences, in plain Python.",
    "ranking": "The built-in extractor: features of sentences, boosted trees, selection.",
    "models": "Model families: configs, modules and names in checkpoints.",
    "data": "Tasks, examples, batches and prepared shards.",
    "readers": "Documents of files: PDF, HTML, EPUB, office files, mail, subtitles, tables.",
    "training": "The training loop, its step, optimizers, meshes and checkpoints.",
    "evaluation": "Metrics of summaries, baselines, significance, files of predictions.",
    "conversion": "Longer inputs and other attentions for pretrained parameters.",
    "inference": "Loaded models: encode, logits, generate, save; batches and programs.",
    "summarization": "Summaries of documents of any length: strategies, segments, sources, files.",
}

# Registers its tasks when it is imported, and needs TensorFlow for that.
NOT_IMPORTABLE = {"longsum_jax.data.seqio_tasks"}


def write_api_pages() -> None:
    """Writes api/ROOM.md: the room's public names, and its modules, which autosummary documents."""
    for room, text in ROOMS.items():
        package = importlib.import_module(f"longsum_jax.{room}")
        result = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        modules = sorted(
            module.name
            for module in result
            if not module.ispkg and module.name not in NOT_IMPORTABLE
        )
        page = f"# {room}\n\n{text}\n\n"
        if names := public_names(package):
            page += f"## `from longsum_jax.{room} import ...`\n\n" + _autosummary(names)
        page += "## Modules\n\n" + _autosummary(modules, "   :toctree: generated\n")
        _write(DOCS / "api" / f"{room}.md", page)


def public_names(package) -> list[str]:
    """Returns the classes and functions of a room's __init__.pyi by their full names."""
    stub = Path(package.__file__).with_suffix(".pyi")
    if not stub.exists():
        return []
    names = []
    for module, name in re.findall(r"^from \.([\w.]+) import (\w+)", stub.read_text(), re.M):
        if callable(getattr(package, name)):
            names.append(f"~{package.__name__}.{module}.{name}")
    return names


def _autosummary(names: list[str], options: str = "") -> str:
    rows = "\n".join(f"   {name}" for name in names)
    return f"```{{eval-rst}}\n.. autosummary::\n{options}   :nosignatures:\n\n{rows}\n```\n\n"


def copy_notebooks() -> None:
    """Copies the notebooks, since Sphinx reads sources below docs/ alone."""
    target = DOCS / "notebooks"
    target.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copyfile(path, target / path.name)


def _write(path: Path, text: str) -> None:
    """Writes only what has changed, so that a second build is quick."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def tidy_docstring(app, what, name, obj, options, lines):
    """Rewrites a docstring so that reStructuredText reads it as it is meant."""
    lines[:] = tidy(lines)


def skip_member(app, what, name, obj, skip, options):
    """Leaves out members that another library defines, and fields of NamedTuples."""
    if is_foreign(obj, PACKAGES):
        return True
    return False if name == "__call__" else None


def process_signature(app, what, name, obj, options, signature, annotation):
    """Shortens signatures: the fields of modules, shapes, and types without ranges."""
    if inspect.isclass(obj) and issubclass(obj, nn.Module):
        fields = [field for field in dataclasses.fields(obj) if field.init]
        own = [field for field in fields if field.name not in ("parent", "name")]
        signature = f"({', '.join(map(format_field, own))})"
    return signature and shorten(signature), annotation and shorten(annotation)


def format_field(field) -> str:
    """Returns a field as it stands in a signature."""
    text = f"{field.name}: {stringify_annotation(field.type, 'smart')}".replace("~", "")
    if field.default is not dataclasses.MISSING:
        default = field.default
        is_named = inspect.isfunction(default) or hasattr(default, "dtype")
        text += f" = {default.__name__ if is_named else repr(default)}"
    elif field.default_factory is not dataclasses.MISSING:
        text += f" = {field.default_factory.__name__}()"
    return text


def setup(app):
    write_api_pages()
    copy_notebooks()
    app.connect("autodoc-process-docstring", tidy_docstring, priority=100)  # before napoleon
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-skip-member", skip_member)
