"""Making many small objects at once without the collector looking at all of them again and again.

It starts after every 700 new containers, to find cycles. Plain records have none, and a third of the time that making
ten thousand of them takes is spent on looking.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep it short: the pause is for all threads. Whoever turned the collector off finds it off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
