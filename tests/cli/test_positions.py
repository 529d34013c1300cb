import pytest

from rookery.cli.positions import Start, Tail, parse_start
from rookery.client.consume.records import BEGINNING, END, Timestamp


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("0", 0),
        ("17", 17),
        ("offset:17", 17),
        ("offset 17", 17),
        ("-5", Tail(5)),
        ("timestamp:1700000000000", Timestamp(1700000000000)),
        ("timestamp 2023-11-14T22:13:20Z", Timestamp(1700000000000)),
        ("2023-11-14T22:13:20.5+00:00", Timestamp(1700000000500)),
        ("2023-11-14T23:13:20+01:00", Timestamp(1700000000000)),
    ],
)
def test_positions(text: str, expected: Start) -> None:
    parsed = parse_start(text)
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.parametrize("text", ["", "middle", "offset:x", "offset:-1", "timestamp:", "--5", "1.5", "١"])
def test_invalid_positions(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_start(text)
