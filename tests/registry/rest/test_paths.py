import pytest

from rookery.registry.errors import RegistryError
from rookery.registry.rest.paths import parse_query, resolve


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/", "/"),
        ("/subjects/", "/subjects"),
        ("/subjects/a%2Fb/versions", "/subjects/a%2Fb/versions"),
        ("/contexts", "/contexts"),
        ("/contexts/", "/contexts"),
        ("/contexts/.sales/subjects/orders/versions/1", "/subjects/:.sales:orders/versions/1"),
        ("/contexts/sales/subjects/orders", "/subjects/:.sales:orders"),
        ("/contexts/:.sales:/subjects/orders", "/subjects/:.sales:orders"),
        ("/contexts/%3A.sales%3A/subjects/a%2Fb", "/subjects/:.sales:a%2Fb"),
        ("/contexts/.sales/subjects/:.other:orders", "/subjects/:.other:orders"),
        ("/contexts/.sales/subjects/subjects/versions", "/subjects/:.sales:subjects/versions"),
        ("/contexts/./subjects/orders", "/subjects/orders"),
        ("/contexts/.sales/compatibility/subjects/a/versions/1", "/compatibility/subjects/:.sales:a/versions/1"),
        ("/contexts/.sales/config", "/config/:.sales:"),
        ("/contexts/.sales/mode/", "/mode/:.sales:"),
        ("/contexts/.sales/config/orders", "/config/:.sales:orders"),
        ("/contexts/./config", "/config"),
        # A subject with this name, not the settings.
        ("/contexts/.sales/subjects/config/versions", "/subjects/:.sales:config/versions"),
    ],
)
def test_a_context_moves_into_the_subject(path: str, resolved: str) -> None:
    assert resolve(path, "") == (resolved, "")


@pytest.mark.parametrize(
    ("path", "query", "resolved"),
    [
        ("/contexts/.sales/schemas/ids/1", "", {"subject": [":.sales:"]}),
        ("/contexts/.sales/schemas/ids/1/versions", "subject=a%2Fb&x=1", {"subject": [":.sales:a/b"], "x": ["1"]}),
        ("/contexts/.sales/schemas/ids/1", "subject=:.other:a", {"subject": [":.other:a"]}),
        ("/contexts/.sales/schemas", "", {"subjectPrefix": [":.sales:"]}),
        ("/contexts/.sales/subjects", "subjectPrefix=or", {"subjectPrefix": [":.sales:or"]}),
        ("/contexts/./subjects", "", {"subjectPrefix": [""]}),
        ("/contexts/.sales/subjects/a/versions", "deleted=true", {"deleted": ["true"]}),
    ],
)
def test_a_context_moves_into_the_query(path: str, query: str, resolved: dict[str, list[str]]) -> None:
    assert parse_query(resolve(path, query)[1]) == resolved


def test_a_context_has_no_colon() -> None:
    with pytest.raises(RegistryError) as raised:
        resolve("/contexts/a:b/subjects", "")
    assert (raised.value.status, raised.value.message) == (400, "Context name 'a:b' cannot contain a colon")


@pytest.mark.parametrize(
    ("path", "query"), [("/subjects/%zz", ""), ("/subjects/%f", ""), ("/subjects/%ff", ""), ("/subjects", "a=%c3x")]
)
def test_invalid_encodings(path: str, query: str) -> None:
    with pytest.raises(RegistryError) as raised:
        resolve(path, query)
    assert (raised.value.status, raised.value.code) == (400, 400)
