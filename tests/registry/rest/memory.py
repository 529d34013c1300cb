"""A registry without brokers, where what is written is replayed at once, and the app in front of it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.testclient import TestClient

from rookery.registry.decisions import Decision
from rookery.registry.rest.app import create_app
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State

T = TypeVar("T")
V1_JSON = "application/vnd.schemaregistry.v1+json"


class MemoryRegistry:
    """Leads, unless it is told otherwise."""

    kafka_cluster_id = "a-cluster"

    def __init__(self) -> None:
        self.state = State()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.is_leader = True
        self.leader_url: str | None = None
        self.catch_up_count = 0

    @property
    def revision(self) -> int:
        return len(self.records)

    async def ask(self, query: Callable[[State], T]) -> T:
        return query(self.state)

    async def write(self, decide: Callable[[State], Decision[T]]) -> T:
        decision = decide(self.state)
        for key, value in decision.records:
            self.state.replay(key, value)
            self.records.append((key, value))
        return decision.result

    async def catch_up(self) -> None:
        self.catch_up_count += 1


def settings(**changes: str) -> RegistrySettings:
    config = {"listeners": "http://127.0.0.1:0", "kafkastore.bootstrap.servers": "127.0.0.1:9092"}
    return RegistrySettings.parse(config | {name.replace("_", "."): value for name, value in changes.items()})


class Rest:
    """A client, and what stands behind it."""

    def __init__(self, **changes: str) -> None:
        self.registry = MemoryRegistry()
        self.app = create_app(self.registry, settings(**changes))
        self.client = TestClient(self.app, base_url="http://registry")

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The response of whatever HTTP client Starlette's test client is made of."""
        return self.client.request(method, path, json=body, **options)

    def get(self, path: str, **options: Any) -> Any:
        """The answer to a request that succeeds."""
        return self._checked(self.call("GET", path, **options))

    def post(self, path: str, body: Any, **options: Any) -> Any:
        return self._checked(self.call("POST", path, body, **options))

    def put(self, path: str, body: Any, **options: Any) -> Any:
        return self._checked(self.call("PUT", path, body, **options))

    def delete(self, path: str, **options: Any) -> Any:
        return self._checked(self.call("DELETE", path, **options))

    def register(self, subject: str, schema: str, **fields: Any) -> int:
        registered: dict[str, int] = self.post(f"/subjects/{subject}/versions", {"schema": schema, **fields})
        return registered["id"]

    def fail(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, int, str]:
        """Status, code and message of a request that fails; it changes nothing."""
        before = len(self.registry.records)
        answer = self.call(method, path, body, **options)
        assert answer.status_code >= 400, answer.text
        failure: Mapping[str, Any] = answer.json()
        assert set(failure) == {"error_code", "message"}
        assert len(self.registry.records) == before
        return answer.status_code, failure["error_code"], failure["message"]

    @staticmethod
    def _checked(answer: Any) -> Any:
        assert answer.status_code == 200, answer.text
        return answer.json()
