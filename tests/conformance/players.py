"""The foreign client and the broker of a transaction scenario."""

from collections.abc import Callable
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import TIMEOUT_S
from tests.conformance.interfaces import Source, Transactor
from tests.conformance.java_tools import speak_classic

JAVA, JAVA_CLASSIC = "java", "java-classic"


class _Closable(Protocol):
    def close(self) -> None: ...


class Player:
    """Creates transactional producers and group consumers of one client, and closes those that a test leaves open."""

    def __init__(
        self, name: str, bootstrap: str, transactor: Callable[..., Transactor], source: Callable[..., Source]
    ) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self._transactor = transactor
        self._source = source
        self._open: list[_Closable] = []

    def move_to(self, bootstrap: str) -> None:
        """Use another broker, which the test has started."""
        self.bootstrap = bootstrap
        if self.name == JAVA_CLASSIC:
            speak_classic(bootstrap)

    def transactor(self, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> Transactor:
        made = self._transactor(self.bootstrap, transactional_id, timeout_ms=timeout_ms, codec=codec)
        self._open.append(made)
        return made

    def source(self, group_id: str, topic: str) -> Source:
        made = self._source(self.bootstrap, group_id, topic)
        self._open.append(made)
        return made

    def drop(self, *made: _Closable) -> None:
        for one in made:
            self._open.remove(one)
            one.close()

    def close(self) -> None:
        self.drop(*self._open)


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(TIMEOUT_S)
    return topic
