import pytest

from rookery.registry.errors import RegistryError
from rookery.registry.rest.parameters import DELETED, ID, IN_SUBJECT, LIMIT, SUBJECT, Parameter


@pytest.mark.parametrize(
    ("texts", "value"),
    [([], False), (["true"], True), (["TRUE"], True), (["yes"], False), (["1"], False), ([""], False)],
)
def test_only_true_is_true(texts: list[str], value: bool) -> None:
    assert DELETED.decode(texts) is value


@pytest.mark.parametrize(("texts", "value"), [([], -1), ([""], -1), (["7"], 7), (["+7"], 7), (["-7", "8"], -7)])
def test_numbers(texts: list[str], value: int) -> None:
    assert LIMIT.decode(texts) == value


@pytest.mark.parametrize("text", ["a", "1.0", "1 ", "0x1", "2147483648", "-2147483649", "9" * 5000, "١"])
def test_an_invalid_number_is_an_unknown_path(text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        ID.decode([text])
    assert (raised.value.status, raised.value.code, raised.value.message) == (404, 404, "HTTP 404 Not Found")


def test_texts() -> None:
    assert SUBJECT.decode(["a", "b"]) == "a"
    assert IN_SUBJECT.decode([]) is None
    assert Parameter("key", "", "texts").decode(["a", "b"]) == ["a", "b"]
