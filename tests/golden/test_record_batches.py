"""Batches that other clients wrote, byte for byte: the Java client and librdkafka, every codec."""

import json
import re
from pathlib import Path

import pytest

from rookery.records.batch import Codec, check_batch, compute_crc, iterate_headers, read_header
from rookery.records.control import Marker, build_marker
from rookery.records.policy import ProducePolicy
from rookery.records.produce import prepare
from rookery.records.record import Record, build_batch, decode_records

_NOW_MS = 1_700_000_000_000
_RECORDS = [
    Record(0, _NOW_MS, b"key-0", b"value 0 " * 20, (("trace", b"\x01\x02"), ("null", None))),
    Record(1, _NOW_MS + 7, b"key-1", None),
    Record(2, _NOW_MS + 14, None, b"value 2 " * 20),
]
_CAPTURED: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("record_batches.json").read_text())
_CASES = [(client, codec) for client, batches in _CAPTURED.items() for codec in batches]


def _batch(client: str, codec: str) -> bytearray:
    return bytearray.fromhex(_CAPTURED[client][codec])


@pytest.mark.parametrize(("client", "codec"), _CASES)
def test_header_of_captured_batch(client: str, codec: str) -> None:
    header = check_batch(_batch(client, codec))
    assert header.codec_id == Codec[codec.upper()]
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (4711, 3, 0, 2)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (_NOW_MS, _NOW_MS + 14)


@pytest.mark.parametrize(("client", "codec"), _CASES)
def test_records_of_captured_batch(client: str, codec: str) -> None:
    assert decode_records(_batch(client, codec)) == _RECORDS


@pytest.mark.parametrize(("client", "codec"), _CASES)
def test_captured_batch_passes_unchanged(client: str, codec: str) -> None:
    data = _batch(client, codec)
    prepared = prepare(data, ProducePolicy(), now_ms=_NOW_MS)
    assert prepared is not None
    assert prepared[1] is data
    assert data == _batch(client, codec)


@pytest.mark.parametrize("client", _CAPTURED)
def test_our_uncompressed_batch_is_the_same_bytes(client: str) -> None:
    captured = _batch(client, "none")
    ours = build_batch(
        _RECORDS,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=0,
        leader_epoch=read_header(captured).leader_epoch,
    )
    assert ours == captured


@pytest.mark.parametrize(("client", "codec"), _CASES)
def test_captured_batch_cut_short_or_followed_by_more(client: str, codec: str) -> None:
    data = bytes(_batch(client, codec))
    assert list(iterate_headers(data[:-1])) == []
    assert [position for position, _ in iterate_headers(data + data)] == [0, len(data)]
    assert compute_crc(data) == read_header(data).crc


def _worked_example(heading: str) -> bytes:
    """Return the bytes that the documentation shows under a heading, one piece per line followed by its meaning."""
    page = Path(__file__).parents[2] / "docs" / "formats" / "record-batch.md"
    section = page.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    pieces = re.findall(r"^ {4,}((?:[0-9a-f]{2,} ?)+)(?: {2,}|$)", section, re.MULTILINE)
    return bytes.fromhex("".join(pieces))


def test_worked_example_of_the_documentation() -> None:
    batch = _worked_example("A worked example")
    records = [Record(0, _NOW_MS, b"jay", b"caw", (("n", b"1"),)), Record(1, _NOW_MS + 5, b"jay", None)]
    assert batch == build_batch(records, producer_id=4711, producer_epoch=0, base_sequence=0)
    assert check_batch(batch).size_bytes == len(batch) == 88


def test_worked_example_of_a_marker() -> None:
    assert _worked_example("End markers") == build_marker(Marker(5, 2, True, 3), _NOW_MS)
