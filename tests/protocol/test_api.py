"""The API table, compared with the schema."""

from kio.schema.index import api_key_map, schema_name_map

from rookery.protocol.api import DEFINED, SERVED, ApiKey, is_defined, is_flexible, is_served
from tests.protocol import oracle


def test_the_table_equals_the_schema() -> None:
    assert set(DEFINED) == set(api_key_map)
    for api_key, name in api_key_map.items():
        assert ApiKey(api_key).name.lower() == name
        versions = sorted(schema_name_map[name])
        assert versions == [version for version in range(-1, 40) if is_defined(api_key, version)]
        for version in versions:
            assert is_flexible(api_key, version) == oracle.load(api_key, version, "request").__flexible__


def test_produce_is_advertised_from_zero_and_served_from_three() -> None:
    assert SERVED[ApiKey.PRODUCE] == (0, 13)
    assert [is_served(ApiKey.PRODUCE, version) for version in (-1, 0, 2, 3, 13, 14)] == [False] * 3 + [True] * 2 + [
        False
    ]


def test_versions_that_are_not_served() -> None:
    assert not is_served(ApiKey.LEADER_AND_ISR, 0)
    assert not is_served(ApiKey.VOTE, 0)
    assert not is_served(12345, 0)
    assert not is_flexible(12345, 0)
