"""The entities of client quotas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.quota_entities import DEFAULT, QuotaEntity

names = st.none() | st.just(DEFAULT) | st.text()


def test_parts_are_those_of_the_protocol() -> None:
    entity = QuotaEntity(user="alice", client_id=DEFAULT)
    assert entity.parts() == (("user", "alice"), ("client-id", None))
    assert QuotaEntity.of_parts([("client-id", None), ("user", "alice")]) == entity
    assert str(entity) == "user alice, client-id (default)"
    assert QuotaEntity(ip="10.0.0.1").parts() == (("ip", "10.0.0.1"),)


@given(names, names, names)
def test_parts_give_the_entity(user: str | None, client_id: str | None, ip: str | None) -> None:
    entity = QuotaEntity(user=user, client_id=client_id, ip=ip)
    again = QuotaEntity.of_parts(reversed(entity.parts()))
    assert again == entity
    assert hash(again) == hash(entity)


def test_a_name_is_never_the_default() -> None:
    assert QuotaEntity(user="<default>") != QuotaEntity(user=DEFAULT)


@pytest.mark.parametrize("parts", [[("group", "g")], [("user", "a"), ("user", "b")]])
def test_unknown_and_doubled_types_are_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ValueError, match="a quota entity has"):
        QuotaEntity.of_parts(parts)
