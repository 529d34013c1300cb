"""A voter of ours between two controllers of Apache Kafka: it follows, votes, and leads them."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from bench.systems import free_ports
from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.net.listener import Listener, ListenerSettings
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.quorum.driver import QuorumDriver
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from rookery.storage.directory import LogDirectory
from tests.conformance.java_tools import JARS, run_tool
from tests.quorum.members import quorum_handler

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
OURS = 3
_JVM = ("-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{JARS}/*")


class JavaController:
    """One controller of Apache Kafka; it is formatted when it is made."""

    def __init__(self, directory: Path, node_id: int, ports: list[int]) -> None:
        directory.mkdir()
        self._directory = directory
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        settings = {
            "process.roles": "controller",
            "node.id": node_id,
            "listeners": f"CONTROLLER://127.0.0.1:{ports[node_id - 1]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": directory / "data",
        }
        self._properties = directory / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        run_tool("storage", "format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties))
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._directory / "log.txt").open("ab") as log:
            command = ["java", *_JVM, "kafka.Kafka", str(self._properties)]
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


async def until(condition: Callable[[], object], within_s: float = 90) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.java
@pytest.mark.timeout(600)
def test_a_voter_between_controllers_of_apache_kafka(tmp_path: Path) -> None:
    ports = free_ports(3)
    java = {node_id: JavaController(tmp_path / f"java-{node_id}", node_id, ports) for node_id in (1, 2)}
    (tmp_path / "ours").mkdir()
    voters = VoterSet(
        Voter(ReplicaKey(node_id), {"CONTROLLER": Endpoint("127.0.0.1", port)}) for node_id, port in enumerate(ports, 1)
    )

    async def scenario() -> None:
        driver = QuorumDriver.open(
            OsFiles(),
            LogDirectory(tmp_path / "ours"),
            node_id=OURS,
            clock=SystemClock(),
            cluster_id=CLUSTER_ID,
            voters=voters,
            jitter=Random(7).random,
            endpoints={"CONTROLLER": Endpoint("127.0.0.1", ports[OURS - 1])},
        )
        listener = Listener("127.0.0.1", ports[OURS - 1], quorum_handler(lambda: driver), settings=ListenerSettings())
        await listener.start()
        await driver.start()
        try:
            await use(driver, java)
        finally:
            await listener.close()
            await driver.close()

    try:
        for controller in java.values():
            controller.start()
        asyncio.run(scenario())
    finally:
        for controller in java.values():
            controller.kill()


async def use(driver: QuorumDriver, java: dict[int, JavaController]) -> None:
    for _ in range(6):
        await until(lambda: driver.leader_id is not None and driver.high_watermark > 0)
        if driver.leader_id == OURS:
            await until(lambda: driver.is_leading)
            # A NoOp record: a controller of Apache Kafka that follows has to load what is committed.
            await driver.append([b"\x01\x14\x00\x00"])
            await check_followed(driver)
            return
        await replace_leader(driver, java[driver.leader_id or 0], driver.leader_epoch)
    raise AssertionError("a controller of Apache Kafka led each time")


async def replace_leader(driver: QuorumDriver, leader: JavaController, epoch: int) -> None:
    before = driver.high_watermark
    await until(lambda: driver.high_watermark > before)
    leader.kill()
    await until(lambda: driver.leader_epoch > epoch and driver.leader_id is not None)
    leader.start()
    await asyncio.sleep(5)


async def check_followed(driver: QuorumDriver) -> None:
    """Controllers of Apache Kafka fetch everything from our leader, and report it as committed."""
    request = Message(topics=[Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])])

    async def caught_up() -> set[int]:
        described = (await driver.receive(ApiKey.DESCRIBE_QUORUM, request)).topics[0].partitions[0]
        return {row.replica_id for row in described.current_voters if row.log_end_offset == described.high_watermark}

    async with asyncio.timeout(90):
        while await caught_up() != {1, 2, OURS}:
            await asyncio.sleep(0.1)
