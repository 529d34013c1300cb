from rookery.schemas.bounds import DEPTH_MAX, INCOMPATIBILITIES_MAX, is_too_deep, take_first
from rookery.schemas.interface import Incompatibility


def test_the_number_of_incompatibilities_is_limited() -> None:
    short = [Incompatibility("KIND", f"about {number}") for number in range(INCOMPATIBILITIES_MAX + 1)]
    assert take_first(short) == short[:-1]
    assert take_first(short[:3]) == short[:3]
    assert take_first([]) == []


def test_the_total_length_is_limited() -> None:
    long = [Incompatibility("KIND", "x" * 30_000)] * 10
    assert len(take_first(long)) == 3
    assert len(take_first([Incompatibility("KIND", "x" * 1_000_000), *long])) == 1


def test_incompatibilities_beyond_the_limit_are_not_computed() -> None:
    asked = iter([Incompatibility("KIND", "text")] * 1_000)
    take_first(asked)
    assert len(list(asked)) == 1_000 - INCOMPATIBILITIES_MAX - 1


def test_depth() -> None:
    value: object = {}
    for _ in range(DEPTH_MAX - 1):
        value = {"a": 1, "b": [], "c": value}
    assert not is_too_deep(value)
    assert is_too_deep([value])
