"""The schema registry in a node's process: enabled by a key, and not even imported without it."""

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path
from random import SystemRandom

import httpx
import pytest

from rookery.base.clock import SystemClock
from rookery.base.config import BrokerLayers, describe_broker, find_broker_key, load_static
from rookery.base.config_registry import LISTENERS
from rookery.base.errors import ConfigError, StartupError
from rookery.base.files import OsFiles
from rookery.client.admin import Admin
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.registry import queries
from rookery.registry.service import RegistryService
from rookery.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from tests.support.broker import free_port


def make_node(data_dir: Path, *assignments: str) -> Node:
    settings = Settings.load(None, [f"log.dirs={data_dir}", "listeners=PLAINTEXT://127.0.0.1:0", *assignments])
    return Node(settings, files=OsFiles(), clock=SystemClock(), random=SystemRandom())


async def run_once(data_dir: Path) -> None:
    node = make_node(data_dir)
    await node.start()
    await node.stop()


def test_settings_of_the_registry_go_through_the_broker_s(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ann: pass\n", encoding="utf-8")

    async def scenario() -> None:
        url = f"http://127.0.0.1:{free_port()}"
        assignments = [
            f"schema.registry.listeners={url}",
            "schema.registry.authentication.method=BASIC",
            f"schema.registry.authentication.credentials.file={tmp_path / 'users'}",
        ]
        node = make_node(tmp_path / "data", *assignments)
        await node.start()
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                assert (await client.get(f"{url}/subjects")).status_code == 401
                assert (await client.get(f"{url}/subjects", auth=("ann", "pass"))).json() == []
        finally:
            await node.stop()

    asyncio.run(scenario())


def test_a_node_with_a_registry_serves_it_and_stops_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        for known in ([], ["a"]):
            node = make_node(tmp_path, f"schema.registry.listeners={url}", "schema.registry.kafkastore.topic=_mine")
            await node.start()
            try:
                async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                    assert (await client.get(f"{url}/subjects")).json() == known
                    answer = await client.post(f"{url}/subjects/a/versions", json={"schema": '"string"'})
                    assert answer.json() == {"id": 1}
            finally:
                await node.stop()
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                with pytest.raises(httpx.ConnectError):
                    await client.get(url)
        assert (tmp_path / "_mine-0").is_dir()

    asyncio.run(scenario())


def registry_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "rookery-registry"]


def test_the_broker_responds_while_the_registry_is_blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that blocks the registry's event loop does not block the broker's."""
    held, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def block(*_: object, **__: object) -> list[str]:
        threads.append(threading.current_thread())
        held.set()
        assert go_on.wait(60)
        return ["held"]

    monkeypatch.setattr(queries, "list_subjects", block)

    async def scenario() -> None:
        url = f"http://127.0.0.1:{free_port()}"
        node = make_node(tmp_path, f"{LISTENERS}={url}")
        await node.start()
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                asking = asyncio.create_task(client.get(f"{url}/subjects"))
                while not held.is_set():
                    await asyncio.sleep(0.001)
                async with Admin({"bootstrap.servers": node.address}) as admin:
                    assert await admin.list_topics()
                assert not asking.done()
                go_on.set()
                assert (await asking).json() == ["held"]
        finally:
            go_on.set()
            await node.stop()
        assert threads[0] is not threading.current_thread()
        assert registry_threads() == []

    asyncio.run(scenario())


def test_a_start_that_is_cancelled_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    ended = threading.Event()

    async def wait_for_ever(_: RegistryService) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(RegistryService, "start", wait_for_ever)

    async def scenario() -> None:
        starting = asyncio.create_task(make_node(tmp_path, f"{LISTENERS}=http://127.0.0.1:0").start())
        while not begun.is_set():
            await asyncio.sleep(0.001)
        assert len(registry_threads()) == 1
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert ended.is_set()
        assert registry_threads() == []

    asyncio.run(scenario())


def test_a_registry_that_cannot_start_stops_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = make_node(tmp_path, "schema.registry.listeners=http://no.such.host.invalid:0")
        with pytest.raises(StartupError, match="the schema registry cannot listen"):
            await node.start()
        await run_once(tmp_path)

    asyncio.run(scenario())


def test_a_port_in_use_is_reported_before_the_logs_are_opened(tmp_path: Path) -> None:
    async def scenario(port: int) -> None:
        url = f"http://127.0.0.1:{port}"
        await run_once(tmp_path)
        with pytest.raises(StartupError, match=rf"cannot listen on {url}: .* choose another with {LISTENERS}\."):
            await make_node(tmp_path, f"{LISTENERS}={url}").start()
        assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        asyncio.run(scenario(taken.getsockname()[1]))


def test_a_registry_that_fails_late_leaves_the_node_cleanly(tmp_path: Path) -> None:
    async def scenario() -> None:
        key = "schema.registry.kafkagroup.session.timeout.ms"
        settings = (
            f"{LISTENERS}=http://127.0.0.1:0",
            f"{key}=100",
            "schema.registry.kafkagroup.heartbeat.interval.ms=10",
            # The election needs the topic of the groups: fifty partitions on a slow disk take long.
            "offsets.topic.num.partitions=1",
            "schema.registry.kafkastore.init.timeout.ms=600000",
        )
        with pytest.raises(StartupError, match=f"choose {key} within"):
            await make_node(tmp_path, *settings).start()
        assert (tmp_path / "_schemas-0").is_dir()
        assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()

    asyncio.run(scenario())


def test_an_invalid_setting_is_reported_before_anything_is_opened(tmp_path: Path) -> None:
    node = make_node(tmp_path / "data", "schema.registry.listeners=ftp://h:1")
    with pytest.raises(ConfigError, match=r"schema\.registry\.listeners: expected http"):
        asyncio.run(node.start())
    assert not (tmp_path / "data").exists()


def test_without_its_libraries_the_start_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['uvicorn'] = None; from rookery.cli.main import main; main()"
    arguments = ["start", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    arguments += ["--set", "schema.registry.listeners=http://127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install '.[registry]'" in done.stderr


def test_without_the_key_no_module_of_the_registry_is_imported(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from random import SystemRandom
from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.node.node import Node
from rookery.node.settings import Settings
async def run():
    settings = Settings.load(None, ["log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"])
    node = Node(settings, files=OsFiles(), clock=SystemClock(), random=SystemRandom())
    await node.start()
    await node.stop()
asyncio.run(run())
print([name for name in sys.modules if name.partition(".")[0] in ("starlette", "uvicorn", "httpx", "avro", "fastavro")
       or name.startswith(("rookery.registry", "rookery.schemas"))])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_keys_of_a_registry_that_is_off_are_named_as_without_effect() -> None:
    settings = Settings.load(None, ["log.dirs=data", "schema.registry.group.id=mine"])
    assert not settings.has_registry
    assert settings.without_effect == ("schema.registry.group.id",)
    on = Settings.load(None, ["log.dirs=data", "schema.registry.listeners=http://:1", "schema.registry.group.id=mine"])
    assert on.has_registry
    assert on.without_effect == ()


def test_keys_of_its_clients_are_passed_on_and_hidden() -> None:
    name = "schema.registry.kafkastore.sasl.jaas.config"
    static = load_static("", "", [f"{name}=secret"])
    (entry,) = [entry for entry in describe_broker(BrokerLayers(static=static)) if entry.name == name]
    assert entry.is_sensitive
    assert entry.value is None
    with pytest.raises(ConfigError, match="unknown key"):
        find_broker_key("schema.registry.no.such.key")
