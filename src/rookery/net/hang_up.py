"""Notices that a peer has closed its connection, while nothing is read from it."""

import select
import socket

_HANG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(peer: socket.socket | None) -> bool:
    """Return whether the peer sends no more, even if bytes of it are unread. False without a socket."""
    if peer is None or peer.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(peer.fileno(), _HANG_UP)
    return any(events & _HANG_UP for _, events in poll.poll(0))
