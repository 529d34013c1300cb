"""The SASL login of accepted connections: a shell around `security.sasl_server.session`, one per connection.

It is the connection's handler until the client has logged in, and passes requests on afterwards. A session without an
end needs no check: then the connection calls the dispatcher directly.

A step of a slow mechanism runs in a thread; the connection handles no other request meanwhile. The answer to a failed
login is delayed, which slows down the guessing of passwords, and the connection is closed after it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from rookery.base.clock import Clock
from rookery.base.values import value_class
from rookery.net.connection import Connection, ConnectionInfo, Handler, HandlerResult, Held
from rookery.net.send import Reply
from rookery.security.sasl_server.exchange import Identity, LoginError, Mechanism
from rookery.security.sasl_server.session import PASS_ON, Action, Answer, End, Evaluate, LoginSession, PassOn

_log = structlog.get_logger(__name__)

_LOG_INTERVAL_S: Final = 1.0
_LOGGED_ADDRESSES_MAX: Final = 1000


class LoginObserver(Protocol):
    """Learns of logins, for the audit log and metrics. `mechanism` is None if the client has not chosen one."""

    def logged_in(self, info: ConnectionInfo, mechanism: str, *, is_repeated: bool) -> None: ...

    def login_failed(self, info: ConnectionInfo, mechanism: str | None, reason: str) -> None: ...


class LoggedLogins:
    """A `LoginObserver` that writes failed logins to the log: at most one line per second and address.

    Clients with a wrong password try again for ever, up to ten times per second.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By address: the time of its last line, and how many failures were left out since.
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def logged_in(self, info: ConnectionInfo, mechanism: str, *, is_repeated: bool) -> None:
        _log.debug("login", peer=info.peer, mechanism=mechanism, principal=info.principal.name, repeated=is_repeated)

    def login_failed(self, info: ConnectionInfo, mechanism: str | None, reason: str) -> None:
        now_s = self._clock.monotonic()
        logged_s, omitted = self._failures.pop(info.peer_host, (now_s - _LOG_INTERVAL_S, 0))
        if now_s - logged_s < _LOG_INTERVAL_S:
            self._failures[info.peer_host] = (logged_s, omitted + 1)
            return
        self._failures[info.peer_host] = (now_s, 0)
        if len(self._failures) > _LOGGED_ADDRESSES_MAX:
            self._failures.popitem(last=False)
        _log.warning("login failed", peer=info.peer, mechanism=mechanism, reason=reason, omitted=omitted)


@value_class(kw_only=True)
class LoginRules:
    """How clients of a listener log in; shared by all of its connections."""

    mechanisms: Mapping[str, Mechanism]
    max_reauth_ms: Mapping[str, int]
    receive_size_max: int
    failure_delay_s: float
    clock: Clock
    observer: LoginObserver


class Login:
    """The login of one connection. `on_success` is called after the first one."""

    def __init__(
        self, connection: Connection, rules: LoginRules, dispatch: Handler, on_success: Callable[[Connection], None]
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._dispatch = dispatch
        self._on_success = on_success
        self._session = LoginSession(rules.mechanisms, rules.max_reauth_ms)

    def handle(self, frame: memoryview, info: ConnectionInfo) -> HandlerResult:
        action = self._session.receive(frame, self._rules.clock.now_ms())
        if action is PASS_ON:
            return self._dispatch(frame, info)
        if isinstance(action, Evaluate):
            mechanism = self._session.mechanism
            assert mechanism is not None
            if mechanism.is_slow:
                return Held(self._evaluate_in_thread(action.message))
            action = self._report(self._step(action.message))
        return self._perform(action)

    def _perform(self, action: Action) -> HandlerResult:
        if isinstance(action, End):
            self._note_failure(action)
            return Held(self._end(action))
        assert isinstance(action, Answer)
        self._finish()
        return [action.reply] if action.reply else None

    async def _evaluate_in_thread(self, message: bytes) -> Reply | None:
        loop = asyncio.get_running_loop()
        action = self._report(await loop.run_in_executor(None, self._step, message))
        if isinstance(action, End):
            self._note_failure(action)
            return await self._end(action)
        assert isinstance(action, Answer)
        self._finish()
        return [action.reply] if action.reply else None

    def _step(self, message: bytes) -> bytes | Identity | LoginError:
        """Send a message of the client into the exchange; return what it results in."""
        exchange = self._session.exchange
        assert exchange is not None
        try:
            return exchange.send(message)
        except StopIteration as end:
            identity: Identity = end.value
            return identity
        except LoginError as error:
            return error

    def _report(self, outcome: bytes | Identity | LoginError) -> Answer | End | Evaluate | PassOn:
        if isinstance(outcome, LoginError):
            return self._session.rejected(outcome)
        return self._session.evaluated(outcome, self._rules.clock.now_ms())

    def _finish(self) -> None:
        """Take note of a login that is complete."""
        session, connection = self._session, self._connection
        if not session.is_logged_in:
            return
        assert session.principal is not None
        assert session.mechanism is not None
        is_repeated = connection.info.principal == session.principal
        connection.info.principal = session.principal
        if session.expires_ms is None:
            connection.use(self._dispatch)
        self._on_success(connection)
        self._rules.observer.logged_in(connection.info, session.mechanism.name, is_repeated=is_repeated)

    def _note_failure(self, action: End) -> None:
        mechanism = self._session.mechanism
        name = None if mechanism is None else mechanism.name
        self._rules.observer.login_failed(self._connection.info, name, action.reason)

    async def _end(self, action: End) -> Reply | None:
        await asyncio.sleep(self._rules.failure_delay_s)
        self._connection.end()
        return [action.reply] if action.reply else None
