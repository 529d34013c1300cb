"""Kafka's Java clients with the interfaces of `transactors`, driven through a program, `java/TransactionDriver.java`.

Java compiles the program when it starts. All tests of a process share one, because a start takes seconds.
"""

import itertools
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conformance.interfaces import READ_COMMITTED, FencedError, Partition
from tests.conformance.java_tools import JARS
from tests.conformance.members import SESSION_MS

SOURCE = Path(__file__).parent / "java" / "TransactionDriver.java"
STOP_TIMEOUT_S = 10
CALL_TIMEOUT_S = 60
_FENCED = {"ProducerFencedException", "InvalidProducerEpochException"}


class JavaError(Exception):
    """An exception in Java: the names of the exception and of its causes, and the message."""

    def __init__(self, names: str, message: str) -> None:
        super().__init__(f"{names}: {message}")
        self.names = names.split(",")


class JavaDriver:
    """A running driver. Leaving the context ends it."""

    def __init__(self) -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", f"{JARS}/*", str(SOURCE)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._numbers = itertools.count()

    def new_name(self) -> str:
        return f"client-{next(self._numbers)}"

    def call(self, *words: object) -> list[str]:
        """Run a command; returns its results. Raises JavaError or FencedError for an exception in Java."""
        assert self._process.stdin is not None
        print(*words, sep="\t", file=self._process.stdin, flush=True)
        # A call that never ends must not hang the tests: killing the driver ends its output.
        watchdog = threading.Timer(CALL_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            kind, *results = self._read_reply()
        finally:
            watchdog.cancel()
        if kind == "ok":
            return results
        error = JavaError(*results)
        if _FENCED & set(error.names):
            raise FencedError(str(error)) from error
        raise error

    def _read_reply(self) -> list[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("= "):
                return line[2:].rstrip("\n").split("\t")
        raise AssertionError("the Java driver ended")

    def __enter__(self) -> "JavaDriver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=STOP_TIMEOUT_S)


class JavaSource:
    def __init__(self, driver: JavaDriver, bootstrap: str, group_id: str, topic: str) -> None:
        self.name = driver.new_name()
        self._driver = driver
        settings = (
            f"bootstrap.servers={bootstrap}",
            f"group.id={group_id}",
            "auto.offset.reset=earliest",
            "enable.auto.commit=false",
            # No more than the test takes, so that the position is after the last of them.
            "max.poll.records=1",
            f"session.timeout.ms={SESSION_MS}",
            f"isolation.level={READ_COMMITTED}",
        )
        driver.call("consumer", self.name, topic, *settings)

    def take(self, count: int) -> list[bytes]:
        return [value.encode() for value in self._driver.call("take", self.name, count)]

    def positions(self) -> dict[Partition, int]:
        words = self._driver.call("positions", self.name)
        triples = zip(words[::3], words[1::3], words[2::3], strict=True)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in triples}

    def close(self) -> None:
        self._driver.call("drop-consumer", self.name)


class JavaTransactor:
    def __init__(
        self,
        driver: JavaDriver,
        bootstrap: str,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        codec: str = "none",
    ) -> None:
        self.name = driver.new_name()
        self._driver = driver
        settings = (
            f"bootstrap.servers={bootstrap}",
            f"transactional.id={transactional_id}",
            f"transaction.timeout.ms={timeout_ms}",
            f"compression.type={codec}",
            "linger.ms=20",
            "reconnect.backoff.max.ms=200",
        )
        driver.call("producer", self.name, *settings)

    def begin(self) -> None:
        self._driver.call("begin", self.name)

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        self._driver.call("send", self.name, topic, partition, *(value.decode() for value in values))

    def send_offsets(self, offsets: Mapping[Partition, int], source: Any, *, generation: int | None = None) -> None:
        """Commit offsets; with a `generation`, the metadata is that of a member that the group does not have."""
        words = [word for place, offset in offsets.items() for word in (*place, offset)]
        self._driver.call("offsets", self.name, source.name, "" if generation is None else generation, *words)

    def commit(self) -> None:
        self._driver.call("commit", self.name)

    def abort(self) -> None:
        self._driver.call("abort", self.name)

    def close(self) -> None:
        self._driver.call("drop-producer", self.name)


def read_with_java(driver: JavaDriver, bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    """Return all values of partition 0, up to its end for this isolation level."""
    settings = (f"bootstrap.servers={bootstrap}", f"isolation.level={isolation}", "fetch.max.wait.ms=10")
    return [value.encode() for value in driver.call("read", topic, 0, *settings)]
