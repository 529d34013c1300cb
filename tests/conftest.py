"""Property tests draw the same examples in every run, so that a red run is red for everybody and a green one stays so.

`make explore` draws new ones instead. What it finds becomes a test of its own.

Ctrl-C means something again: a shell that runs the tests in its background has them, and their children, ignore it.

The collector of cycles passes over the tests themselves: thousands of them, which stay to the end.
"""

import gc
import os
import signal

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
