import sys

import pytest

from fne.captions.bare import bare_packages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose own code must not run, with a module deep inside."""
    (tmp_path / "heavy/inner").mkdir(parents=True)
    (tmp_path / "heavy/__init__.py").write_text("raise RuntimeError('ran')")
    (tmp_path / "heavy/inner/__init__.py").write_text("raise RuntimeError('ran')")
    (tmp_path / "heavy/other.py").write_text("value = 3")
    (tmp_path / "heavy/inner/light.py").write_text("from heavy import other\nvalue = other.value")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_module_is_imported_without_the_packages_above_it(package):
    with bare_packages("heavy", "heavy.inner"):
        from heavy.inner import light
    assert light.value == 3


def test_afterwards_nothing_of_it_is_imported(package):
    with bare_packages("heavy", "heavy.inner"):
        import heavy.inner.light
    assert [name for name in sys.modules if name.startswith("heavy")] == []
    with pytest.raises(RuntimeError, match="ran"):
        import heavy  # noqa: F401


def test_a_package_that_is_imported_already_stays_as_it_is():
    import json.decoder

    with bare_packages("json"):
        import json as again
    assert again is json
    assert sys.modules["json.decoder"] is json.decoder


@pytest.mark.parametrize("names", [("nowhere_to_be_found",), ("heavy", "heavy.missing")])
def test_a_package_that_is_missing_is_told_as_such_and_leaves_nothing(package, names):
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{names[-1]}'"), bare_packages(*names):
        pass
    assert [name for name in sys.modules if name.startswith("heavy")] == []
