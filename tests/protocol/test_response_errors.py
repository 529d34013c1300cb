"""Error codes are found wherever a response has them."""

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import SERVED, ApiKey
from rookery.protocol.codec import request_shape
from rookery.protocol.error_responses import build, error_response
from rookery.protocol.message import Message, freeze
from rookery.protocol.response_errors import error_finder

# Versions of Produce that are only advertised have no schema here.
CASES = [(key, version) for key, versions in SERVED.items() if key != ApiKey.PRODUCE for version in versions]


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{key.name}-{version}" for key, version in CASES])
def test_error_responses_have_an_error(key: ApiKey, version: int) -> None:
    """The schema's own error response of each API and version is found to have the error, or cannot have one."""
    request = build(request_shape(key, version), {}, ErrorCode.NONE)
    response = error_response(key, version, request, ErrorCode.REQUEST_TIMED_OUT)
    find = error_finder(key, version)
    if response is None or find is None:
        return
    expected = ErrorCode.REQUEST_TIMED_OUT in vars(response).values()
    assert (ErrorCode.REQUEST_TIMED_OUT in find(response)) == expected


def test_nested_errors_are_found() -> None:
    find = error_finder(ApiKey.OFFSET_COMMIT, 8)
    assert find is not None
    partitions = [Message(partition_index=index, error_code=code) for index, code in enumerate((0, 25, 22))]
    response = Message(throttle_time_ms=0, topics=[Message(name="t", partitions=partitions)])
    assert list(find(response)) == [25, 22]
    assert list(find(Message(topics=[]))) == []
    assert list(find(Message(topics=[freeze(Message(partitions=partitions))]))) == []
