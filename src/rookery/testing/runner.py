"""What an embedded broker asks of whatever runs it: `BrokerThread` in the test's process, `BrokerProcess` beside it."""

from typing import Protocol


class Runner(Protocol):
    """One life of a broker. `stop` is called once after a `start` that returned, and also ends a paused broker."""

    def start(self) -> None:
        """Returns when the broker serves; StartupError, with nothing left behind, if it cannot."""
        ...

    def stop(self, *, clean: bool) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def advance_time(self, seconds: float) -> None: ...
