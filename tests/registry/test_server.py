"""The listeners: http and https, one app for all of them, start and stop."""

import asyncio
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from rookery.base.errors import StartupError
from rookery.registry import server as server_module
from rookery.registry.server import RegistryServer
from rookery.registry.settings import RegistryListener, TlsFiles
from tests.support.certificates import PASSWORD, Certificates, make_certificates

HTTP = RegistryListener("http", "127.0.0.1", 0)
HTTPS = RegistryListener("https", "127.0.0.1", 0)
NO_TLS = TlsFiles(keystore=None, key_password=None, truststore=None, client_authentication="NONE")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping waits very long for requests in progress."""
    monkeypatch.setattr(server_module, "_GRACE_S", 60)


def tls_of(
    keystore: Path, *, password: str | None = None, truststore: Path | None = None, clients: str = "NONE"
) -> TlsFiles:
    return TlsFiles(keystore=keystore, key_password=password, truststore=truststore, client_authentication=clients)


class App:
    """Responds with hello, on `/slow` after a delay, and records the lifespan events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_asked = asyncio.Event()
        self.app = Starlette(
            routes=[Route("/", self._hello), Route("/slow", self._slow)],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.events.append("start")
        yield
        self.events.append("stop")

    async def _hello(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async def _slow(self, request: Request) -> PlainTextResponse:
        self.is_asked.set()
        await asyncio.sleep(0.5)
        return PlainTextResponse("slow")


@asynccontextmanager
async def serving(app: App, *listeners: RegistryListener, tls: TlsFiles = NO_TLS) -> AsyncIterator[list[str]]:
    server = RegistryServer(listeners, tls)
    urls = [listener.url for listener in server.bind()]
    try:
        await server.serve(app.app)
        yield urls
    finally:
        await server.stop()


def trusting(certificates: Certificates, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.authority)
    if client is not None:
        context.load_cert_chain(client)
    return context


async def get(url: str, context: ssl.SSLContext | None = None) -> str:
    async with httpx.AsyncClient(verify=context or True, trust_env=False, timeout=60) as client:
        return (await client.get(url)).text


def test_one_app_is_served_by_all_listeners(certificates: Certificates) -> None:
    async def scenario() -> None:
        app = App()
        async with serving(app, HTTP, HTTPS, HTTP, tls=tls_of(certificates.broker)) as urls:
            assert len(set(urls)) == 3
            for url in urls:
                assert await get(url, trusting(certificates)) == "hello"
        assert app.events == ["start", "stop"]
        for url in urls:
            with pytest.raises(httpx.ConnectError):
                await get(url, trusting(certificates))

    asyncio.run(scenario())


def test_signal_handlers_are_not_changed() -> None:
    async def scenario() -> None:
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        async with serving(App(), HTTP):
            assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before

    asyncio.run(scenario())


def test_a_request_in_progress_is_completed_before_the_stop(long_grace: None) -> None:
    async def scenario() -> None:
        app = App()
        async with serving(app, HTTP) as (url,):
            slow = asyncio.create_task(get(url + "/slow"))
            await app.is_asked.wait()
        assert await slow == "slow"

    asyncio.run(scenario())


def test_idle_connections_do_not_delay_the_stop(long_grace: None) -> None:
    async def scenario() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            async with asyncio.timeout(30):
                async with serving(App(), HTTP) as (url,):
                    assert (await client.get(url)).text == "hello"

    asyncio.run(scenario())


def test_a_port_in_use_is_an_error_and_the_others_are_released() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = HTTP._replace(port=taken.getsockname()[1])
        server = RegistryServer((HTTP, busy), NO_TLS)
        with pytest.raises(StartupError, match=rf"cannot listen on {busy.url}: .*[Ff]ree the port"):
            server.bind()


def test_a_port_on_which_another_process_began_to_listen_is_an_error() -> None:
    """Other processes can bind a bound port as well, as long as none listens on it."""
    first = RegistryServer((HTTP,), NO_TLS)
    (taken,) = first.bind()
    second = RegistryServer((taken,), NO_TLS)
    second.bind()

    async def scenario() -> None:
        try:
            first.listen()
            with pytest.raises(StartupError, match=rf"cannot listen on {taken.url}"):
                second.listen()
        finally:
            await first.stop()
            await second.stop()

    asyncio.run(scenario())


def test_an_app_that_cannot_start_raises() -> None:
    class Failing(App):
        @asynccontextmanager
        async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
            raise OSError("cannot start")
            yield

    async def scenario() -> None:
        with pytest.raises(StartupError, match="stopped before they served"):
            async with serving(Failing(), HTTP):
                pass

    asyncio.run(scenario())


def test_a_cancelled_start_leaves_nothing_behind() -> None:
    class Slow(App):
        def __init__(self) -> None:
            super().__init__()
            self.may_start = asyncio.Event()

        @asynccontextmanager
        async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
            self.events.append("start")
            await self.may_start.wait()
            yield

    async def scenario() -> None:
        app = Slow()
        server = RegistryServer((HTTP,), NO_TLS)
        server.bind()
        starting = asyncio.create_task(server.serve(app.app))
        while not app.events:
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        app.may_start.set()
        await server.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_small_responses_are_sent_immediately() -> None:
    """Without TCP_NODELAY a body waits 40 ms for the acknowledgement of its head."""
    server = RegistryServer((HTTP,), NO_TLS)
    server.bind()
    try:
        assert all(bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for bound in server._sockets)
    finally:
        asyncio.run(server.stop())


def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(StartupError, match=r"cannot listen on http://no\.such\.host\.invalid:0"):
        RegistryServer((RegistryListener("http", "no.such.host.invalid", 0),), NO_TLS).bind()


def test_listening_on_every_interface() -> None:
    async def scenario() -> None:
        async with serving(App(), HTTP._replace(host="")) as (url,):
            assert await get(url.replace("://:", "://127.0.0.1:")) == "hello"

    asyncio.run(scenario())


def test_a_locked_key_needs_its_password(certificates: Certificates) -> None:
    async def scenario() -> None:
        async with serving(App(), HTTPS, tls=tls_of(certificates.locked_broker, password=PASSWORD)) as (url,):
            assert await get(url, trusting(certificates)) == "hello"
        for wrong in (None, "wrong"):
            with pytest.raises(StartupError, match=r"ssl\.keystore\.location: .*ssl\.key\.password"):
                async with serving(App(), HTTPS, tls=tls_of(certificates.locked_broker, password=wrong)):
                    pass

    asyncio.run(scenario())


def test_invalid_tls_files_are_errors(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("hello")

    async def scenario() -> None:
        for tls, key in (
            (tls_of(tmp_path / "missing.pem"), "keystore"),
            (tls_of(tmp_path / "text.pem"), "keystore"),
            (tls_of(certificates.authority), "keystore"),
            (tls_of(certificates.broker, truststore=tmp_path / "text.pem"), "truststore"),
        ):
            with pytest.raises(StartupError, match=rf"ssl\.{key}\.location"):
                async with serving(App(), HTTPS, tls=tls):
                    pass

    asyncio.run(scenario())


def test_clients_can_be_required_to_have_a_certificate(certificates: Certificates) -> None:
    async def scenario() -> None:
        tls = tls_of(certificates.broker, truststore=certificates.authority, clients="REQUIRED")
        async with serving(App(), HTTPS, tls=tls) as (url,):
            assert await get(url, trusting(certificates, certificates.client)) == "hello"
            with pytest.raises(httpx.HTTPError):
                await get(url, trusting(certificates))

    asyncio.run(scenario())
