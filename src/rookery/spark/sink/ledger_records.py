"""The records of the ledger: docs/formats/sink-ledger.md. Pure.

The key is the sink, the value an entry as JSON, so that `rookery consume` shows it. The entry of many tasks is
compressed: by default, brokers and producers accept records of up to one megabyte, and check the size before they
compress. A null value means that the sink has no entry. Records of another version are an error.
"""

import json
import zlib
from typing import Any, Final

from rookery.client.prepared import PreparedTransaction
from rookery.spark.sink.commit_protocol import Entry, Piece, SinkError

VERSION: Final = 1
_PLAIN_BYTES_MAX: Final = 65_536
_JSON_START: Final = b"{"
_DECIDED, _DONE, _UNDECIDED = "decided", "done", "undecided"


def encode_entry(entry: Entry) -> bytes:
    state = _UNDECIDED if entry.pieces is None else _DONE if entry.is_done else _DECIDED
    made = {
        "version": VERSION,
        "batch": entry.batch,
        "state": state,
        "pieces": [_piece_fields(piece) for piece in entry.pieces or ()],
        "abandoned": sorted(
            (_transaction_fields(each) for each in entry.abandoned), key=lambda row: sorted(row.items())
        ),
    }
    text = json.dumps(made, separators=(",", ":")).encode()
    return text if len(text) <= _PLAIN_BYTES_MAX else zlib.compress(text)


def decode_entry(sink: str, value: bytes) -> Entry:
    """Decode an entry. Raises SinkError, also for a newer version: ignoring its decision could write a batch twice."""
    try:
        row = json.loads(value if value.startswith(_JSON_START) else zlib.decompress(value))
        version = row["version"]
        if version != VERSION:
            text = f"the ledger's record of {sink} has version {version}; this program supports version {VERSION}"
            raise SinkError(text, is_lasting=True)
        state = row["state"]
        return Entry(
            batch=int(row["batch"]),
            pieces=None if state == _UNDECIDED else tuple(_piece(each) for each in row["pieces"]),
            is_done=state == _DONE,
            abandoned=frozenset(_transaction(each) for each in row["abandoned"]),
        )
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise SinkError(
            f"the ledger's record of {sink} cannot be read ({error!r}): is ledgerTopic the right topic?"
        ) from None


def _piece_fields(piece: Piece) -> dict[str, Any]:
    return {
        "partition": piece.partition,
        "rows": piece.row_count,
        "digest": piece.digest,
        **_transaction_fields(piece.transaction),
    }


def _transaction_fields(transaction: PreparedTransaction) -> dict[str, Any]:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "v2": transaction.is_v2,
    }


def _piece(row: dict[str, Any]) -> Piece:
    return Piece(int(row["partition"]), _transaction(row), int(row["rows"]), str(row["digest"]))


def _transaction(row: dict[str, Any]) -> PreparedTransaction:
    return PreparedTransaction(
        str(row["transactional_id"]), int(row["producer_id"]), int(row["producer_epoch"]), is_v2=bool(row["v2"])
    )
