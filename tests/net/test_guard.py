"""TLS and logins on accepted connections, on both event loops: large data, hostile peers, renewed certificates."""

import asyncio
import os
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.base import bounds
from rookery.base.clock import SystemClock
from rookery.base.files import FileSlice
from rookery.net import guard as guard_module
from rookery.net.connection import ConnectionInfo, Handler
from rookery.net.guard import Guard, TlsRules
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.login import LoggedLogins, LoginRules
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.security.principal_rules import PrincipalRules
from rookery.security.sasl_server.plain import PlainMechanism
from tests.net.support import BOTH_LOOPS, MemoryFile, Run, connections_of, echo, expect_closed, frame, read_reply, until
from tests.security.test_login_session import authenticate, handshake
from tests.support.certificates import Certificates, make_certificates

DATA = bytes(range(256)) * 40_000
LOGIN = frame(bytes(handshake())) + frame(bytes(authenticate()))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_rules(certificates: Certificates, clients: ssl.VerifyMode = ssl.CERT_NONE, rules: str = "DEFAULT") -> TlsRules:
    context = certificates.server_context(clients)
    return TlsRules(context=lambda: context, principal_rules=PrincipalRules.parse(rules))


def login_rules(*, max_reauth_ms: int = 0) -> LoginRules:
    clock = SystemClock()
    return LoginRules(
        mechanisms={"PLAIN": PlainMechanism({"alice": "secret"})},
        max_reauth_ms={"PLAIN": max_reauth_ms},
        receive_size_max=1000,
        failure_delay_s=0.01,
        clock=clock,
        observer=LoggedLogins(clock),
    )


@asynccontextmanager
async def guarded(
    handle: Handler, *, tls: TlsRules | None = None, logins: LoginRules | None = None, **settings: Any
) -> AsyncIterator[tuple[Listener, Guard]]:
    guard = Guard(tls=tls, logins=logins)
    listener = Listener("127.0.0.1", 0, handle, settings=ListenerSettings(**settings), guard=guard)
    await listener.start()
    try:
        yield listener, guard
    finally:
        await listener.close()


def client_context(certificates: Certificates, *, with_key: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.authority)
    if with_key:
        context.load_cert_chain(certificates.client)
    return context


async def connect(
    listener: Listener, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.bound_port, ssl=context)


def who(request: memoryview, info: ConnectionInfo) -> Reply:
    return [frame(info.principal.name.encode())]


@BOTH_LOOPS
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_requests_and_replies(run: Run, certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        async with guarded(echo, tls=tls_rules(certificates)) as (listener, guard):
            context = client_context(certificates)
            context.minimum_version = context.maximum_version = version
            reader, writer = await connect(listener, context)
            for size in (0, 1, 16_384, 300_000, len(DATA)):
                writer.write(frame(DATA[:size]))
                assert await read_reply(reader) == DATA[:size]
            assert guard.pending_count == 0
            # Many at once: the connection stops reading while replies wait.
            writer.write(frame(b"x" * 1000) * 500)
            assert [await read_reply(reader) for _ in range(500)] == [b"x" * 1000] * 500
            writer.close()
            await until(lambda: listener.connection_count == 0)

    run(main())


@BOTH_LOOPS
def test_slices_of_files_are_encrypted_in_order(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    file = MemoryFile(DATA)

    def handle(request: memoryview, _: ConnectionInfo) -> Reply:
        size = 3_000_000
        return [struct.pack(">i", 2 * size + 4), b"[[[[", FileSlice(file, 0, size), FileSlice(file, 5, size)]

    async def main() -> None:
        async with guarded(handle, tls=tls_rules(certificates)) as (listener, _):
            reader, writer = await connect(listener, client_context(certificates))
            writer.write(frame(b"") * 3)
            # The replies wait for the peer, which reads late.
            await asyncio.sleep(0.05)
            for _ in range(3):
                assert await read_reply(reader) == b"[[[[" + DATA[:3_000_000] + DATA[5:3_000_005]
            assert max(file.read_sizes) <= 262_144

    run(main())


@BOTH_LOOPS
def test_the_certificate_names_the_principal(run: Run, certificates: Certificates) -> None:
    async def name(clients: ssl.VerifyMode, rules: str = "DEFAULT", *, with_key: bool = True) -> bytes:
        async with guarded(who, tls=tls_rules(certificates, clients, rules)) as (listener, _):
            reader, writer = await connect(listener, client_context(certificates, with_key=with_key))
            writer.write(frame(b""))
            return await read_reply(reader)

    async def main() -> None:
        assert await name(ssl.CERT_REQUIRED) == b"CN=client"
        assert await name(ssl.CERT_OPTIONAL, "RULE:^CN=(.*)$/$1/U") == b"CLIENT"
        assert await name(ssl.CERT_OPTIONAL, with_key=False) == b"ANONYMOUS"
        assert await name(ssl.CERT_NONE) == b"ANONYMOUS"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await name(ssl.CERT_REQUIRED, with_key=False)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await name(ssl.CERT_REQUIRED, "RULE:CN=other/x/")

    run(main())


@BOTH_LOOPS
def test_new_connections_have_the_new_certificate(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    contexts = [certificates.server_context()]
    rules = TlsRules(context=lambda: contexts[-1], principal_rules=PrincipalRules.parse("DEFAULT"))

    async def main() -> None:
        async with guarded(echo, tls=rules) as (listener, _):
            reader, writer = await connect(listener, client_context(certificates))
            contexts.append(other.server_context())
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(listener, client_context(certificates))
            await connect(listener, client_context(other))
            writer.write(frame(b"still open"))
            assert await read_reply(reader) == b"still open"

    run(main())


@BOTH_LOOPS
def test_a_login(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with guarded(who, tls=tls_rules(certificates), logins=login_rules()) as (listener, guard):
            reader, writer = await connect(listener, client_context(certificates))
            await until(lambda: guard.pending_count == 1)
            # All at once, with a large request after the login.
            writer.write(LOGIN + frame(bytes(100_000)))
            for _ in range(2):
                await read_reply(reader)
            assert await read_reply(reader) == b"alice"
            assert guard.pending_count == 0

    run(main())


@BOTH_LOOPS
def test_a_failed_login_is_answered_and_closed(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        for tls in (None, tls_rules(certificates)):
            async with guarded(who, tls=tls, logins=login_rules()) as (listener, _):
                reader, writer = await connect(listener, None if tls is None else client_context(certificates))
                writer.write(frame(bytes(handshake())) + frame(bytes(authenticate(b"\0alice\0wrong"))) + frame(b"x"))
                await read_reply(reader)
                assert b"Authentication failed: Invalid username or password" in await read_reply(reader)
                assert await expect_closed(reader) == b""

    run(main())


def test_requests_before_the_login_are_small() -> None:
    async def main() -> None:
        async with guarded(who, logins=login_rules()) as (listener, _):
            reader, writer = await connect(listener)
            writer.write(struct.pack(">i", 1001))
            assert await expect_closed(reader) == b""

    asyncio.run(main())


def test_a_session_that_has_ended_is_closed_at_the_next_request() -> None:
    async def main() -> None:
        async with guarded(who, logins=login_rules(max_reauth_ms=20)) as (listener, _):
            reader, writer = await connect(listener)
            writer.write(LOGIN)
            for _ in range(2):
                await read_reply(reader)
            await asyncio.sleep(0.05)
            assert listener.connection_count == 1
            writer.write(frame(bytes(ApiKey.METADATA.to_bytes(2, "big"))))
            assert await expect_closed(reader) == b""

    asyncio.run(main())


@BOTH_LOOPS
def test_peers_that_do_not_finish_a_handshake(run: Run, certificates: Certificates, monkeypatch: Any) -> None:
    """Silent peers cost no TLS state, the oldest ones are closed, and others still get in."""
    monkeypatch.setattr(guard_module, "PENDING_LOGINS_MAX", 20)

    async def main() -> None:
        async with guarded(echo, tls=tls_rules(certificates)) as (listener, guard):
            half_open = [await connect(listener) for _ in range(30)]
            half_open[25][1].write(b"\x16\x03\x01\x01\x00")
            await until(lambda: guard.pending_count == 20)
            await until(lambda: len(connections_of(listener)) == 20)
            reader, writer = await connect(listener, client_context(certificates))
            writer.write(frame(b"x"))
            assert await read_reply(reader) == b"x"
            assert guard.pending_count == 19
            guard.check(asyncio.get_running_loop().time() + bounds.PENDING_LOGIN_SECONDS_MAX + 1)
            await until(lambda: listener.connection_count == 1)
            for _, each in half_open:
                each.close()

    run(main())


@BOTH_LOOPS
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frame(bytes(200)),
        b"\x16\x03\x01\x00\x05hello",
        bytes(100),
        b"\x16\x03\x01\xff\xff" * 99,
    ],
)
def test_other_bytes_than_a_handshake(run: Run, certificates: Certificates, data: bytes) -> None:
    async def main() -> None:
        async with guarded(echo, tls=tls_rules(certificates)) as (listener, guard):
            reader, writer = await connect(listener)
            writer.write(data)
            await expect_closed(reader)
            await until(lambda: listener.connection_count == 0)
            assert guard.pending_count == 0

    run(main())


@BOTH_LOOPS
def test_garbage_after_the_handshake(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with guarded(echo, tls=tls_rules(certificates)) as (listener, _):
            reader, writer = await connect(listener, client_context(certificates))
            writer.write(frame(b"x"))
            await read_reply(reader)
            os.write(writer.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
            await until(lambda: listener.connection_count == 0)

    run(main())
