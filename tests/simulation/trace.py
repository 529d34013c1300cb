"""The trace of a simulated world: a running hash of all events, and the last lines as text.

Two runs of one seed must give the same hash, whatever the process, the machine or PYTHONHASHSEED; a difference reveals
non-determinism. Steps are only hashed; lines that help to understand a failure are also kept.
"""

from collections import deque
from hashlib import blake2b

_LINES_KEPT = 2000


class Trace:
    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.step_count = 0
        # Set at the end of the world: its objects are closed in no particular order.
        self.is_closed = False

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def step(self, now_s: float, process: str) -> None:
        """One turn of the event loop for one process."""
        self.step_count += 1
        self._hash.update(f"{now_s!r} {process}\n".encode())

    def hash(self, text: str, data: bytes = b"") -> None:
        if not self.is_closed:
            self._hash.update(text.encode())
            self._hash.update(data)

    def note(self, now_s: float, text: str) -> None:
        line = f"{now_s:10.4f}  {text}"
        if not self.is_closed:
            self.lines.append(line)
        self.hash(line)
