"""The repair plan for a damaged log, and its execution: for `rookery log repair`, while no broker runs.

All valid batches stay, with their offsets; a batch in which one byte was changed is restored; other bad bytes are
removed, and the plan says which offsets they may have held. A torn end beyond the recovery point is left to the next
start, which truncates it anyway. Executing a plan keeps a copy of every file that it changes in another directory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rookery.base.files import File, Files, make_synced_directory
from rookery.base.types import LeaderEpoch, Offset
from rookery.records.batch import read_header
from rookery.storage.byte_repair import repair_batch
from rookery.storage.manifest import ListedLog
from rookery.storage.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offset_of,
)
from rookery.storage.survey import BadRange, SegmentSurvey, ValidBatch, find_segments

MEND, REMOVE, FILL, ACCEPT, RESTART = "mend", "remove", "fill", "accept", "restart"

_COPY_SIZE = 1 << 20


class Rules(Protocol):
    """The additional requirements of a log without gaps whose records build on each other: the metadata log."""

    def reject(self, batch: bytes) -> str | None:
        """Return why a batch cannot follow those accepted before; None if it can, and then it is accepted."""
        ...

    def fill(self, offset: Offset, end_offset: Offset, leader_epoch: LeaderEpoch) -> bytes:
        """Return a batch without effect that occupies the offsets [offset, end_offset)."""
        ...


class Edit(NamedTuple):
    """A range of bytes in a file, and the bytes that replace it."""

    position: int
    size_bytes: int
    replacement: bytes


class Problem(NamedTuple):
    """Bytes at `position` of a file, or a whole file, because of which offsets [offset, end_offset) cannot be read.

    The remedy is to MEND a batch, to REMOVE bytes, to FILL their offsets in a log without gaps, to ACCEPT that
    something is missing, or just a RESTART, which truncates what a crash has torn.
    """

    path: Path
    position: int
    size_bytes: int
    offset: Offset
    end_offset: Offset
    reason: str
    remedy: str

    @property
    def lost_offsets(self) -> int:
        return 0 if self.remedy in (MEND, RESTART) else max(0, self.end_offset - self.offset)


class LogPlan(NamedTuple):
    problems: list[Problem]
    edits: dict[Path, list[Edit]]
    # Where the log ends after the plan was executed and the broker was started.
    end_offset: Offset

    @property
    def is_damaged(self) -> bool:
        return any(problem.remedy != RESTART for problem in self.problems)


def plan_log(
    files: Files,
    directory: Path,
    *,
    recovery_point: Offset,
    listed: ListedLog | None = None,
    rules: Rules | None = None,
) -> LogPlan:
    """Read a whole log, and choose a remedy for each problem; `listed` is its entry in the manifest."""
    return _Planner(files, directory, recovery_point, listed, rules).plan()


class _Planner:
    def __init__(
        self, files: Files, directory: Path, recovery_point: Offset, listed: ListedLog | None, rules: Rules | None
    ) -> None:
        self._files = files
        self._directory = directory
        self._recovery_point = recovery_point
        self._listed = listed.segments if listed is not None else ()
        self._rules = rules
        self._problems: list[Problem] = []
        self._edits: dict[Path, list[Edit]] = {}
        self._leader_epoch: LeaderEpoch = 0
        self._end_offset: Offset = listed.start_offset if listed is not None else 0

    def plan(self) -> LogPlan:
        segments = find_segments(self._files, self._directory)
        self._note_missing({base_offset for _, base_offset, _ in segments})
        before: Path | None = None
        for path, base_offset, limit in segments:
            if before is not None and self._rules is not None and self._end_offset < base_offset:
                self._fill_hole(before, base_offset)
            self._end_offset = max(self._end_offset, base_offset)
            is_last = path == segments[-1][0]
            self._plan_segment(path, base_offset, limit, is_last=is_last)
            before = path
        known = any(problem.end_offset >= self._recovery_point for problem in self._problems)
        if self._end_offset < self._recovery_point and not known:
            path = segments[-1][0] if segments else self._directory
            self._note(path, BadRange(0, 0, self._end_offset, "the log ends there"), self._recovery_point, ACCEPT)
        return LogPlan(self._problems, self._edits, self._end_offset)

    def _note(self, path: Path, bad: BadRange, end_offset: Offset, remedy: str, reason: str | None = None) -> None:
        problem = Problem(path, bad.position, bad.size_bytes, bad.offset, end_offset, reason or bad.reason, remedy)
        self._problems.append(problem)

    def _note_missing(self, found: set[Offset]) -> None:
        ends = [*(segment.base_offset for segment in self._listed[1:]), self._recovery_point]
        for segment, end_offset in zip(self._listed, ends, strict=False):
            if segment.base_offset not in found:
                path = self._directory / file_name(segment.base_offset, LOG_SUFFIX)
                self._note(path, BadRange(0, 0, segment.base_offset, "the file is missing"), end_offset, ACCEPT)

    def _plan_segment(self, path: Path, base_offset: Offset, limit: Offset, *, is_last: bool) -> None:
        is_gapless = self._rules is not None
        survey = SegmentSurvey(self._files, path, base_offset, limit=limit, is_gapless=is_gapless)
        parts = list(survey.parts())
        for slot, part in enumerate(parts):
            if isinstance(part, BadRange):
                following = parts[slot + 1] if slot + 1 < len(parts) else None
                next_offset = following.header.base_offset if isinstance(following, ValidBatch) else None
                if next_offset is None and is_gapless and not is_last:
                    next_offset = limit
                self._plan_bad(survey, path, part, next_offset, self._recovery_point if is_last else limit)
            else:
                self._plan_valid(survey, path, part)
        sizes = {segment.base_offset: segment.size_bytes for segment in self._listed}
        if survey.size_bytes < sizes.get(base_offset, 0) and self._end_offset < limit:
            end_offset = min(limit, self._recovery_point)
            bad = BadRange(survey.size_bytes, 0, self._end_offset, f"{sizes[base_offset]} bytes were written")
            self._note(path, bad, end_offset, ACCEPT)

    def _plan_valid(self, survey: SegmentSurvey, path: Path, part: ValidBatch) -> None:
        header = part.header
        reason = self._rules.reject(survey.read(part.position, header.size_bytes)) if self._rules is not None else None
        if reason is not None:
            bad = BadRange(part.position, header.size_bytes, header.base_offset, reason)
            self._fill(path, bad, header.last_offset + 1)
        self._leader_epoch, self._end_offset = header.leader_epoch, header.last_offset + 1

    def _plan_bad(
        self, survey: SegmentSurvey, path: Path, bad: BadRange, next_offset: Offset | None, end_offset: Offset
    ) -> None:
        """Choose a remedy for bad bytes; they end before `end_offset` if no batch follows them."""
        restored = repair_batch(survey.read(bad.position, bad.size_bytes), bad.offset, next_offset)
        if restored is not None and (self._rules is None or self._rules.reject(restored) is None):
            header = read_header(restored)
            self._note(path, bad, header.last_offset + 1, MEND, f"{bad.reason}; one byte was changed")
            self._edit(path, bad, restored)
            self._leader_epoch, self._end_offset = header.leader_epoch, header.last_offset + 1
        elif next_offset is None and bad.offset >= end_offset:
            self._note(path, bad, bad.offset, RESTART, f"{bad.reason}; torn by a crash")
        elif next_offset is not None and self._rules is not None:
            self._fill(path, bad, next_offset)
        else:
            self._note(path, bad, end_offset if next_offset is None else next_offset, REMOVE)
            self._edit(path, bad, b"")

    def _fill_hole(self, path: Path, end_offset: Offset) -> None:
        """Fill the offsets between a segment and the next one, where a segment is missing or was cut short."""
        bad = BadRange(self._files.file_size(path), 0, self._end_offset, "the records after it are missing")
        self._fill(path, bad, end_offset)

    def _fill(self, path: Path, bad: BadRange, end_offset: Offset) -> None:
        assert self._rules is not None
        self._note(path, bad, end_offset, FILL)
        self._edit(path, bad, self._rules.fill(bad.offset, end_offset, self._leader_epoch))
        self._end_offset = end_offset

    def _edit(self, path: Path, bad: BadRange, replacement: bytes) -> None:
        self._edits.setdefault(path, []).append(Edit(bad.position, bad.size_bytes, replacement))


def execute_plan(files: Files, plan: LogPlan, copies: Path) -> None:
    """Make the changes of a plan; the original files are moved to the directory `copies`."""
    for path, edits in plan.edits.items():
        make_synced_directory(files, copies)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        _write_edited(files.open(path), _create(files, temporary), edits)
        for name in _with_indexes(files, path):
            files.rename(path.parent / name, copies / name)
        files.sync_directory(copies)
        files.rename(temporary, path)
        files.sync_directory(path.parent)


def _create(files: Files, path: Path) -> File:
    files.remove(path)
    return files.open(path, create=True)


def _with_indexes(files: Files, path: Path) -> list[str]:
    """Return the log file and the indexes with positions in it, which are rebuilt when they are needed."""
    base_offset = offset_of(path.name)
    assert base_offset is not None
    names = [file_name(base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)]
    return [name for name in names if files.exists(path.parent / name)]


def _write_edited(source: File, target: File, edits: Sequence[Edit]) -> None:
    position = 0
    for edit in sorted(edits):
        _copy(source, target, position, edit.position)
        target.append(edit.replacement)
        position = edit.position + edit.size_bytes
    _copy(source, target, position, source.size())
    target.sync()


def _copy(source: File, target: File, start: int, end: int) -> None:
    for position in range(start, end, _COPY_SIZE):
        target.append(source.read_at(position, min(_COPY_SIZE, end - position)))
