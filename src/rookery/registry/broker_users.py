"""Checks passwords by a login at the brokers, so that the registry has the users of the cluster.

A login costs a connection and the hashing of SCRAM, so it runs in a thread of its own, and its outcome is remembered
for a while: a request of a known user costs one keyed digest. Concurrent requests with the same password share one
login. A deleted user, or an old password, is accepted until its outcome expires. `rest.auth` calls it.
"""

import asyncio
import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import structlog

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError
from rookery.client.login_check import LoginCheck
from rookery.client.settings.admin import AdminSettings
from rookery.registry.errors import RegistryError, http_error

logger = structlog.get_logger(__name__)

ACCEPTED_S: Final = 60.0
# Short, so that a new user can log in soon; long enough that a client which retries costs few logins.
REJECTED_S: Final = 5.0
OUTCOMES_MAX: Final = 10_000
WAITING_MAX: Final = 256
# A rejected login mostly waits for the broker, which delays its response.
_THREADS: Final = 8
# RFC 7617 allows no control characters. A NUL would end the name in a message of PLAIN.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_CLIENT_ID: Final = "rookery-registry-users"


class _Outcome(NamedTuple):
    is_accepted: bool
    expires_s: float


LogIn = Callable[[str, str], bool]
"""Whether a user has the password. Raises ApiError or OSError if no broker can tell. Called in a thread."""


class BrokerUsers:
    """Remembers the outcomes of `log_in`."""

    def __init__(self, log_in: LogIn, *, clock: Clock | None = None) -> None:
        self._log_in = log_in
        self._clock = clock or SystemClock()
        self._key = os.urandom(32)
        self._outcomes: OrderedDict[bytes, _Outcome] = OrderedDict()
        self._logins: dict[bytes, asyncio.Task[bool]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="registry-logins")

    async def accepts(self, user: str, password: str) -> bool:
        """Whether the brokers accept the password. Raises RegistryError (503) if none of them can tell."""
        if not user or not password or _CONTROL.search(user) or _CONTROL.search(password):
            return False
        # A digest instead of the password: neither a dump of the memory nor the time of a look-up reveals it.
        digest = hashlib.blake2b(f"{user}\0{password}".encode(), key=self._key, digest_size=32).digest()
        outcome = self._outcomes.get(digest)
        if outcome is not None and self._clock.monotonic() < outcome.expires_s:
            return outcome.is_accepted
        login = self._logins.get(digest) or self._begin(digest, user, password)
        # `wait` does not cancel the login with this caller: other requests share it.
        await asyncio.wait((login,))
        return login.result()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, digest: bytes, user: str, password: str) -> "asyncio.Task[bool]":
        if len(self._logins) >= WAITING_MAX:
            raise http_error(503, "Too many logins wait for the brokers")
        login = asyncio.get_running_loop().create_task(self._check(digest, user, password))
        self._logins[digest] = login
        login.add_done_callback(lambda _: self._logins.pop(digest))
        # All callers may be gone. Without this, asyncio would log that the error was never retrieved.
        login.add_done_callback(lambda done: done.cancelled() or done.exception())
        return login

    async def _check(self, digest: bytes, user: str, password: str) -> bool:
        try:
            is_accepted = await asyncio.get_running_loop().run_in_executor(self._threads, self._log_in, user, password)
        except (ApiError, OSError) as error:
            logger.warning("a password cannot be checked at the brokers", error=str(error))
            raise _unavailable() from error
        self._outcomes.pop(digest, None)
        lifetime_s = ACCEPTED_S if is_accepted else REJECTED_S
        self._outcomes[digest] = _Outcome(is_accepted, self._clock.monotonic() + lifetime_s)
        if len(self._outcomes) > OUTCOMES_MAX:
            self._outcomes.popitem(last=False)
        return is_accepted


def broker_login(client_config: Mapping[str, str]) -> LogIn:
    """Return the check of passwords at the brokers of `client_config`. Raises ConfigError if it is invalid."""
    check = LoginCheck(AdminSettings.parse({**client_config, "client.id": _CLIENT_ID}).common)
    return lambda user, password: asyncio.run(check.accepts(user, password))


def _unavailable() -> RegistryError:
    return http_error(503, "The brokers cannot check the password at present")
