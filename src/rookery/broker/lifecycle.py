"""The life of a broker in its cluster, as the controller sees it: what to send next, and when. Pure.

    state                        ends when
    NOT_RUNNING                  `start` is called
    STARTING                     the broker is registered, and has the metadata up to its registration
    RECOVERY                     the broker is `ready` (its logs are recovered) and the controller has unfenced it
    RUNNING                      `shut_down` is called
    PENDING_CONTROLLED_SHUTDOWN  the controller allows it: it has moved what others can lead, and they know that
    SHUTTING_DOWN                never

A broker that is registered sends heartbeats in all states, at an interval. While it waits for the controller to move it
to the next state, it asks again after 50 ms, then after twice that, and so on up to the interval. A controller that
does not know the broker, or knows it with another epoch, makes it register again, in any state: the epoch changes, the
state stays. Being fenced does not change the state either: the next heartbeats request the contrary.

`Lifecycle` decides; `broker.lifecycle_task` sends. Times are in seconds, of any clock that does not go back.
"""

from enum import Enum
from typing import Final, TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_BROKER_EPOCH
from rookery.base.values import value_class

ASK_AGAIN_S: Final = 0.05
_UNKNOWN_BROKER: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
# What an operator must change before a registration can succeed.
_FATAL: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "this node belongs to another cluster than the controllers: correct controller.quorum.voters or "
        "controller.quorum.bootstrap.servers, or format the directories for that cluster"
    ),
    ErrorCode.INVALID_REGISTRATION: (
        "the controller rejected the registration of this broker: its log has the reason. A log directory that was "
        "copied from another broker, or a node.id that was changed, are the usual ones"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "this version of Rookery does not support the features of the cluster: install a newer one, or lower them with "
        "`rookery features`"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "the controller does not allow this broker to register: give its principal the permission CLUSTER_ACTION"
    ),
}
_DUPLICATE: Final = (
    "another process is registered with this node.id and still runs: stop it, or give one of the two another node.id"
)


def rejection_reason(code: ErrorCode) -> str:
    """Return the sentence for an operator about a registration that the controller rejected."""
    if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return _DUPLICATE
    return _FATAL.get(code, f"the registration was rejected with {code.name}")


class BrokerState(Enum):
    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@value_class
class Register:
    """Send a registration. `previous_broker_epoch` is the epoch of a registration whose logs this broker still has."""

    previous_broker_epoch: int


@value_class
class SendHeartbeat:
    broker_epoch: int
    wants_fence: bool
    wants_shut_down: bool


Action: TypeAlias = Register | SendHeartbeat


@value_class
class Reply:
    """The content of the response to a heartbeat."""

    code: ErrorCode = ErrorCode.NONE
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


class Lifecycle:
    """`begin` returns what to send at `due_s`; its outcome is passed to `registered`, `heard` or `failed`."""

    def __init__(self, *, previous_broker_epoch: int, interval_s: float, registration_timeout_s: float) -> None:
        """`previous_broker_epoch` is the epoch at the last clean shutdown, `NO_BROKER_EPOCH` if it was unclean."""
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_BROKER_EPOCH
        # Why the broker cannot start; None if nothing is wrong.
        self.failure: str | None = None
        self.is_fenced = True
        self.due_s = 0.0
        self._previous_epoch = previous_broker_epoch
        self._interval_s = interval_s
        self._registration_timeout_s = registration_timeout_s
        self._is_registered = False
        self._is_ready = False
        self._give_up_s: float | None = None
        self._pause_s = ASK_AGAIN_S
        self._has_news = False

    @property
    def is_registered(self) -> bool:
        return self._is_registered

    def begin(self) -> Action:
        """Return the request to send now. News that arrive while it is under way need another one."""
        self._has_news = False
        if not self._is_registered:
            return Register(self._previous_epoch)
        return SendHeartbeat(
            self.broker_epoch,
            wants_fence=not self._is_ready,
            wants_shut_down=self.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN),
        )

    # Calls of the node

    def start(self, now_s: float) -> None:
        assert self.state is BrokerState.NOT_RUNNING
        self.state = BrokerState.STARTING
        self._give_up_s = now_s + self._registration_timeout_s
        self.hurry(now_s)

    def ready(self, now_s: float) -> None:
        """Request to be unfenced: the logs are recovered."""
        self._is_ready = True
        self.hurry(now_s)

    def shut_down(self, now_s: float) -> None:
        """Request to stop. Before the broker has served, it may stop without permission."""
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self.hurry(now_s)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.state = BrokerState.SHUTTING_DOWN

    def hurry(self, now_s: float) -> None:
        """Send the next request now: there is something to report, or the reply may be another one."""
        self._has_news = True
        self._pause_s = ASK_AGAIN_S
        self.due_s = now_s

    # Outcomes of actions

    def registered(self, code: ErrorCode, broker_epoch: int, now_s: float) -> None:
        if code is ErrorCode.NONE:
            self._is_registered = True
            # If this process has to register again, its logs are still those of this epoch.
            self.broker_epoch = self._previous_epoch = broker_epoch
            self._give_up_s = None
            self.hurry(now_s)
            return
        self._fail(rejection_reason(code), now_s)
        if self.state is BrokerState.STARTING and code in _FATAL:
            self.failure = _FATAL[code]

    def heard(self, reply: Reply, now_s: float) -> None:
        if reply.code in _UNKNOWN_BROKER:
            self._is_registered = False
            self.is_fenced = True
            self.hurry(now_s)
            return
        if reply.code is not ErrorCode.NONE:
            self._fail(f"a heartbeat was rejected with {reply.code.name}", now_s)
            return
        self.is_fenced = reply.is_fenced
        before = self.state
        if self.state is BrokerState.STARTING and reply.is_caught_up:
            self.state = BrokerState.RECOVERY
        if self.state is BrokerState.RECOVERY and self._is_ready and not reply.is_fenced:
            self.state = BrokerState.RUNNING
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and reply.should_shut_down:
            self.state = BrokerState.SHUTTING_DOWN
        if self.state is not before:
            self._pause_s = ASK_AGAIN_S
        if self._waits_for_controller:
            self._ask_again(now_s)
        else:
            self._pause_s = ASK_AGAIN_S
            self._send_after(self._interval_s, now_s)

    def failed(self, problem: str, now_s: float) -> None:
        """The request got no response in time."""
        self._fail(problem, now_s)

    @property
    def _waits_for_controller(self) -> bool:
        if self.state in (BrokerState.STARTING, BrokerState.PENDING_CONTROLLED_SHUTDOWN):
            return True
        wants_to_serve = self._is_ready and self.state in (BrokerState.RECOVERY, BrokerState.RUNNING)
        return wants_to_serve and self.is_fenced

    def _fail(self, problem: str, now_s: float) -> None:
        self._ask_again(now_s)
        if self._give_up_s is not None and now_s >= self._give_up_s:
            self.failure = f"this broker could not register in {self._registration_timeout_s:g} s: {problem}"

    def _ask_again(self, now_s: float) -> None:
        pause_s = min(self._pause_s, self._interval_s)
        self._pause_s = min(2 * pause_s, self._interval_s)
        self._send_after(pause_s, now_s)

    def _send_after(self, pause_s: float, now_s: float) -> None:
        self.due_s = now_s if self._has_news else now_s + pause_s
