"""The disk of the storage tests, which loses unsynced data in a crash, with faults that a scenario can switch on."""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.faults.files import Call, Crash, CrashFiles, Directory, Inode, Survival
from tests.simulation.trace import Trace


class SimulatedDisk(CrashFiles):
    """The disk of one machine. `on_crash` is called when the machine stops during a write, see `stop_after`."""

    def __init__(
        self,
        random: Random,
        trace: Trace,
        *,
        on_crash: Callable[[], None],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__()
        self._soon = soon
        self._countdown = 0
        self._action: Callable[[], None] = lambda: None
        self._counts: Callable[[Path], bool] = lambda path: True
        self._random = random
        self._trace = trace
        self._on_crash = on_crash
        # The probability that a sync fails.
        self.sync_failure_chance = 0.0
        # The longest delay of work in worker threads: before it runs, and before its end is seen.
        self.delay_s_max = self.usual_delay_s_max = 0.002
        self.fail = self._fail_sync

    def stop_after(self, mutations: int) -> None:
        """Let the machine lose power during a write, at the latest after this number of mutations."""
        self.crash_at = self.mutation_count + mutations

    def after_mutations(
        self, count: int, action: Callable[[], None], of: Callable[[Path], bool] = lambda path: True
    ) -> None:
        """Call a function after the turn of the event loop in which matching files change for the count-th time."""
        self._countdown, self._action, self._counts = count, action, of

    def lose_power(self, survival: Survival) -> None:
        self.crash(survival)
        self.calls.clear()
        self.fail = self._fail_sync

    def release_locks(self) -> None:
        """Release the locks of a process that has ended. All its writes stay."""
        self.locked.clear()
        self._countdown = 0
        self.crash_at = None
        self.calls.clear()

    def delays_s(self) -> tuple[float, float]:
        return self._random.uniform(0, self.delay_s_max), self._random.uniform(0, self.delay_s_max)

    def mutate(self, name: str, path: Path) -> None:
        self._trace.hash(f"{name} {path}")
        try:
            super().mutate(name, path)
        except Crash:
            self._on_crash()
            raise
        if self._counts(path):
            self._countdown -= 1
            if self._countdown == 0:
                self._soon(self._action)

    def _fail_sync(self, call: Call) -> int | None:
        if call.name != "sync" or not self.sync_failure_chance:
            return None
        return errno.EIO if self._random.random() < self.sync_failure_chance else None

    def sync_everything(self) -> None:
        """Make the whole content durable."""
        pending: list[Inode | Directory] = [self.root]
        for node in pending:
            node.sync()
            pending += node.entries.values() if isinstance(node, Directory) else ()

    # For observers of the world: without calls, faults or changes

    def peek(self, path: Path, *, synced: bool = False) -> bytes | None:
        """Return a file's bytes, None if there is no such file. `synced`: only what certainly survives a power loss."""
        node = self._peek(path, synced=synced)
        if not isinstance(node, Inode):
            return None
        return bytes(node.synced if synced else node.data)

    def peek_names(self, path: Path, *, synced: bool = False) -> list[str]:
        """Return the sorted names in a directory, none if there is no such directory."""
        node = self._peek(path, synced=synced)
        if not isinstance(node, Directory):
            return []
        return sorted(node.synced if synced else node.entries)

    def _peek(self, path: Path, *, synced: bool) -> Inode | Directory | None:
        node: Inode | Directory | None = self.root
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                return None
            node = (node.synced if synced else node.entries).get(part)
        return node
