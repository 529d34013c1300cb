"""The audit log of a node: it learns of decisions, logins and changes, and writes them in the background.

Noting an event never waits and never fails: events are put into a bounded queue (`security.audit`), which a job empties
every second. Decisions that deny are also log lines, in Kafka's words, whether there is an audit log or not.
"""

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Final

import structlog

from rookery.base.clock import Clock
from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.config import BrokerLayers
from rookery.base.config_access import (
    AUDIT_DECISIONS,
    AUDIT_FILE,
    AUDIT_FILE_BYTES,
    AUDIT_FILE_COUNT,
    AUDIT_INTERVAL,
    AUDIT_QUEUE,
    AUDIT_SINK,
    AUDIT_TOPIC,
    AUDIT_TOPIC_FACTOR,
    AUDIT_TOPIC_RETENTION,
)
from rookery.base.errors import ApiError, StorageError
from rookery.broker.auditing import Change
from rookery.broker.context import ChangeLog, ClusterContext, Services
from rookery.broker.permissions import Asker
from rookery.net.connection import ConnectionInfo
from rookery.net.login import LoggedLogins, LoginObserver
from rookery.net.peers import Peers
from rookery.node.audit_sinks import AuditSink, AuditTopic, FileSink, TopicSink
from rookery.node.background import Job
from rookery.node.environment import Environment
from rookery.protocol.api import api_name
from rookery.security.audit import AuditEvent, AuditFormat, AuditKind, AuditLine, AuditQueue
from rookery.security.authorizer import Decision, principal_text

_log = structlog.get_logger(__name__)

_PAUSE_MS: Final = 1000
# How many lines are written together.
_LINES_PER_WRITE: Final = 1000
_LOG_INTERVAL_S: Final = 60.0


class AuditLog:
    """Implements `permissions.DecisionLog`, `auditing.ChangeLog` and `login.LoginObserver`."""

    def __init__(self, layers: BrokerLayers, environment: Environment) -> None:
        self._clock: Clock = environment.clock
        self._logins: LoginObserver = LoggedLogins(environment.clock)
        self._queue = AuditQueue(events_max=layers.integer(AUDIT_QUEUE), interval_ms=layers.integer(AUDIT_INTERVAL))
        self._incarnation = str(environment.new_uuid())
        self._format: AuditFormat | None = None
        self._layers = layers
        self._kind = layers.text(AUDIT_SINK)
        self._sink: AuditSink | None = _file_sink(layers, environment) if self._kind == "file" else None
        self._logged_failure_s = float("-inf")
        level = layers.text(AUDIT_DECISIONS)
        self.records_allowed = self.is_on and level == "all"
        self._records_denied = self.is_on and level != "none"

    @property
    def is_on(self) -> bool:
        return self._kind != "none"

    @property
    def changes(self) -> ChangeLog | None:
        """The log of changes, None if there is no audit log."""
        return self if self.is_on else None

    def identify(self, *, cluster_id: str, node_id: int) -> None:
        """Set what lines say about their origin. Events may be noted before, and are written after it."""
        self._format = AuditFormat(cluster_id=cluster_id, node_id=node_id, incarnation=self._incarnation)

    def use_broker(self, services: Services, peers: Peers | None) -> None:
        """Write to the topic, if that is where lines go; `peers` are the other brokers."""
        if self._kind == "topic":
            self._sink = TopicSink(services, peers, audit_topic(self._layers))

    def job(self) -> Job:
        return Job("audit log", lambda: _PAUSE_MS, self.flush)

    # What happened

    def decided(
        self,
        asker: Asker,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        decision: Decision,
    ) -> None:
        connection = asker.connection
        principal = connection.principal
        # A number for the codes: hashing members of an Enum is slow.
        asked = operation << 4 | resource_type
        key = (asker.api_key, principal.type, principal.name, connection.peer_host, asked, name, decision.allowed)
        if self._queue.is_repeat(key):
            return
        event = AuditEvent(
            kind=AuditKind.AUTHORIZATION,
            method=f"kafka.{api_name(asker.api_key)}",
            granted=decision.allowed,
            principal=principal_text(principal),
            host=connection.peer_host,
            listener=connection.listener_name,
            client_id=asker.client_id,
            correlation_id=asker.correlation_id,
            details={
                "resourceName": name,
                "authorizationInfo": {
                    "granted": decision.allowed,
                    "operation": operation.name,
                    "resourceType": resource_type.name,
                    "resourceName": name,
                    "patternType": "LITERAL",
                    "rule": _rule(decision),
                },
            },
        )
        self._add(key, event)

    def logged_in(self, info: ConnectionInfo, mechanism: str, *, is_repeated: bool) -> None:
        self._logins.logged_in(info, mechanism, is_repeated=is_repeated)
        if self.is_on:
            details = {"mechanism": mechanism, "isRepeated": is_repeated}
            self._note_login(info, details, granted=True)

    def login_failed(self, info: ConnectionInfo, mechanism: str | None, reason: str) -> None:
        self._logins.login_failed(info, mechanism, reason)
        if self.is_on:
            self._note_login(info, {"mechanism": mechanism, "reason": reason}, granted=False)

    def _note_login(self, info: ConnectionInfo, details: dict[str, Any], *, granted: bool) -> None:
        principal = principal_text(info.principal) if granted else ""
        key = ("login", principal, info.peer_host, info.listener_name, granted, *details.values())
        if not self._queue.is_repeat(key):
            event = AuditEvent(
                kind=AuditKind.AUTHENTICATION,
                method="kafka.Authentication",
                granted=granted,
                principal=principal,
                host=info.peer_host,
                listener=info.listener_name,
                details=details,
            )
            self._add(key, event)

    def changed(self, context: ClusterContext, changes: Iterable[Change]) -> None:
        """Note the changes of a request; each is an event, and none is left out as a repeat."""
        connection = context.connection
        for change in changes:
            event = AuditEvent(
                kind=AuditKind.CHANGE,
                method=f"kafka.{api_name(context.api_key)}",
                granted=change["error"] is None,
                principal=principal_text(connection.principal),
                host=connection.peer_host,
                listener=connection.listener_name,
                client_id=context.client_id,
                correlation_id=context.correlation_id,
                details=change,
            )
            self._add(None, event)

    def _add(self, key: Hashable | None, event: AuditEvent) -> None:
        if event.kind is AuditKind.AUTHORIZATION and not event.granted:
            _log.info(denial(event))
        self._queue.add(key, event, self._clock.now_ms())

    # Writing

    async def flush(self) -> None:
        """Write what is in the queue. Lines that cannot be written stay in it, as far as it has space."""
        while lines := self._queue.take(self._clock.now_ms(), _LINES_PER_WRITE):
            for line in lines:
                if line.event.kind is AuditKind.DROPPED:
                    _log.warning("events of the audit log were dropped", **line.event.details)
                elif line.count > 1 and not line.event.granted:
                    _log.info(f"{denial(line.event)} ({line.count} times more)")
            if not await self._write(lines):
                return

    async def _write(self, lines: list[AuditLine]) -> bool:
        wanted = [line for line in lines if self._is_recorded(line.event)]
        if not wanted or not self.is_on:
            return True
        if self._sink is None or self._format is None:
            self._queue.put_back(wanted)
            return False
        try:
            await self._sink.write([self._format.encode(line) for line in wanted])
        except (ApiError, StorageError) as error:
            self._queue.put_back(wanted)
            self._log_failure(error)
            return False
        return True

    def _is_recorded(self, event: AuditEvent) -> bool:
        if event.kind is not AuditKind.AUTHORIZATION:
            return True
        return self.records_allowed if event.granted else self._records_denied

    def _log_failure(self, error: Exception) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._logged_failure_s >= _LOG_INTERVAL_S:
            self._logged_failure_s = now_s
            _log.warning("cannot write the audit log", error=str(error), waiting=len(self._queue))


def audit_topic(layers: BrokerLayers) -> AuditTopic:
    return AuditTopic(
        name=layers.text(AUDIT_TOPIC) or "",
        replication_factor=layers.integer(AUDIT_TOPIC_FACTOR),
        retention_ms=layers.integer(AUDIT_TOPIC_RETENTION),
    )


def _file_sink(layers: BrokerLayers, environment: Environment) -> FileSink:
    return FileSink(
        environment.files,
        Path(layers.text(AUDIT_FILE) or ""),
        bytes_max=layers.integer(AUDIT_FILE_BYTES),
        count=layers.integer(AUDIT_FILE_COUNT),
        executor=environment.executor,
    )


def denial(event: AuditEvent) -> str:
    """Return a decision as a line of Kafka's authorizer log."""
    info = event.details["authorizationInfo"]
    resource = f"{_camel(info['resourceType'])}:{info['patternType']}:{info['resourceName']}"
    return (
        f"Principal = {event.principal} is {'Allowed' if event.granted else 'Denied'} operation = {info['operation']} "
        f"from host = {event.host} on resource = {resource} for request = {event.method.removeprefix('kafka.')} "
        f"with resourceRefCount = 1 based on rule {info['rule']}"
    )


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _rule(decision: Decision) -> str:
    entry = decision.entry
    if entry is None:
        return decision.rule.value
    pattern = entry.pattern
    acl = f"{entry.permission.name} {entry.operation.name} for {entry.principal} from {entry.host} on "
    return f"{decision.rule.value}({acl}{pattern.type.name} {pattern.pattern_type.name} {pattern.name})"
