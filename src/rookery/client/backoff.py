"""How long to wait before the next try. Pure; `cluster`, `connection_pool` and whoever retries on its own call it."""

from random import Random
from typing import NamedTuple

_JITTER = 0.2


class Backoff(NamedTuple):
    """The pause doubles with every attempt, from the first to the last."""

    first_s: float
    last_s: float

    def pause_s(self, attempt: int, randomness: Random | None = None) -> float:
        """Before attempt `attempt` + 1. Randomness makes it a fifth less or more, so that not all come back at once."""
        pause_s = self.first_s * float(2 ** min(attempt, 32))
        if randomness is not None:
            pause_s *= randomness.uniform(1 - _JITTER, 1 + _JITTER)
        return min(pause_s, self.last_s)
