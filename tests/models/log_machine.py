"""The common part of the models of the log: a log on files that can crash, and the operations that all logs have."""

from contextlib import ExitStack
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rookery.base.clock import ManualClock
from rookery.base.types import Offset, TimestampMs
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from tests.faults.files import CrashFiles, Survival
from tests.storage.samples import DIRECTORY, open_log
from tests.support.logs import quiet_logs


class LogMachine(RuleBasedStateMachine):
    """`start`, `end` and `flushed` are the expected offsets of the log. A model begins with `_open`."""

    log: Log

    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()
        self._resources.enter_context(quiet_logs())
        self.files = CrashFiles()
        self.files.make_directory(DIRECTORY.parent)
        self.files.sync_directory(Path("/"))
        self.clock = ManualClock(1_000)
        self.start = 0
        self.flushed = 0

    @property
    def end(self) -> Offset:
        raise NotImplementedError

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.flushed = self.end
        self._reopen(clean=True)

    @invariant()
    def offsets_agree(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)

    def teardown(self) -> None:
        self._resources.close()

    def _open(self, config: LogConfig) -> None:
        self.log = open_log(self.files, config=config, clock=self.clock)

    def _crash(self, survival: Survival) -> None:
        self.files.crash(survival)
        self._reopen(clean=False)
        assert self.flushed <= self.log.end_offset <= self.end

    def _reopen(self, *, clean: bool) -> None:
        self.log = open_log(
            self.files,
            config=self.log.config,
            clock=self.clock,
            recovery_point=self.log.recovery_point,
            start_offset=self.log.start_offset,
            clean=clean,
        )

    def _retain(self, config: LogConfig, *, now_ms: TimestampMs, stable_offset: Offset | None = None) -> None:
        """Apply the retention of another configuration, once."""
        before = self.log.config
        self.log.update_config(config)
        self.log.apply_retention(now_ms, stable_offset)
        self.log.update_config(before)
        for path in self.log.take_detached_files():
            self.files.remove(path)
        assert self.log.start_offset >= self.start
