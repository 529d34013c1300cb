"""The pause before the next attempt. Pure; called by `cluster`, `connection_pool` and other code that retries."""

from random import Random
from typing import NamedTuple

_JITTER = 0.2


class Backoff(NamedTuple):
    """A pause that doubles with every attempt, from `first_s` up to `last_s`."""

    first_s: float
    last_s: float

    def pause_s(self, attempt: int, randomness: Random | None = None) -> float:
        """Return the pause after attempt `attempt`, counted from zero.

        `randomness` varies it by up to a fifth, so that not all clients retry at the same time.
        """
        pause_s = self.first_s * float(2 ** min(attempt, 32))
        if randomness is not None:
            pause_s *= randomness.uniform(1 - _JITTER, 1 + _JITTER)
        return min(pause_s, self.last_s)
