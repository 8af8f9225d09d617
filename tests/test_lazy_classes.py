"""LazyClasses: names are known at once, classes are imported on first use."""

import sys

import pytest

from longsum_jax.lazy_classes import LazyClasses


def test_classes_are_imported_on_first_use(tmp_path, monkeypatch):
    (tmp_path / "lazy_example.py").write_text("class First: pass\nclass Second: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    classes = LazyClasses({"first": "lazy_example:First", "second": "lazy_example:Second"})
    assert list(classes) == ["first", "second"]
    assert len(classes) == 2
    assert "first" in classes
    assert "third" not in classes
    assert "lazy_example" not in sys.modules

    assert classes["first"].__name__ == "First"
    assert classes["first"] is sys.modules.pop("lazy_example").First
    assert [name for name, _ in classes.items()] == ["first", "second"]
    classes["third"] = dict
    assert classes["third"] is dict
    del classes["first"]
    with pytest.raises(KeyError, match="first"):
        classes["first"]
