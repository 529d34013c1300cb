"""A fixed piece of interpreter work that is no part of Rookery: the unit in which other interpreters are compared.

Builds of Python differ in how many instructions they need for the same program. The calibration is counted in the same
process as the operations, so that a count can be converted from one interpreter to another. It does what a request path
does: calls, attributes, small objects, dictionaries, `struct`, slices of a buffer, exceptions. A change of this module
changes the unit: renew the baseline in the same commit.
"""

import struct

ROUNDS = 400
_HEADER = struct.Struct(">hhih")
_FRAME = memoryview(_HEADER.pack(3, 12, 7, 5) + b"bench" + bytes(64))


class _Request:
    __slots__ = ("api_key", "client_id", "correlation_id", "fields")

    def __init__(self, api_key: int, correlation_id: int, client_id: str) -> None:
        self.api_key = api_key
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.fields: dict[str, int] = {}

    def add(self, name: str, value: int) -> None:
        self.fields[name] = value

    @property
    def total(self) -> int:
        return sum(self.fields.values())


def _parse(frame: memoryview) -> _Request:
    api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
    end = _HEADER.size + size
    request = _Request(api_key, correlation_id, str(frame[_HEADER.size : end], "utf-8"))
    request.add("version", version)
    for index, byte in enumerate(frame[end : end + 8]):
        request.add(f"field-{index}", byte + index)
    return request


def _encode(request: _Request, known: dict[tuple[int, str], list[int]]) -> bytes:
    try:
        totals = known[request.api_key, request.client_id]
    except KeyError:
        totals = known.setdefault((request.api_key, request.client_id), [])
    totals.append(request.total)
    start = _HEADER.pack(request.api_key, 0, request.correlation_id, len(totals))
    return start + b"".join([name.encode() for name in request.fields])


def calibrate() -> int:
    """Run the workload; returns the size of what it encoded."""
    return sum(len(_encode(_parse(_FRAME), {})) for _ in range(ROUNDS))
