"""Value classes behave like frozen dataclasses with slots."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import pytest

from rookery.base.values import value_class


@value_class
class Point:
    UNIT: ClassVar = "cm"
    x: int
    y: int = 0


@value_class
class OtherPoint:
    x: int
    y: int = 0


@value_class
class Secretive:
    user: str
    password: str = field(repr=False)


@value_class
class Empty:
    """A class without fields."""


@value_class(kw_only=True)
class Named:
    names: Sequence[str] = field(default_factory=list)
    size: int

    @property
    def count(self) -> int:
        return len(self.names)


@value_class
class Point3(Point):
    z: int = 0


@dataclass(frozen=True, slots=True)
class Reference:
    x: int
    y: int = 0


def test_equal_means_the_same_class_and_the_same_fields() -> None:
    assert Point(1) == Point(1, 0)
    assert Point(1) != Point(1, 1)
    others: list[object] = [OtherPoint(1), (1, 0), Point3(1)]
    assert Point(1) not in others
    assert Point3(1, 2, 3) == Point3(1, 2, 3) != Point3(1, 2, 4)
    assert Empty() == Empty()


def test_equal_values_have_the_same_hash() -> None:
    assert {Point(1): "a"}[Point(1, 0)] == "a"
    assert len({Point(1), Point(2), Point(1), Empty(), Empty()}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Named(size=1))


def test_it_behaves_like_a_dataclass() -> None:
    assert repr(Point(1, 2)) == repr(Reference(1, 2)).replace("Reference", "Point") == "Point(x=1, y=2)"
    assert repr(Empty()) == "Empty()"
    assert [each.name for each in fields(Point)] == ["x", "y"]
    assert replace(Point(1), y=3) == Point(1, 3)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_other_attributes_cannot_be_set() -> None:
    assert not hasattr(Point(1), "__dict__")


def test_arguments_by_name_only() -> None:
    assert Named(size=1).count == 0
    assert Named(size=1).names is not Named(size=1).names
    with pytest.raises(TypeError):
        Named(1)  # type: ignore[call-arg, arg-type]  # that is what is tested


def test_a_hidden_field_still_counts_for_equality() -> None:
    assert repr(Secretive("alice", "hush")) == "Secretive(user='alice')"
    assert Secretive("alice", "hush") != Secretive("alice", "other")
