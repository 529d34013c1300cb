"""GSS-API contexts without Kerberos: their messages are readable, and a key says whether two sides belong together."""

from collections.abc import Sequence

from rookery.security.gss import GssError


class FakeContext:
    """`steps` are the tokens that are expected and sent, in order. A message is wrapped by the key in front of it."""

    def __init__(
        self,
        steps: Sequence[tuple[bytes, bytes]],
        *,
        key: bytes = b"key:",
        peer: str = "alice@REALM",
        lifetime_s: int = 60,
        failure: GssError | None = None,
    ) -> None:
        self._steps = list(steps)
        self._key = key
        self._failure = failure
        self._lifetime_s = lifetime_s
        self._peer = peer

    @property
    def is_complete(self) -> bool:
        return not self._steps

    @property
    def peer(self) -> str:
        assert self.is_complete
        return self._peer

    def step(self, token: bytes) -> bytes:
        if self._failure is not None:
            raise self._failure
        if not self._steps or token != self._steps[0][0]:
            raise GssError(f"the token {token!r} is invalid")
        return self._steps.pop(0)[1]

    def wrap(self, message: bytes) -> bytes:
        assert self.is_complete
        return self._key + message

    def unwrap(self, message: bytes) -> bytes:
        assert self.is_complete
        if not message.startswith(self._key):
            raise GssError("a message was changed")
        return message.removeprefix(self._key)

    def lifetime_s(self) -> int:
        assert self.is_complete
        return self._lifetime_s


def client_context(*, key: bytes = b"key:", failure: GssError | None = None) -> FakeContext:
    """Return the side of a client that authenticates the server, too."""
    return FakeContext([(b"", b"request"), (b"reply", b"")], key=key, failure=failure)


def server_context(*, peer: str = "alice@REALM", lifetime_s: int = 60, failure: GssError | None = None) -> FakeContext:
    return FakeContext([(b"request", b"reply")], peer=peer, lifetime_s=lifetime_s, failure=failure)
