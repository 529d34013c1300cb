"""Complete nodes of the registry: over HTTP, in several processes, one of which is killed."""

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from rookery.base.errors import StartupError
from rookery.registry import log as log_module
from rookery.registry import server as server_module
from rookery.registry import service as service_module
from rookery.registry.node import RegistryNode
from rookery.registry.settings import RegistrySettings
from rookery.testing import EmbeddedBroker
from tests.registry.services import BROKER_SETTINGS, QUICK, SHORT_SESSION, settings_of, until
from tests.support.certificates import make_certificates

ROOT = Path(__file__).resolve().parents[2]
ANYTHING_GOES = {"schema.compatibility.level": "none"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=BROKER_SETTINGS) as broker:
        yield broker


@asynccontextmanager
async def running(broker: EmbeddedBroker, **changes: str) -> AsyncIterator[RegistryNode]:
    node = RegistryNode(settings_of(broker, **changes))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@contextmanager
def process(broker: EmbeddedBroker) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    config = {"kafkastore.bootstrap.servers": broker.bootstrap_servers, "listeners": "http://127.0.0.1:0"}
    command = [
        sys.executable,
        "-m",
        "tests.registry.registry_process",
        *(f"{k}={v}" for k, v in (config | QUICK | SHORT_SESSION | ANYTHING_GOES).items()),
    ]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    try:
        url = started.stdout.readline().strip()
        assert url.startswith("http://"), "the registry did not come to serve"
        yield started, url
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def enum(number: int) -> str:
    return f'{{"type":"enum","name":"e{number}","symbols":["A"]}}'


async def register(client: httpx.AsyncClient, url: str, subject: str, text: str) -> int | None:
    """Return the id, or None if the request must be retried."""
    try:
        answer = await client.post(f"{url}/subjects/{subject}/versions", json={"schema": text})
    except httpx.HTTPError:
        return None
    if answer.status_code == 500:
        return None
    assert answer.status_code == 200, answer.text
    found = answer.json()["id"]
    assert isinstance(found, int)
    return found


async def register_with_retries(client: httpx.AsyncClient, urls: list[str], subject: str, text: str) -> int:
    while True:
        for url in urls:
            found = await register(client, url, subject, text)
            if found is not None:
                return found
        await asyncio.sleep(0.05)


def test_every_node_accepts_writes_and_reads(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with (
            running(broker) as one,
            running(broker) as two,
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
        ):
            assert one.urls == (one.url,)
            await until(
                lambda: one.service.leader_url == two.service.leader_url and one.service.leader_url is not None,
                "both know the leader",
            )
            leader, follower = (one, two) if one.service.is_leader else (two, one)
            assert await register(client, follower.url, "a", '"string"') == 1
            assert await register(client, leader.url, "a", '"string"') == 1
            await follower.service.catch_up()
            for node in (leader, follower):
                assert (await client.get(f"{node.url}/schemas/ids/1")).json() == {"schema": '"string"'}

    asyncio.run(scenario())


def test_concurrent_registrations_at_all_nodes_give_one_id(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with (
            running(broker, **ANYTHING_GOES) as one,
            running(broker, **ANYTHING_GOES) as two,
            running(broker, **ANYTHING_GOES) as three,
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
        ):
            urls = [one.url, two.url, three.url]
            ids = await asyncio.gather(
                *(
                    register_with_retries(client, urls[n % 3 :] + urls[: n % 3], f"s{n % 5}", enum(n % 4))
                    for n in range(60)
                )
            )
            by_text = {number % 4: set(ids[number::4]) for number in range(4)}
            assert sorted(len(found) for found in by_text.values()) == [1, 1, 1, 1]
            assert set(ids) == {1, 2, 3, 4}

    asyncio.run(scenario())


def test_http_and_https_with_passwords_and_a_name(broker: EmbeddedBroker, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    (tmp_path / "users").write_text("ann: pass,admin\n")

    async def scenario() -> None:
        changes = {
            "listeners": "https://127.0.0.1:0,http://127.0.0.1:0",
            "host.name": "localhost",
            "inter.instance.protocol": "https",
            "ssl.keystore.location": str(certificates.broker),
            "authentication.method": "BASIC",
            "authentication.credentials.file": str(tmp_path / "users"),
        }
        async with running(broker, **changes) as node:
            assert node.url.startswith("https://localhost:")
            assert node.service.leader_url == node.url
            for url in node.urls:
                async with httpx.AsyncClient(
                    verify=_trusting(certificates.authority), trust_env=False, timeout=60
                ) as client:
                    assert (await client.get(f"{url}/subjects")).status_code == 401
                    assert (await client.get(f"{url}/subjects", auth=("ann", "pass"))).json() == []

    asyncio.run(scenario())


def _trusting(authority: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority)


def test_a_missing_file_of_credentials_is_an_error(broker: EmbeddedBroker, tmp_path: Path) -> None:
    changes = {"authentication.method": "BASIC", "authentication.credentials.file": str(tmp_path / "missing")}
    with pytest.raises(StartupError, match=r"authentication\.credentials\.file cannot be read"):
        asyncio.run(RegistryNode(settings_of(broker, **changes)).start())


def test_without_brokers_the_start_ends_in_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # There are many attempts before the time-out.
    monkeypatch.setattr(log_module, "_BROKER_WAIT_S", 0.05)
    with socket.socket() as bound:
        # No process listens there, or can begin to.
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        config = {"listeners": "http://127.0.0.1:0", "kafkastore.init.timeout.ms": "1000"}
        settings = RegistrySettings.parse(config | {"kafkastore.bootstrap.servers": address})
        complaint = rf"not ready within kafkastore\.init\.timeout\.ms .*{address}.* The last error: .*{address}"
        with pytest.raises(StartupError, match=complaint):
            asyncio.run(RegistryNode(settings).start())
    assert "the schema registry waits for the brokers" in capsys.readouterr().out


def test_a_stop_completes_writes_in_progress(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "_DRAIN_S", 0.1)
    monkeypatch.setattr(server_module, "_GRACE_S", 60)
    # Errors that earlier tests left behind are logged now.
    gc.collect()
    caplog.clear()

    async def scenario() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            async with running(broker, **{"kafkastore.timeout.ms": "60000"}) as node:
                held = broker.faults.delay("EndTxn", 60.0)
                paths = [f"{node.url}/subjects/{name}/versions" for name in "abc"]
                writes = [asyncio.create_task(client.post(path, json={"schema": '"int"'})) for path in paths]
                await until(
                    lambda: held.hits > 0 and len(node.service._writes) == 3, "one is written, and the others wait"
                )
            answers = await asyncio.gather(*writes)
            assert {answer.json()["message"] for answer in answers} == {"This registry is shutting down"}
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    asyncio.run(scenario())


def test_a_killed_leader_loses_nothing_and_no_id_is_assigned_twice(broker: EmbeddedBroker) -> None:
    async def scenario(leader: "subprocess.Popen[str]", leader_url: str) -> None:
        given: dict[str, int] = {}
        # The node with the smallest URL leads.
        last = {"host.name": "localhost"}
        async with (
            running(broker, **ANYTHING_GOES, **last) as heir,
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
        ):
            await until(lambda: heir.service.leader_url == leader_url, "the heir knows the leader")
            urls = [leader_url, heir.url]

            async def write_many(name: str) -> None:
                for number in range(15):
                    text = f'{{"type":"enum","name":"{name}{number}","symbols":["A"]}}'
                    given[text] = await register_with_retries(client, urls, name, text)

            writing = [asyncio.create_task(write_many(name)) for name in "abc"]
            await until(
                lambda: len(given) > 9 and heir.service.leader_url == leader_url,
                "some are written, and the first leads",
            )
            leader.kill()
            urls.pop(0)
            await asyncio.gather(*writing)
            assert len(set(given.values())) == len(given) == 45
            for text, number in given.items():
                answer = await client.get(f"{heir.url}/schemas/ids/{number}")
                assert answer.json() == {"schema": text}

    with process(broker) as (leader, leader_url):
        asyncio.run(scenario(leader, leader_url))
