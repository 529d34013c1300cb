"""The rows of the table of endpoints, from which both the routes and the OpenAPI document are built.

A handler is a pure function of the registry's state and of the call. A handler that reads returns an entity; one that
writes returns a `PlannedWrite`, whose records the leader appends. Since handlers do nothing else, the registry can run
them where the state is newest: on the leader, under its write lock, and again after a failed append.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar

from rookery.registry.commands import PlannedWrite
from rookery.registry.entities import RegisterSchemaRequest
from rookery.registry.rest.parameters import ID, SUBJECT, VERSION, Parameter, Value
from rookery.registry.settings import RegistrySettings, SearchLimit
from rookery.registry.state import State

T = TypeVar("T")
PATH_PARAMETERS: Final[dict[str, Parameter]] = {each.name: each for each in (SUBJECT, VERSION, ID)}
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")


class Registry(Protocol):
    """What the endpoints need of the registry's service."""

    @property
    def state(self) -> State: ...

    @property
    def revision(self) -> int:
        """A number that changes whenever the state does."""
        ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_url(self) -> str | None:
        """None if there is no leader."""
        ...

    @property
    def kafka_cluster_id(self) -> str: ...

    async def run_query(self, query: Callable[[State], T]) -> T:
        """Run a long query without blocking other requests."""
        ...

    async def write(self, plan: Callable[[State], PlannedWrite[T]]) -> T:
        """Write the planned records and return the result. Raises RegistryError."""
        ...

    async def catch_up(self) -> None:
        """Return when the state contains what other nodes wrote before the call, or after a time-out."""
        ...


class Page(TypedDict):
    """The arguments of queries that return a part of a list."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Call:
    """A decoded request. `values` holds the parameters of the path and of the query."""

    registry: Registry
    settings: RegistrySettings
    values: Mapping[str, Value]
    body: Any = None
    # The principal of the request; None without authentication.
    principal: str | None = None

    @property
    def subject(self) -> str | None:
        """The subject in the path; None if there is none, which means the whole registry."""
        return self.text("subject") if "subject" in self.values else None

    def flag(self, name: str) -> bool:
        return self.values[name] is True

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str)
        return value

    def page(self, limit: SearchLimit) -> Page:
        """Return the requested page. As in Confluent's registry, a limit that is too large is replaced by the default,
        and an offset below 0 counts as 0."""
        size = self.number("limit")
        return Page(offset=max(self.number("offset"), 0), limit=size if 0 < size <= limit.maximum else limit.default)

    @property
    def parses_schemas(self) -> bool:
        """Whether the handler parses schemas: the one in the body, or a stored one to return it in another form."""
        return isinstance(self.body, RegisterSchemaRequest) or bool(self.values.get("format"))

    def texts(self, name: str) -> list[str]:
        value = self.values[name]
        assert isinstance(value, list)
        return value


Handler: TypeAlias = Callable[[State, Call], Any]


class Write(NamedTuple):
    """A request that writes: its name and the message without a leader are parts of Confluent's error messages."""

    name: str
    leader_unknown: str = "Leader not known."
    # A node that does not lead first checks in its own state whether there is anything to write.
    checks_locally: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`name` is the operation's name in Confluent's registry, which is part of its messages about missing bodies."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    # The types of the entities in the response and in the body.
    response: Any
    query: tuple[Parameter, ...] = ()
    body: Any = None
    write: Write | None = None
    # The response is the text of a schema, not encoded as a JSON string.
    raw: bool = False
    # The statuses of errors, in addition to those of every endpoint.
    error_statuses: tuple[int, ...] = ()

    @property
    def path_parameters(self) -> tuple[Parameter, ...]:
        return tuple(PATH_PARAMETERS[name] for name in _PATH_PARAMETER.findall(self.path))
