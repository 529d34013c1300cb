import errno
from pathlib import Path
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import StartupError, StorageError
from rookery.base.files import OsFiles
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.storage.checkpoints import decode_offsets, encode_offsets
from rookery.storage.config import LogConfig
from rookery.storage.manager import LogManager
from tests.faults.files import CrashFiles
from tests.storage.samples import DATA, PARTITION, SMALL, START_MS, TOPIC_ID, append, append_all, batch, contents
from tests.support.logs import captured_logs


def manager_on(*paths: Path, threads: int = 1) -> LogManager:
    manager = LogManager(OsFiles(), ManualClock(START_MS), paths, worker_threads=threads)
    manager.load(lambda topic: SMALL)
    return manager


def partition(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def fill(manager: LogManager, count: int) -> None:
    for index in range(count):
        append_all(manager.create(partition(index), TOPIC_ID, SMALL), (batch() for _ in range(5)))


def test_new_partitions_go_where_the_fewest_are(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    manager = manager_on(*paths)
    fill(manager, 7)
    assert [directory.partition_count for directory in manager.directories] == [3, 2, 2]
    assert [len(list(path.glob("orders-*"))) for path in paths] == [3, 2, 2]
    manager.delete(partition(1))
    manager.create(partition(9), TOPIC_ID, SMALL)
    assert manager.directories[1].partition_count == 2


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_kept_over_a_restart(tmp_path: Path, clean: bool, threads: int) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    manager = manager_on(*paths, threads=threads)
    fill(manager, 6)
    before = {log.partition: contents(log) for log in manager}
    manager.close(clean=clean, broker_epoch=17)
    again = LogManager(OsFiles(), ManualClock(START_MS), paths, worker_threads=threads)
    assert again.load(lambda topic: SMALL) == (6, clean, 17 if clean else -1)
    assert {log.partition: contents(log) for log in again} == before
    assert {log.topic_id for log in again} == {TOPIC_ID}
    assert not list(tmp_path.glob("*/.kafka_cleanshutdown"))


class TestRegistration:
    """The epoch that a broker registers with shows the controller that its logs have all that was written to them."""

    def restarted(self, *paths: Path, boot_id: str | None) -> int:
        manager = LogManager(OsFiles(), ManualClock(START_MS), paths, boot_id=boot_id)
        return manager.load(lambda topic: SMALL).broker_epoch

    def killed(self, *paths: Path, epoch: int = 17, boot_id: str | None = "first") -> None:
        """Run a broker that is killed after its registration."""
        manager = LogManager(OsFiles(), ManualClock(START_MS), paths, boot_id=boot_id)
        manager.load(lambda topic: SMALL)
        manager.keep_registration(epoch)
        manager.close(clean=False)

    def test_a_killed_process_has_lost_nothing_while_the_machine_runs(self, tmp_path: Path) -> None:
        self.killed(tmp_path)
        assert self.restarted(tmp_path, boot_id="first") == 17

    @pytest.mark.parametrize("boot_id", ["second", None])
    def test_after_another_boot_unsynced_records_may_be_lost(self, tmp_path: Path, boot_id: str | None) -> None:
        self.killed(tmp_path)
        assert self.restarted(tmp_path, boot_id=boot_id) == -1

    def test_without_a_boot_id_nothing_is_known(self, tmp_path: Path) -> None:
        self.killed(tmp_path, boot_id=None)
        assert not (tmp_path / ".rookery_registration").exists()
        assert self.restarted(tmp_path, boot_id=None) == -1

    def test_a_directory_of_another_epoch_may_lack_records(self, tmp_path: Path) -> None:
        self.killed(tmp_path / "a", epoch=17)
        self.killed(tmp_path / "b", epoch=18)
        assert self.restarted(tmp_path / "a", tmp_path / "b", boot_id="first") == -1
        self.killed(tmp_path / "a", tmp_path / "b", epoch=19)
        assert self.restarted(tmp_path / "a", tmp_path / "b", boot_id="first") == 19

    def test_a_new_directory_has_no_epoch(self, tmp_path: Path) -> None:
        self.killed(tmp_path / "a")
        assert self.restarted(tmp_path / "a", tmp_path / "b", boot_id="first") == -1

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"brokerEpoch":"17","bootId":"first"}', b'{"bootId":1}'])
    def test_an_unreadable_file_is_none(self, tmp_path: Path, content: bytes) -> None:
        self.killed(tmp_path)
        (tmp_path / ".rookery_registration").write_bytes(content)
        assert self.restarted(tmp_path, boot_id="first") == -1


def test_the_file_that_a_running_quorum_writes_is_not_removed_with_those_of_a_crash(tmp_path: Path) -> None:
    kept, removed = tmp_path / "metadata-recovery-point-checkpoint.tmp", tmp_path / "log-start-offset-checkpoint.tmp"
    kept.touch()
    removed.touch()
    manager_on(tmp_path)
    assert (kept.exists(), removed.exists()) == (True, False)


def test_a_clean_stop_writes_kafkas_checkpoints(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 2)
    log = manager.get(partition(1))
    assert log is not None
    log.advance_start_offset(3)
    manager.close()
    assert decode_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes()) == {
        partition(0): 5,
        partition(1): 5,
    }
    assert decode_offsets((tmp_path / "log-start-offset-checkpoint").read_bytes()) == {partition(1): 3}
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'


def test_unreadable_checkpoints_cost_no_data(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 2)
    manager.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"\xff\xfe")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"1\n")
    assert [log.end_offset for log in manager_on(tmp_path)] == [5, 5]


def test_deleting_frees_the_name_immediately_and_the_files_later(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 1)
    assert manager.delete(partition(0))
    assert not manager.delete(partition(0))
    (deleted,) = tmp_path.glob("orders-0.*-delete")
    assert contents(manager.create(partition(0), UUID(int=8), SMALL)) == []
    assert manager.purge_deleted(START_MS + SMALL.file_delete_delay_ms - 1) == 0
    assert deleted.exists()
    assert manager.purge_deleted(START_MS + SMALL.file_delete_delay_ms) == 1
    assert not deleted.exists()


def test_a_stop_does_not_wait_for_a_complete_purge(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 2)
    for index in range(2):
        manager.delete(partition(index))
    manager.close()
    assert manager.purge_deleted(START_MS + SMALL.file_delete_delay_ms) == 0
    assert manager_on(tmp_path).purge_deleted(START_MS) == 2


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    long = TopicPartition("t" * 249, 1)
    manager.create(long, TOPIC_ID, SMALL)
    manager.delete(long)
    assert len(list(tmp_path.glob("t*-delete"))) == 1


def test_deleted_partitions_are_purged_after_a_restart(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 1)
    manager.delete(partition(0))
    manager.close()
    again = manager_on(tmp_path)
    assert (again.logs(), again.purge_deleted(START_MS)) == ([], 1)
    assert not list(tmp_path.glob("orders*"))


def test_stored_partitions_have_their_topic_ids(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 2)
    manager.quarantine(partition(1), "it is not in the metadata")
    assert manager.stored() == {partition(0): TOPIC_ID, partition(1): TOPIC_ID}


def test_a_lost_topic_id_is_written_again(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 1)
    manager.close()
    metadata = tmp_path / "orders-0" / "partition.metadata"
    metadata.write_bytes(b"")
    again = manager_on(tmp_path)
    assert [log.topic_id for log in again] == [NO_TOPIC_ID]
    assert again.stored() == {partition(0): NO_TOPIC_ID}
    assert again.create(partition(0), TOPIC_ID, SMALL).end_offset == 5
    assert metadata.read_bytes() == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw"


def test_one_partition_in_two_directories_is_an_error(tmp_path: Path) -> None:
    manager = manager_on(tmp_path / "a")
    fill(manager, 1)
    (tmp_path / "b" / "orders-0").mkdir(parents=True)
    with pytest.raises(StartupError, match="remove one of the two"):
        manager_on(tmp_path / "a", tmp_path / "b")


def test_a_directory_that_is_not_a_partition_is_ignored(tmp_path: Path) -> None:
    for name in ("lost+found", "__cluster_metadata-0", "-1", "x"):
        (tmp_path / name).mkdir()
    manager = manager_on(tmp_path)
    assert manager.logs() == []
    assert len(list(tmp_path.iterdir())) == 4


def test_retention_runs_over_all_logs(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 2)
    log = manager.get(partition(1))
    assert log is not None
    log.update_config(LogConfig(retention_ms=1))
    assert [len(manager.apply_retention(each, START_MS + 100, 4)) for each in manager] == [0, 1]
    manager.checkpoint()
    manager.retire_expired(START_MS)
    assert not (tmp_path / "orders-1" / "00000000000000000000.log").exists()
    assert manager.purge_deleted(START_MS) == 3
    assert not list((tmp_path / "orders-1").glob("*.deleted"))
    assert decode_offsets((tmp_path / "log-start-offset-checkpoint").read_bytes()) == {partition(1): 3}


def test_idle_producers_are_dropped(tmp_path: Path) -> None:
    manager = LogManager(OsFiles(), ManualClock(START_MS), [tmp_path], producer_expiration_ms=1000)
    manager.load(lambda topic: SMALL)
    log = manager.create(partition(0), TOPIC_ID, LogConfig())
    append(log, batch(START_MS, producer_id=1, epoch=0, sequence=0))
    append(log, batch(START_MS + 500, producer_id=2, epoch=0, sequence=0))
    manager.apply_retention(log, START_MS + 1000)
    assert [state.producer_id for state in log.producers] == [2]
    manager.close()
    again = LogManager(OsFiles(), ManualClock(START_MS), [tmp_path])
    again.load(lambda topic: SMALL)
    assert [state.producer_id for state in again.logs()[0].producers] == [2]


def test_flush_due(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 2)
    log = manager.get(partition(0))
    assert log is not None
    log.flush()
    assert [log.partition for log in manager.flush_due(START_MS)] == [partition(1)]


class TestDamagedLogs:
    """One log cannot be read: operations on all logs continue with the others."""

    def damage(self, manager: LogManager) -> LogManager:
        """Break partition 0's first segment and its index, with nothing of it in memory."""
        manager.close()
        directory = manager.directories[0].path
        (directory / "orders-0" / "00000000000000000000.index").unlink()
        log_file = directory / "orders-0" / "00000000000000000000.log"
        data = bytearray(log_file.read_bytes())
        data[len(batch()) + 8 : len(batch()) + 12] = b"\xff" * 4
        log_file.write_bytes(data)
        return manager_on(directory)

    def test_retention(self, tmp_path: Path) -> None:
        manager = manager_on(tmp_path)
        fill(manager, 2)
        again = self.damage(manager)
        for log in again:
            log.update_config(LogConfig(retention_ms=1))
        assert [len(again.apply_retention(log, START_MS + 100)) for log in again] == [0, 2]

    def test_a_stop_closes_the_others_and_is_not_clean(self, tmp_path: Path) -> None:
        manager = manager_on(tmp_path)
        config = LogConfig(segment_bytes=10_000)
        for index in range(2):
            append_all(manager.create(partition(index), TOPIC_ID, config), (batch() for _ in range(3)))
        again = self.damage(manager)
        damaged, healthy = again.logs()
        damaged.advance_start_offset(1)
        append(healthy, batch())
        again.close()
        assert healthy.recovery_point == 4
        assert not (tmp_path / ".kafka_cleanshutdown").exists()

    def test_a_start_names_the_log_and_continues_with_the_others(self, tmp_path: Path) -> None:
        manager = manager_on(tmp_path)
        fill(manager, 2)
        for path in (tmp_path / "orders-0").glob("*.snapshot"):
            path.write_bytes(b"damaged")
        manager.close(clean=False)
        log_file = tmp_path / "orders-0" / "00000000000000000000.log"
        (tmp_path / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({partition(0): 5}))
        log_file.write_bytes(b"\xff" * log_file.stat().st_size)
        with captured_logs() as lines:
            again = manager_on(tmp_path)
        (entry,) = [line for line in lines if line["log_level"] == "error"]
        assert entry["partition"] == "orders-0"
        assert str(log_file) in entry["reason"]
        assert [log.partition for log in again] == [partition(1)]
        with pytest.raises(StorageError, match="orders-0 is not served"):
            again.create(partition(0), TOPIC_ID, SMALL, is_new=False)
        assert log_file.read_bytes() == b"\xff" * log_file.stat().st_size


class TestFailingDisks:
    """One of two directories fails: its logs raise StorageError, the other continues."""

    def node(self) -> tuple[CrashFiles, LogManager]:
        files = CrashFiles()
        manager = LogManager(files, ManualClock(START_MS), [DATA / "a", DATA / "b"])
        manager.load(lambda topic: SMALL)
        for index in range(2):
            append_all(manager.create(partition(index), TOPIC_ID, SMALL), (batch() for _ in range(7)))
        return files, manager

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
    @pytest.mark.parametrize(
        "operation",
        [
            "append",
            "roll",
            "flush",
            "read",
            "truncate_to",
            "restart_at",
            "take_detached_files",
            "checkpoint",
            "offset_for_timestamp",
            "close",
        ],
    )
    def test_any_operation(self, operation: str, code: int) -> None:
        files, manager = self.node()
        broken, healthy = manager.logs()
        broken.advance_start_offset(4)
        manager.apply_retention(broken, START_MS)
        files.fail_matching(lambda call: call.path.is_relative_to(DATA / "a"), code)
        calls = {
            "append": lambda: append(broken, batch()),
            "read": lambda: broken.read(4, 80),
            "truncate_to": lambda: broken.truncate_to(5),
            "restart_at": lambda: broken.restart_at(5),
            "offset_for_timestamp": lambda: broken.offset_for_timestamp(START_MS),
        }
        call = calls.get(operation, getattr(broken, operation, None))
        if operation == "checkpoint":
            manager.checkpoint()
        else:
            assert call is not None
            with pytest.raises(StorageError, match="offline"):
                call()
        assert (manager.is_online(partition(0)), manager.is_online(partition(1))) == (False, True)
        files.fail = None
        with pytest.raises(StorageError, match="offline"):
            append(broken, batch())
        assert append(healthy, batch()) == 7
        manager.checkpoint()
        manager.close()
        assert files.exists(DATA / "b" / ".kafka_cleanshutdown")
        assert not files.exists(DATA / "a" / ".kafka_cleanshutdown")

    def test_new_partitions_go_to_the_healthy_directory(self) -> None:
        files, manager = self.node()
        files.fail_matching(lambda call: call.path.is_relative_to(DATA / "a"))
        with pytest.raises(StorageError):
            manager.delete(partition(0))
        files.fail = None
        created = manager.create(partition(5), TOPIC_ID, SMALL)
        assert created.directory.parent == DATA / "b"
        with pytest.raises(StorageError, match="1 of 2"):
            manager.create(partition(6), TOPIC_ID, SMALL, is_new=False)

    def test_a_directory_that_cannot_be_read_at_start(self) -> None:
        files, manager = self.node()
        manager.close()
        files.fail_matching(lambda call: call.path == DATA / "a" and call.name == "list_directory")
        again = LogManager(files, ManualClock(START_MS), [DATA / "a", DATA / "b"])
        assert again.load(lambda topic: SMALL).partitions == 1
        assert [directory.is_online for directory in again.directories] == [False, True]

    def test_no_directory_left(self) -> None:
        files, manager = self.node()
        files.fail_matching(lambda call: True)
        manager.checkpoint()
        assert not any(directory.is_online for directory in manager.directories)
        with pytest.raises(StorageError, match="0 of 2"):
            manager.create(PARTITION._replace(partition=77), TOPIC_ID, SMALL)
