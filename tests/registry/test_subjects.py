import pytest

from rookery.registry.subjects import (
    SUBJECT_LENGTH_MAX,
    context_of,
    covers,
    has_prefix,
    is_default_context,
    is_valid,
    normalize,
    qualify,
    split,
)


@pytest.mark.parametrize(
    ("name", "context", "subject"),
    [
        ("orders", ".", "orders"),
        ("", ".", ""),
        (":.test:orders", ".test", "orders"),
        (":.test:orders:with:colons", ".test", "orders:with:colons"),
        (":.test:", ".test", ""),
        (":.test", ".test", ""),
        (":.:orders", ".", "orders"),
        (":*:orders", "*", "orders"),
        (":orders", ".", ":orders"),
        ("orders:.test:", ".", "orders:.test:"),
    ],
)
def test_names_have_a_context_and_a_subject(name: str, context: str, subject: str) -> None:
    assert split(name) == (context, subject)


def test_the_normal_form_omits_the_default_context() -> None:
    assert normalize(":.:orders") == "orders"
    assert normalize(":.test") == ":.test:"
    assert normalize(":.test:orders") == ":.test:orders"
    assert context_of(":.:orders") == "."


def test_the_default_context_as_a_setting() -> None:
    assert is_default_context(None)
    assert is_default_context("")
    assert is_default_context(":.:")
    assert not is_default_context("orders")
    assert not is_default_context(":.test:")


def test_a_name_is_qualified_with_its_parents_context() -> None:
    assert qualify("address", ":.test:orders") == ":.test:address"
    assert qualify("address", "orders") == "address"
    assert qualify(":.other:address", ":.test:orders") == ":.other:address"


@pytest.mark.parametrize(
    ("name", "for_subjects", "for_settings"),
    [
        ("orders", True, True),
        ("", True, True),
        ("com/example orders", True, True),
        ("x" * SUBJECT_LENGTH_MAX, True, True),
        ("x" * (SUBJECT_LENGTH_MAX + 1), False, False),
        ("two\nlines", False, False),
        ("\x7f", False, False),
        ("\x85", False, False),
        ("\ud800", False, False),
        ("é\U0001f600", True, True),
        ("__GLOBAL", False, False),
        (":.test:__EMPTY", False, False),
        (":.__GLOBAL:", False, True),
        (":.__GLOBAL:orders", False, True),
        (":*:", False, False),
        (":*:orders", False, False),
    ],
)
def test_validity(name: str, for_subjects: bool, for_settings: bool) -> None:
    assert is_valid(name) == for_subjects
    assert is_valid(name, for_settings=True) == for_settings


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        (":*:", {"orders", "other", ":.a:orders", ":.ab:orders"}),
        (":*:ord", {"orders", ":.a:orders", ":.ab:orders"}),
        ("", {"orders", "other"}),
        ("o", {"orders", "other"}),
        ("ord", {"orders"}),
        (":.:ord", {"orders"}),
        (":.a:", {":.a:orders"}),
        (":.a:x", set()),
        (":.a", {":.a:orders", ":.ab:orders"}),
    ],
)
def test_prefixes(prefix: str, found: set[str]) -> None:
    subjects = {"orders", "other", ":.a:orders", ":.ab:orders"}
    assert {subject for subject in subjects if has_prefix(subject, prefix)} == found


def test_the_subjects_that_a_setting_covers() -> None:
    subjects = {"orders", ":.a:orders"}

    def covered(name: str | None) -> set[str]:
        return {subject for subject in subjects if covers(name, subject)}

    assert covered(None) == subjects
    assert covered(":.__GLOBAL:") == subjects
    assert covered("orders") == {"orders"}
    assert covered(":.a:") == {":.a:orders"}
    assert covered(":.a:orders") == {":.a:orders"}
    assert covered("nothing") == set()
