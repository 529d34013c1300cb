"""A registry without brokers that replays planned writes immediately, and its REST app."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.testclient import TestClient

from rookery.registry.commands import PlannedWrite
from rookery.registry.rest.app import create_app
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State

T = TypeVar("T")
V1_JSON = "application/vnd.schemaregistry.v1+json"


class MemoryRegistry:
    """The service of the app. It leads, unless a test sets `is_leader`."""

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

    async def run_query(self, query: Callable[[State], T]) -> T:
        return query(self.state)

    async def write(self, plan: Callable[[State], PlannedWrite[T]]) -> T:
        planned = plan(self.state)
        for key, value in planned.records:
            self.state.replay(key, value)
            self.records.append((key, value))
        return planned.result

    async def catch_up(self) -> None:
        self.catch_up_count += 1


def settings(**changes: str) -> RegistrySettings:
    config = {"listeners": "http://127.0.0.1:0", "kafkastore.bootstrap.servers": "127.0.0.1:9092"}
    return RegistrySettings.parse(config | {name.replace("_", "."): value for name, value in changes.items()})


class Rest:
    """A client, with the app and the registry that it calls."""

    def __init__(self, **changes: str) -> None:
        self.registry = MemoryRegistry()
        self.app = create_app(self.registry, settings(**changes))
        self.client = TestClient(self.app, base_url="http://registry")

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Return the response, which has the type of the HTTP client inside Starlette's test client."""
        return self.client.request(method, path, json=body, **options)

    def get(self, path: str, **options: Any) -> Any:
        """Return the decoded body of the response to a request that must succeed."""
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
        """Return status, code and message of a request that must fail and must change nothing."""
        before = len(self.registry.records)
        response = self.call(method, path, body, **options)
        assert response.status_code >= 400, response.text
        error: Mapping[str, Any] = response.json()
        assert set(error) == {"error_code", "message"}
        assert len(self.registry.records) == before
        return response.status_code, error["error_code"], error["message"]

    @staticmethod
    def _checked(response: Any) -> Any:
        assert response.status_code == 200, response.text
        return response.json()
