"""Modules that are hidden or replaced while others are imported."""

import sys
from types import ModuleType

import pytest

from rookery.base.imports import module_replaced


def test_a_hidden_module_cannot_be_imported() -> None:
    with module_replaced("no_such_module", None), pytest.raises(ImportError):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert "no_such_module" not in sys.modules


def test_the_replacement_is_gone_afterwards_also_after_a_failure() -> None:
    replacement = ModuleType("no_such_module")
    with module_replaced("no_such_module", replacement):
        assert sys.modules["no_such_module"] is replacement
    assert "no_such_module" not in sys.modules
    with pytest.raises(ZeroDivisionError), module_replaced("no_such_module", replacement):
        raise ZeroDivisionError
    assert "no_such_module" not in sys.modules


def test_a_module_that_is_loaded_stays() -> None:
    with module_replaced("sys", None):
        assert sys.modules["sys"] is sys
    assert sys.modules["sys"] is sys
