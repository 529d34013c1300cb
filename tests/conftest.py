"""Property tests draw the same examples in every run, so that a red run is red for everybody and a green one stays so.

`make explore` draws new ones instead. What it finds becomes a test of its own.

Ctrl-C means something again: a shell that runs the tests in its background has them, and their children, ignore it.

Processes that tests start keep the bytecode of their imports, whatever the environment says: a broker that compiles all
its modules at each start takes two seconds longer.

The collector of cycles passes over the tests themselves: thousands of them, which stay to the end.

A figure that a test measured (`record_property("figure", text)`) is printed at the end, also if the test passed.
"""

import gc
import os
import signal

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "figure":
                    terminalreporter.write_line(f"{report.nodeid}: {value}")
