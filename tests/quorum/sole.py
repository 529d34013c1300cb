"""A quorum of one, for tests of its log: opened and started outside of an event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from rookery.base.clock import Clock, ManualClock
from rookery.base.files import Files
from rookery.quorum.driver import QuorumDriver
from rookery.quorum.publication import CommitListener
from rookery.quorum.voters import ReplicaKey, Voter, VoterSet
from rookery.storage.directory import LogDirectory


class InlineExecutor(Executor):
    """Runs work immediately, so that thousands of starts need no threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


def open_sole_voter(
    files: Files, directory: Path | LogDirectory, *, clock: Clock | None = None, on_commit: CommitListener | None = None
) -> QuorumDriver:
    """Return a driver that leads; `on_commit` gets what is appended from now on."""
    log_directory = LogDirectory(directory) if isinstance(directory, Path) else directory

    async def start() -> QuorumDriver:
        driver = QuorumDriver.open(
            files,
            log_directory,
            node_id=1,
            voters=VoterSet([Voter(ReplicaKey(1), {})]),
            clock=clock or ManualClock(),
            executor=InlineExecutor(),
        )
        await driver.start()
        if on_commit is not None:
            driver.follow(on_commit, from_offset=driver.high_watermark)
        return driver

    return asyncio.run(start())


def close(driver: QuorumDriver) -> None:
    asyncio.run(driver.close())
