"""The list of segments: its file, and how a start uses it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import CorruptionError, StorageError
from rookery.base.files import OsFiles
from rookery.base.types import TopicPartition
from rookery.storage.checkpoints import encode_offsets, encode_partition_metadata
from rookery.storage.log import Log
from rookery.storage.manager import LogManager
from rookery.storage.manifest import (
    ANY_SIZE,
    GROWING,
    MANIFEST_FILE,
    ListedLog,
    ListedSegment,
    clip,
    decode_manifest,
    encode_line,
    encode_manifest,
)
from rookery.storage.manifest_entries import list_log
from rookery.storage.replacement import create_cleaned, seal_and_sync
from tests.storage.samples import PARTITION, SMALL, START_MS, TOPIC_ID, append, append_all, batch, contents, marker
from tests.support.logs import captured_logs

LISTED = ListedLog(
    TOPIC_ID,
    4,
    24,
    (ListedSegment(3, 228), ListedSegment(9, 300, True), ListedSegment(14, ANY_SIZE), ListedSegment(20, GROWING)),
)


def load(path: Path) -> LogManager:
    manager = LogManager(OsFiles(), ManualClock(START_MS), [path])
    manager.load(lambda topic: SMALL)
    return manager


def filled(path: Path, count: int = 11) -> LogManager:
    """Fill a log whose segments have three batches each."""
    manager = load(path)
    append_all(manager.create(PARTITION, TOPIC_ID, SMALL), (batch() for _ in range(count)))
    return manager


def log_of(manager: LogManager) -> Log:
    return manager.create(PARTITION, TOPIC_ID, SMALL, is_new=False)


def test_what_is_encoded_is_decoded() -> None:
    data = encode_manifest([encode_line(PARTITION, LISTED)])
    assert decode_manifest(data) == {PARTITION: LISTED}
    assert data.splitlines()[2] == b"orders 0 AAAAAAAAAAAAAAAAAAAABw 4 24 3:228 9:300a 14:- 20:+"
    assert decode_manifest(encode_manifest([])) == {}


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_manifest([encode_line(PARTITION, LISTED)])
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptionError):
                decode_manifest(damaged)


def test_a_lower_recovery_point_requires_fewer_segments() -> None:
    assert clip(LISTED, 24) == LISTED
    assert [segment.base_offset for segment in clip(LISTED, 9).segments] == [3]
    cut = clip(LISTED, 12)
    assert (cut.segments[-1], cut.recovery_point) == (ListedSegment(9, GROWING, True), 12)
    assert clip(LISTED, 0).segments == ()
    above = clip(LISTED._replace(start_offset=14), 24)
    assert [segment.base_offset for segment in above.segments] == [14, 20], "segments below the start may be missing"


def test_what_an_open_and_a_closed_log_list(tmp_path: Path) -> None:
    manager = filled(tmp_path)
    log = log_of(manager)
    assert list_log(log).segments == ()
    log.flush()
    assert [(each.base_offset, each.size_bytes) for each in list_log(log).segments] == [
        (0, log.segments[0].size_bytes),
        (3, log.segments[1].size_bytes),
        (6, log.segments[2].size_bytes),
        (9, GROWING),
    ]
    append(log, batch())
    append(log, batch())
    assert list_log(log).segments[-1] == ListedSegment(9, GROWING), "sealed, but not synced"
    log.close()
    assert list_log(log).segments[-1] == ListedSegment(12, log.segments[-1].size_bytes)


def cut_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", [Path.unlink, cut_file, empty_file])
@pytest.mark.parametrize("base", [0, 3, 6, 9])
def test_a_missing_or_cut_segment_takes_the_partition_offline(
    tmp_path: Path, base: int, harm: Callable[[Path], None], clean: bool
) -> None:
    manager = filled(tmp_path)
    log_of(manager).flush()
    manager.checkpoint()
    manager.close(clean=clean)
    damaged = tmp_path / "orders-0" / f"{base:020}.log"
    harm(damaged)
    for _ in range(2):
        with captured_logs() as lines:
            again = load(tmp_path)
        (entry,) = [line for line in lines if line["log_level"] == "error"]
        assert (entry["file"], entry["partition"]) == (str(damaged), "orders-0")
        assert base <= entry["offset"] < base + 3
        assert 1 <= entry["unreachable_records"] <= 3
        assert again.logs() == []
        with pytest.raises(StorageError, match="not served"):
            log_of(again)
        # Its lines in the checkpoints must survive a stop: without them the next start would truncate the log or miss
        # nothing.
        again.checkpoint()
        again.close()


def test_a_missing_directory_is_not_replaced_by_an_empty_log(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for path in (tmp_path / "orders-0").iterdir():
        path.unlink()
    (tmp_path / "orders-0").rmdir()
    again = load(tmp_path)
    with captured_logs() as lines:
        again.resolve_missing(lambda _: TOPIC_ID)
    assert lines[0]["unreachable_records"] == 11
    with pytest.raises(StorageError, match="missing"):
        log_of(again)
    again.close()
    assert load(tmp_path).create(PARTITION, UUID(int=99), SMALL).end_offset == 0, "another topic of that name"


@pytest.mark.parametrize("topic", ["orders", "o" * 249], ids=["short", "long"])
def test_a_deleted_log_that_is_still_listed_is_not_missing(tmp_path: Path, topic: str) -> None:
    """A replica that is moved away, and back while the broker is down, starts empty and is copied again."""
    partition = TopicPartition(topic, 0)
    manager = load(tmp_path)
    append(manager.create(partition, TOPIC_ID, SMALL), batch(1))
    manager.close()
    manager = load(tmp_path)
    manager.delete(partition)
    manager.close(clean=False)
    assert partition in decode_manifest((tmp_path / MANIFEST_FILE).read_bytes())
    again = load(tmp_path)
    again.resolve_missing(lambda _: TOPIC_ID)
    assert again.create(partition, TOPIC_ID, SMALL, is_new=False).end_offset == 0
    again.close()


def test_the_deleted_log_of_another_topic_does_not_explain_a_missing_one(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "orders-0").rename(tmp_path / f"orders-0.{'0' * 32}-delete")
    id_file = tmp_path / f"orders-0.{'0' * 32}-delete" / "partition.metadata"
    id_file.write_bytes(encode_partition_metadata(UUID(int=99)))
    with pytest.raises(StorageError, match="missing"):
        log_of(load(tmp_path))


def test_deleted_topics_are_removed_from_the_list(tmp_path: Path) -> None:
    filled(tmp_path).close()
    again = load(tmp_path)
    again.delete(PARTITION)
    again.close(clean=False)
    once_more = load(tmp_path)
    once_more.resolve_missing(lambda _: None)
    once_more.close()
    assert decode_manifest((tmp_path / MANIFEST_FILE).read_bytes()) == {}


def test_replaced_segments_are_not_reported_as_missing(tmp_path: Path) -> None:
    """Compaction may leave any gap: the list is updated."""
    manager = filled(tmp_path)
    log = log_of(manager)
    log.flush()
    manager.checkpoint()
    old = log.segments[:3]
    new = create_cleaned(log.files, log.directory, 0, index_interval_bytes=64, created_ms=START_MS)
    seal_and_sync(new)
    log.replace_segments(old, new)
    for segment in old:
        segment.remove()
    manager.close(clean=False)
    again = load(tmp_path)
    assert [offset for offset, _ in contents(log_of(again))] == [9, 10]
    again.close()
    assert [offset for offset, _ in contents(log_of(load(tmp_path)))] == [9, 10]


def test_a_wrong_digit_in_the_start_offsets_removes_nothing(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "log-start-offset-checkpoint").write_bytes(encode_offsets({PARTITION: 9}))
    assert len(contents(log_of(load(tmp_path)))) == 11


def test_a_list_that_another_program_has_left_is_ignored(tmp_path: Path) -> None:
    manager = filled(tmp_path)
    manager.close()
    entry = decode_manifest((tmp_path / MANIFEST_FILE).read_bytes())[PARTITION]
    lines = [encode_line(PARTITION, entry._replace(recovery_point=10, segments=(ListedSegment(1, 5),)))]
    (tmp_path / MANIFEST_FILE).write_bytes(encode_manifest(lines))
    assert len(contents(log_of(load(tmp_path)))) == 11


def test_an_aborted_index_that_is_missing_is_rebuilt(tmp_path: Path) -> None:
    manager = load(tmp_path)
    config = replace(SMALL, segment_bytes=10_000)
    log = manager.create(PARTITION, TOPIC_ID, config)
    append(log, batch(producer_id=5, epoch=0, sequence=0, transactional=True))
    append(log, marker(5, committed=False))
    manager.close()
    (tmp_path / "orders-0" / "00000000000000000000.txnindex").unlink()
    again = log_of(load(tmp_path))
    assert again.find_aborted_across(1) == [(5, 0)]


def test_unreadable_lists_are_ignored(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / MANIFEST_FILE).write_bytes(b"garbage")
    with captured_logs() as lines:
        manager = load(tmp_path)
    assert len(contents(log_of(manager))) == 11
    assert lines[0]["log_level"] == "warning"


def test_a_quarantined_partition_can_be_deleted(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "orders-0" / "00000000000000000003.log").unlink()
    again = load(tmp_path)
    assert again.delete(PARTITION)
    assert not (tmp_path / "orders-0").exists()
    assert again.create(PARTITION, UUID(int=8), SMALL).end_offset == 0
    assert not again.delete(TopicPartition("other", 0))
