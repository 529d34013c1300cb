"""The load of logins: connects, shakes hands with TLS, logs in with SCRAM-SHA-512, and closes, over and over.

Several of these processes run at the same time. Each handshake is a full one: no session is resumed.
"""

import ssl
import time

from bench.load import Measurements, await_go, run_action
from bench.scram import Scram
from bench.wire import connect, log_in

_HOST = "127.0.0.1"


def logins(*, port: int, authority: str, user: str, duration_s: float) -> Measurements:
    """Log in for a while, one connection after the other. `user` is NAME:PASSWORD."""
    context = ssl.create_default_context(cafile=authority)
    scram = Scram(*user.split(":"))
    # The first login hashes the password.
    _log_in(port, context, scram)
    await_go()
    count, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < duration_s:
        _log_in(port, context, scram)
        count += 1
    return {"elapsed_s": time.perf_counter() - started_s, "logins": count}


def _log_in(port: int, context: ssl.SSLContext, scram: Scram) -> None:
    with context.wrap_socket(connect(port), server_hostname=_HOST) as connection:
        log_in(connection, scram)


if __name__ == "__main__":
    run_action({"logins": logins})
