"""What an endpoint is: a row of the table from which both the routes and the OpenAPI document are made.

A handler is a function of the registry's state and of the call. One that reads answers with an entity; one that writes
answers with a decision, whose records the leader appends. No handler does anything else, so that the same function
runs on the newest state there is, and only there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar

from rookery.registry.decisions import Decision
from rookery.registry.entities import RegisterSchemaRequest
from rookery.registry.rest.parameters import ID, SUBJECT, VERSION, Parameter, Value
from rookery.registry.settings import RegistrySettings, SearchLimit
from rookery.registry.state import State

T = TypeVar("T")
PATH_PARAMETERS: Final[dict[str, Parameter]] = {each.name: each for each in (SUBJECT, VERSION, ID)}
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")


class Registry(Protocol):
    """The service behind the endpoints."""

    @property
    def state(self) -> State: ...

    @property
    def revision(self) -> int:
        """Another number whenever the state has become another."""
        ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_url(self) -> str | None:
        """None while nobody leads."""
        ...

    @property
    def kafka_cluster_id(self) -> str: ...

    async def ask(self, query: Callable[[State], T]) -> T:
        """For questions that take long: other requests are served meanwhile."""
        ...

    async def write(self, decide: Callable[[State], Decision[T]]) -> T:
        """Raises RegistryError if the records cannot be written."""
        ...

    async def catch_up(self) -> None:
        """Returns when the state has what other nodes have written before; after a while in any case."""
        ...


class Page(TypedDict):
    """The arguments of queries that answer with a part of a list."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Call:
    """A request with everything decoded. `values` has the parameters of the path and of the query."""

    registry: Registry
    settings: RegistrySettings
    values: Mapping[str, Value]
    body: Any = None

    @property
    def subject(self) -> str | None:
        """None where the path has no subject: the whole registry is meant."""
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
        """A limit that is too large counts as none, as in Confluent's registry; offsets below 0 count as 0."""
        asked = self.number("limit")
        return Page(offset=max(self.number("offset"), 0), limit=asked if 0 < asked <= limit.maximum else limit.default)

    @property
    def parses_schemas(self) -> bool:
        """Whether the answer takes parsing: one of a schema that was sent, or in another form than the stored one."""
        return isinstance(self.body, RegisterSchemaRequest) or bool(self.values.get("format"))

    def texts(self, name: str) -> list[str]:
        value = self.values[name]
        assert isinstance(value, list)
        return value


Handler: TypeAlias = Callable[[State, Call], Any]


class Writing(NamedTuple):
    """What a request that writes is called when it cannot be sent on, and what is said if nobody leads."""

    request: str
    leader_unknown: str = "Leader not known."
    # A node that does not lead answers by itself if its state says that there is nothing to write.
    is_often_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`name` is the operation's in Confluent's registry; its messages about missing bodies begin with it."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    answer: Any
    query: tuple[Parameter, ...] = ()
    body: Any = None
    writing: Writing | None = None
    # The answer is a schema's text as it is, without quotes around it.
    raw: bool = False
    # Statuses of failures beyond those that every endpoint has.
    failures: tuple[int, ...] = ()

    @property
    def path_parameters(self) -> tuple[Parameter, ...]:
        return tuple(PATH_PARAMETERS[name] for name in _PATH_PARAMETER.findall(self.path))
