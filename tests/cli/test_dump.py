import json
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from rookery.base.types import TopicPartition
from rookery.cli.commands import app
from rookery.cli.dump import dump_file, files_in
from rookery.records.batch import Codec, read_header
from rookery.records.control import ControlType, Marker, build_marker, control_key
from rookery.records.record import Record, build_batch
from rookery.storage import checkpoints
from rookery.storage.checkpoints import EpochStart
from rookery.storage.index import OffsetIndex, TimeIndex
from rookery.storage.producers import ProducerStates
from rookery.storage.transactions import AbortedIndex, AbortedTransaction


def batch(first: int, count: int, *, codec: Codec = Codec.NONE, producer_id: int = -1, control: bool = False) -> bytes:
    key = control_key(ControlType.LEADER_CHANGE) if control else b"k\xff"
    records = [Record(first + index, 1000 + index, key, b"value %d" % index, (("h", b"x"),)) for index in range(count)]
    return bytes(
        build_batch(
            records,
            base_offset=first,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            leader_epoch=4,
            control=control,
        )
    )


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """The directory of a partition, with one file of each kind."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    name = "00000000000000000010"
    first, second = batch(10, 3, codec=Codec.ZSTD, producer_id=7), batch(13, 1, control=True)
    (directory / f"{name}.log").write_bytes(first + second)
    offsets, times, producers = OffsetIndex(10), TimeIndex(10), ProducerStates()
    offsets.append(13, len(first))
    times.append_if_later(1002, 12)
    producers.update(read_header(first))
    # Apache Kafka preallocates the indexes of an active segment.
    (directory / f"{name}.index").write_bytes(offsets.encode() + bytes(80))
    (directory / f"{name}.timeindex").write_bytes(times.encode() + bytes(120))
    aborted = AbortedIndex()
    aborted.append(AbortedTransaction(7, 10, 14, 15))
    (directory / f"{name}.txnindex").write_bytes(aborted.encode())
    (directory / f"{name}.snapshot").write_bytes(producers.encode())
    (directory / "leader-epoch-checkpoint").write_bytes(checkpoints.encode_epochs([EpochStart(4, 10)]))
    (directory / "partition.metadata").write_bytes(checkpoints.encode_partition_metadata(UUID(int=1)))
    (directory / "notes.txt").write_text("not a file of a log")
    return directory


def items(path: Path, *, with_records: bool = False) -> list[dict[str, object]]:
    return list(dump_file(path, with_records=with_records))


def test_batches(partition: Path) -> None:
    first, second = items(partition / "00000000000000000010.log")
    assert (first["base_offset"], first["last_offset"], first["records"]) == (10, 12, 3)
    assert (first["compression"], first["producer_id"], first["leader_epoch"]) == ("zstd", 7, 4)
    assert (second["position"], second["control"], second["crc_valid"]) == (first["size_bytes"], True, True)


def test_records(partition: Path) -> None:
    found = items(partition / "00000000000000000010.log", with_records=True)
    assert [item["kind"] for item in found] == ["batch", "record", "record", "record", "batch", "record"]
    assert found[1] == {
        "kind": "record",
        "offset": 10,
        "timestamp_ms": 1000,
        "key_base64": "a/8=",
        "value": "value 0",
        "headers": [{"name": "h", "value": "x"}],
    }
    assert found[5]["control_type"] == "leader change"
    assert "coordinator_epoch" not in found[5]


def test_markers(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_marker(Marker(7, 0, False, 3), 1000))
    _, marker = items(path, with_records=True)
    assert (marker["control_type"], marker["coordinator_epoch"]) == ("abort", 3)
    assert (
        'control_type="abort" coordinator_epoch=3' in CliRunner().invoke(app, ["log", "dump", str(path), "-r"]).stdout
    )
    path.write_bytes(build_batch([Record(0, 1, control_key(ControlType.COMMIT), b"")], control=True))
    assert "coordinator epoch" in str(items(path, with_records=True)[1]["problem"])


def test_the_other_files(partition: Path) -> None:
    name = partition / "00000000000000000010"
    assert items(name.with_suffix(".index"))[0]["offset"] == 13
    assert items(name.with_suffix(".timeindex")) == [{"kind": "time index", "timestamp_ms": 1002, "offset": 12}]
    assert items(name.with_suffix(".snapshot"))[0]["last_sequence"] == 2
    assert items(name.with_suffix(".txnindex")) == [
        {
            "kind": "aborted transaction",
            "producer_id": 7,
            "first_offset": 10,
            "last_offset": 14,
            "last_stable_offset": 15,
        }
    ]
    assert items(partition / "leader-epoch-checkpoint")[0]["start_offset"] == 10
    assert items(partition / "partition.metadata")[0]["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_checkpoints_of_a_log_directory(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(checkpoints.encode_offsets({TopicPartition("orders", 3): 99}))
    assert items(path) == [{"kind": "checkpoint", "topic": "orders", "partition": 3, "offset": 99}]
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    assert [item["line"] for item in items(tmp_path / "meta.properties")] == ["version=1", "node.id=1"]


def test_a_directory_is_all_its_known_files(partition: Path) -> None:
    assert [path.name.removeprefix("00000000000000000010") for path in files_in(partition)] == [
        ".index",
        ".log",
        ".snapshot",
        ".timeindex",
        ".txnindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_the_command_prints_text_and_json(partition: Path) -> None:
    text = CliRunner().invoke(app, ["log", "dump", str(partition), "--records"])
    assert text.exit_code == 0
    assert "batch 10..12: 3 records, position 0" in text.stdout
    assert "producer 7/0 sequence 0..2" in text.stdout
    lines = CliRunner().invoke(app, ["log", "dump", str(partition), "--json"]).stdout.splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {
        "batch",
        "offset index",
        "time index",
        "aborted transaction",
        "producer",
        "leader epoch",
        "partition metadata",
    }


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_torn_batch_at_the_end_fails_the_command(partition: Path, cut: int) -> None:
    log = partition / "00000000000000000010.log"
    log.write_bytes(log.read_bytes() + batch(14, 5)[:cut])
    result = CliRunner().invoke(app, ["log", "dump", str(log)])
    assert result.exit_code == 1
    assert f"{cut} bytes from position" in result.stdout
    assert "1 of the items above are damaged" in result.stderr


def test_a_flipped_bit_is_reported_and_the_rest_is_read(partition: Path) -> None:
    log = partition / "00000000000000000010.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    first, second, record = items(log, with_records=True)
    assert (first["crc_valid"], first["problem"]) == (False, "the checksum does not match")
    assert (second["crc_valid"], record["kind"]) == (True, "record")


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_damaged_files_are_reported(partition: Path, suffix: str) -> None:
    path = partition / f"00000000000000000010{suffix}"
    path.write_bytes(path.read_bytes().rstrip(b"\0") + b"\7")
    assert items(path)[-1]["kind"] == "damage"


def test_an_unknown_file_is_refused(partition: Path) -> None:
    result = CliRunner().invoke(app, ["log", "dump", str(partition / "notes.txt")])
    assert result.exit_code == 1
    assert "not a known kind of file" in result.stderr
