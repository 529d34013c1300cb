"""Counts logins, for the metrics of listeners."""

from collections import Counter

from rookery.net.connection import ConnectionInfo
from rookery.net.login import LoginObserver


class LoginCounts:
    """Counts logins by listener, and passes each on to another observer."""

    def __init__(self, observer: LoginObserver) -> None:
        self._observer = observer
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def logged_in(self, info: ConnectionInfo, mechanism: str, *, is_repeated: bool) -> None:
        self.succeeded[info.listener_name] += 1
        self._observer.logged_in(info, mechanism, is_repeated=is_repeated)

    def login_failed(self, info: ConnectionInfo, mechanism: str | None, reason: str) -> None:
        self.failed[info.listener_name] += 1
        self._observer.login_failed(info, mechanism, reason)
