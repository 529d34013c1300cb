import socket
import threading
from collections.abc import Iterator, Mapping

import httpx
import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ConfigError
from rookery.serdes import RegistryClient, Schema
from rookery.serdes.errors import RegistryRequestError, RegistryUnavailableError
from rookery.serdes.settings import RegistrySettings
from rookery.serdes.transport import Request, Transport
from tests.serdes.fake_registry import FakeRegistry, Response, error, fake_registry

HASTY = {"retries.wait.ms": 1, "retries.max.wait.ms": 2}
STRING = Schema('"string"')


@pytest.fixture
def second() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def unreachable() -> Iterator[str]:
    """Yield the url of a port that refuses connections. It stays bound, so that no other process can listen on it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_the_next_url_is_tried_and_used_from_then_on(
    unreachable: str, server: FakeRegistry, second: FakeRegistry
) -> None:
    with RegistryClient([unreachable, server.url, second.url], HASTY) as client:
        assert client.register("a", STRING) == 1
        server.planned.append(error(503, 50302, "busy"))
        assert client.register("b", STRING) == 1
        assert client.register("c", STRING) == 1
    assert [request.path for request in server.requests] == ["/subjects/a/versions", "/subjects/b/versions"]
    assert [request.path for request in second.requests] == ["/subjects/b/versions", "/subjects/c/versions"]


def test_urls_with_commas(unreachable: str, server: FakeRegistry) -> None:
    with RegistryClient(f"{unreachable}, {server.url}/", HASTY) as client:
        assert client.urls == (unreachable, server.url)
        assert client.register("a", STRING) == 1


def test_the_error_names_all_urls(unreachable: str) -> None:
    other = unreachable.replace("127.0.0.1", "localhost")
    with (
        RegistryClient([unreachable.replace("//", "//me:secret@"), other], HASTY) as client,
        pytest.raises(RegistryUnavailableError) as caught,
    ):
        client.list_subjects()
    assert unreachable in str(caught.value)
    assert other in str(caught.value)
    assert "refused" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_temporary_errors_are_retried(server: FakeRegistry, status: int) -> None:
    server.planned += [error(status, 50003, "not now")] * 2
    with RegistryClient(server.url, HASTY) as client:
        assert client.register("a", STRING) == 1
    assert len(server.requests) == 3


def test_persistent_errors_raise(server: FakeRegistry) -> None:
    server.planned += [error(500, 50003, "Error while forwarding")] * 9
    with RegistryClient(server.url, HASTY) as client, pytest.raises(RegistryRequestError, match="forwarding") as caught:
        client.register("a", STRING)
    assert (caught.value.status, caught.value.code) == (500, 50003)
    assert len(server.requests) == 4


def test_a_deletion_that_may_have_happened_is_not_retried(server: FakeRegistry) -> None:
    server.planned += [error(500, 50002, "Timed out")] * 2
    with RegistryClient(server.url, HASTY) as client, pytest.raises(RegistryRequestError, match="Timed out"):
        client.delete_subject("a")
    assert len(server.requests) == 1


def test_a_deletion_that_was_not_received_is_retried(unreachable: str, server: FakeRegistry) -> None:
    server.planned.append(Response(200, [1, 2]))
    with RegistryClient([unreachable, server.url], HASTY) as client:
        assert client.delete_subject("a") == [1, 2]


def test_errors_have_the_registrys_message(server: FakeRegistry) -> None:
    server.planned.append(error(409, 409, "Schema being registered is incompatible"))
    with RegistryClient(server.url) as client, pytest.raises(RegistryRequestError) as caught:
        client.register("a", STRING)
    assert (caught.value.status, caught.value.code) == (409, 409)
    assert caught.value.message == "Schema being registered is incompatible"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (Response(404, b"<html>nothing here</html>"), "is that the url of a schema registry?"),
        (Response(401, b"<html>go away</html>"), r"basic\.auth\.user\.info"),
        (Response(200, b"<html>hello</html>"), "not that of a schema registry"),
        (Response(200, {"message": "hello"}), "not that of a schema registry"),
    ],
)
def test_responses_of_other_servers_are_recognized(server: FakeRegistry, response: Response, message: str) -> None:
    server.planned.append(response)
    with RegistryClient(server.url) as client, pytest.raises(RegistryRequestError, match=message) as caught:
        client.register("a", STRING)
    assert caught.value.code == -1


def test_a_registry_that_does_not_answer_in_time() -> None:
    config = {"http.read.timeout.ms": 50, "max.retries": 0}
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with RegistryClient(url, config) as client, pytest.raises(RegistryUnavailableError, match="timed out"):
            client.list_subjects()


def test_redirections_are_followed(server: FakeRegistry, second: FakeRegistry) -> None:
    server.planned.append(Response(307, b"", f"{second.url}/subjects/a/versions"))
    with RegistryClient(server.url) as client:
        assert client.register("a", STRING) == 1
    assert [request.body for request in second.requests] == [{"schema": STRING.text}]


def test_all_attempts_together_have_a_limit() -> None:
    """The registry does not answer, and the retries alone would allow hours."""
    config = {"request.timeout.ms": 100, "max.retries": 10_000, "http.read.timeout.ms": 3_600_000}
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with RegistryClient(url, config) as client, pytest.raises(RegistryUnavailableError, match="timed out"):
            client.list_subjects()


def test_a_failure_is_cached_for_a_short_time(unreachable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later requests do not wait for the same time-out again."""
    urls: list[str] = []

    def refuse(client: httpx.Client, method: str, url: str, **_: object) -> httpx.Response:
        urls.append(url)
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(httpx.Client, "request", refuse)
    clock = ManualClock()
    transport = Transport(unreachable, RegistrySettings.parse({"max.retries": 0}), clock)
    for path, count in (("/a", 1), ("/b", 1), ("/c", 2)):
        with pytest.raises(RegistryUnavailableError, match="refused"):
            transport.send(Request("GET", path))
        assert len(urls) == count
        clock.advance(600)
    transport.close()


def test_a_failed_deletion_is_not_cached_as_a_failure(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang_up(client: httpx.Client, method: str, url: str, **_: object) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected")

    with RegistryClient(server.url, HASTY) as client:
        with monkeypatch.context() as patched:
            patched.setattr(httpx.Client, "request", hang_up)
            with pytest.raises(RegistryUnavailableError, match="disconnected"):
                client.delete_subject("a")
        assert client.register("a", STRING) == 1


@pytest.mark.parametrize(
    ("prefix", "config"),
    [("me:p%40ss@", {}), ("", {"basic.auth.user.info": "me:p@ss"})],
    ids=["in the url", "in the settings"],
)
def test_user_and_password(server: FakeRegistry, prefix: str, config: Mapping[str, object]) -> None:
    with RegistryClient(server.url.replace("//", f"//{prefix}"), config) as client:
        client.register("a", STRING)
        assert client.urls == (server.url,)
    assert server.requests[0].user == "me:p@ss"


def test_without_user_and_password(server: FakeRegistry, registry: RegistryClient) -> None:
    registry.register("a", STRING)
    assert server.requests[0].user is None


@pytest.mark.parametrize(
    ("urls", "config", "message"),
    [
        ("", {}, "give the url"),
        ([], {}, "give the url"),
        ("localhost:8081", {}, "not the url of a schema registry"),
        ("ftp://localhost", {}, "not the url of a schema registry"),
        ("http://", {}, "not the url of a schema registry"),
        ("http://host:port", {}, "not valid"),
        ("http://a:b@host", {"basic.auth.user.info": "c:d"}, r"in the url and in basic\.auth\.user\.info"),
        ("http://host", {"basic.auth.user.info": "just-me"}, "user:password"),
        ("http://host", {"ssl.key.location": "key.pem"}, r"needs ssl\.certificate\.location"),
        ("https://host", {"ssl.ca.location": "no-such-file.pem"}, "No such file"),
        ("http://host", {"basic.auth.userinfo": "a:b"}, r"did you mean basic\.auth\.user\.info"),
        ("http://host", {"max.retries": -1}, r"max\.retries"),
    ],
)
def test_wrong_settings(urls: str | list[str], config: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RegistryClient(urls, config)


def test_close_ends_waiting_requests(unreachable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has_tried = threading.Event()

    def refuse(client: httpx.Client, method: str, url: str, **_: object) -> httpx.Response:
        has_tried.set()
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(httpx.Client, "request", refuse)
    waits = ("retries.wait.ms", "retries.max.wait.ms", "request.timeout.ms")
    client = RegistryClient(unreachable, dict.fromkeys(waits, 3_600_000))
    caught: list[Exception] = []

    def ask() -> None:
        try:
            client.list_subjects()
        except Exception as failure:
            caught.append(failure)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert has_tried.wait(60)
    client.close()
    thread.join(60)
    assert isinstance(caught[0], RegistryUnavailableError)
    with pytest.raises(RuntimeError, match="closed"):
        client.list_subjects()
