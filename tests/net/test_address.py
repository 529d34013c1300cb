import pytest

from rookery.base.errors import ConfigError
from rookery.net.address import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9", [Address("::1", 9)]),
        ("[::1]", [Address("::1", 9092)]),
        ("::1", [Address("::1", 9092)]),
    ],
)
def test_addresses(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected
    assert parse_addresses(",".join(map(str, expected))) == expected


@pytest.mark.parametrize("text", ["", " , ", ":9092", "host:0", "host:65536", "host:x", "host:-1"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(text)
