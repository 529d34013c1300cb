"""A row of the table of APIs: the columns, and their types. `broker.api_table` has the rows."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.values import value_class
from rookery.broker.access.guards import Guard, Unguarded
from rookery.broker.auditing import DescribeChanges
from rookery.broker.context import ClusterContext, RequestContext
from rookery.broker.request_pieces import Split
from rookery.net.connection import Handler as ConnectionHandler
from rookery.net.connection import HandlerResult
from rookery.protocol.api import DEFINED, SERVED, SERVED_BY_CONTROLLERS, ApiKey, VersionRange, api_name
from rookery.protocol.message import Struct

# Takes a decoded request and returns a response. Each takes the type of its API's request, which one type for all of
# them cannot say.
Handler: TypeAlias = Callable[[RequestContext, Any], Struct | Awaitable[Struct]]
# The same on a controller's listener: the node may not be a broker.
ControllerHandler: TypeAlias = Callable[[ClusterContext, Any], Struct | Awaitable[Struct]]
# Reads the frame, from the position of the body on, and makes the whole reply.
FrameHandler: TypeAlias = Callable[[RequestContext, memoryview, int], HandlerResult]
# Passes the request in an envelope to the first argument, which handles frames of forwarded requests.
EnvelopeHandler: TypeAlias = Callable[[ConnectionHandler, ClusterContext, Any], Awaitable[Struct]]


class ListenerType(Enum):
    """A kind of listener that serves an API."""

    BROKER = "broker"
    CONTROLLER = "controller"


class Quota(Enum):
    """The quota that limits an API's requests. Responses have `throttle_time_ms` unless it is NONE.

    Requests between nodes are EXEMPT: their responses have the field, which is always 0.
    """

    NONE = "none"
    EXEMPT = "exempt"
    REQUEST = "request"
    PRODUCE = "produce"
    FETCH = "fetch"
    CONTROLLER_MUTATION = "controller mutation"


class Permission(NamedTuple):
    operation: AclOperation
    resource_type: AclResourceType


@value_class(kw_only=True)
class Api:
    """A row of the table. At most one of `handle` and `handle_frame`, the handlers on a broker's listener, is set, and
    at most one of `handle_on_controller` and `handle_envelope`, those on a controller's listener.
    """

    key: ApiKey
    handle: Handler | None = None
    handle_frame: FrameHandler | None = None
    handle_on_controller: ControllerHandler | None = None
    handle_envelope: EnvelopeHandler | None = None
    # How requests about many items are cut, by the first version with that layout; others are decided as a whole.
    splits: Mapping[int, Split] = field(default_factory=dict)
    # Whether a broker passes the request on to the active controller.
    is_forwarded: bool = False
    # The permissions that the guard may ask for; a request does not need all of them.
    permissions: tuple[Permission, ...] = ()
    # What runs before the handlers of messages if there is an authorizer; `guard_on_controller` on a controller's
    # listener, if that asks for something else.
    guard: Guard | Unguarded | None = None
    guard_on_controller: Guard | None = None
    # The handler of frames that asks the authorizer.
    handle_frame_guarded: FrameHandler | None = None
    # Tells the audit log what a request has changed, by its response.
    describe_changes: DescribeChanges | None = None
    quota: Quota = Quota.REQUEST
    # Names, in addition to the API's own, under which Kafka's metrics count some of its requests.
    more_metric_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Kafka's name, as in `CreateTopics`."""
        return api_name(self.key)

    @property
    def listeners(self) -> tuple[ListenerType, ...]:
        on_broker = self.handle is not None or self.handle_frame is not None
        on_controller = self.handle_on_controller is not None or self.handle_envelope is not None
        served = ((ListenerType.BROKER, on_broker), (ListenerType.CONTROLLER, on_controller))
        return tuple(listener for listener, is_served in served if is_served)

    @property
    def versions(self) -> range:
        """The versions that the handler accepts."""
        return range(DEFINED[self.key].minimum, DEFINED[self.key].maximum + 1)

    @property
    def advertised(self) -> VersionRange:
        """The versions in ApiVersions. Those of Produce include older ones, which are rejected."""
        return SERVED.get(self.key) or SERVED_BY_CONTROLLERS[self.key]

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (self.name, *self.more_metric_names)

    @property
    def has_throttle_time(self) -> bool:
        return self.quota is not Quota.NONE

    def guard_of(self, listener_type: ListenerType) -> Guard | None:
        """Return the guard of the messages on a type of listener; None if none is needed."""
        guard = self.guard
        if listener_type is ListenerType.CONTROLLER and self.guard_on_controller is not None:
            guard = self.guard_on_controller
        return None if isinstance(guard, Unguarded) else guard

    def split_of(self, version: int) -> Split | None:
        """Return how a request of this version is cut into pieces; None if it is handled as a whole."""
        since = max((first for first in self.splits if first <= version), default=None)
        return None if since is None else self.splits[since]
