"""The authorizer as guards and handlers use it: for the client of one request.

Every question that a client's request leads to is passed on to the audit log, unless it only finds out what a client
may see: `sees` is for lists from which denied items are left out, and for sets of authorized operations.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from rookery.base.codes import AclOperation, AclResourceType
from rookery.net.connection import ConnectionInfo
from rookery.protocol.principal import Principal
from rookery.security.acls import CLUSTER_NAME
from rookery.security.authorizer import Authorizer, ClientDecisions, Decision, Decisions, principal_text

# An attribute of an Enum takes longer to find than a decision.
_CLUSTER: Final = AclResourceType.CLUSTER


class Asker(Protocol):
    """The request that leads to a question; see `broker.context.Context`."""

    @property
    def api_key(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def connection(self) -> ConnectionInfo: ...


class DecisionLog(Protocol):
    """The part of the audit log that records decisions."""

    # Whether decisions that allow are recorded: asked before each, because they are frequent.
    records_allowed: bool

    def decided(
        self,
        asker: Asker,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        decision: Decision,
    ) -> None: ...


class _NoLog:
    records_allowed = False

    def decided(self, *_: object) -> None:
        pass


class Client:
    """The client of one request, and what it may do."""

    __slots__ = ("_asker", "_decisions", "_log")

    def __init__(self, asker: Asker, decisions: ClientDecisions, log: DecisionLog) -> None:
        self._asker = asker
        self._decisions = decisions
        self._log = log

    def allows(
        self, operation: AclOperation, resource_type: AclResourceType, name: str, *, is_logged: bool = True
    ) -> bool:
        """Return whether the operation is allowed. `is_logged=False` if another permission may suffice instead."""
        decision = self._decisions.decisions(operation, resource_type)[name]
        if decision.allowed:
            if self._log.records_allowed:
                self._log.decided(self._asker, operation, resource_type, name, decision)
        elif is_logged:
            self._log.decided(self._asker, operation, resource_type, name, decision)
        return decision.allowed

    def allows_on_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        return self.allows(operation, _CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the operation is allowed on at least one resource of the type."""
        decision = self._decisions.on_any(operation, resource_type)
        if not decision.allowed or self._log.records_allowed:
            self._log.decided(self._asker, operation, resource_type, "*", decision)
        return decision.allowed

    def denied(self, operation: AclOperation, resource_type: AclResourceType, names: Iterable[str]) -> set[str]:
        """Return the names on which the operation is denied."""
        return {name for name in dict.fromkeys(names) if not self.allows(operation, resource_type, name)}

    def sees(self, operation: AclOperation, resource_type: AclResourceType) -> Decisions:
        """Return decisions by name that are not logged."""
        return self._decisions.decisions(operation, resource_type)


class Access:
    """The authorizer of a node, and the log of its decisions."""

    def __init__(self, authorizer: Authorizer, log: DecisionLog | None = None) -> None:
        self.authorizer = authorizer
        self.log: DecisionLog = log or _NoLog()
        self._local = Authorizer(super_users=(principal_text(_NODE),)).client(_NODE, "")

    def decisions(self, asker: Asker) -> ClientDecisions:
        """Return the decisions about the client of a frequent request, whose handler notes them in `log` itself.

        They are kept with the connection, for its principal, until the ACLs change.
        """
        connection, authorizer = asker.connection, self.authorizer
        principal, kept = connection.principal, connection.decisions
        if kept is not None and kept[0] is principal and kept[1].version == authorizer.version:
            return kept[1]
        decisions = authorizer.client(principal, connection.peer_host)
        connection.decisions = (principal, decisions)
        return decisions

    def client(self, asker: Asker) -> Client:
        """Return the client of a request. A node's requests to itself, which use no network, are always allowed."""
        connection = asker.connection
        if connection.is_local:
            return Client(asker, self._local, _QUIET)
        return Client(asker, self.authorizer.client(connection.principal, connection.peer_host), self.log)


# The principal of requests that do not leave their process; it occurs in no entry.
_NODE: Final = Principal("Node", "local")
_QUIET: Final = _NoLog()
