"""Requests that no handler gets: unknown APIs and versions, bytes that do not decode."""

import asyncio
import struct
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.protocol.api import SERVED, ApiKey
from rookery.protocol.codec import decode_response
from rookery.protocol.framing import RequestHeader, encode_request_frame
from rookery.protocol.message import Message
from tests.broker.harness import CORRELATION_ID, Broker, joined, request_frame, running


def handle(broker: Broker, frame: bytes) -> object:
    return broker.dispatcher.handle(memoryview(bytearray(frame)), broker.connection)


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(99, 0), (-1, 0), (ApiKey.JOIN_GROUP, 5), (ApiKey.METADATA, 14), (ApiKey.FETCH, 3), (ApiKey.PRODUCE, 14)],
)
def test_an_unserved_version_closes_the_connection(tmp_path: Path, api_key: int, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            header = RequestHeader(api_key, version, CORRELATION_ID, "test")
            with pytest.raises(ProtocolError):
                handle(broker, encode_request_frame(header, b"")[4:])

    asyncio.run(main())


def test_unknown_version_of_api_versions_is_answered_in_v0(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            header = RequestHeader(ApiKey.API_VERSIONS, 99, CORRELATION_ID, "test")
            reply = handle(broker, encode_request_frame(header, b"anything")[4:])
            assert isinstance(reply, list)
            data = joined(reply)
            assert struct.unpack_from(">ii", data) == (len(data) - 4, CORRELATION_ID)
            response = decode_response(ApiKey.API_VERSIONS, 0, data[8:])
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            table = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
            assert table[ApiKey.API_VERSIONS] == SERVED[ApiKey.API_VERSIONS]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("ä", "1"), ("a", "1-")]
)
def test_software_names_must_look_like_names(tmp_path: Path, name: str, version: str) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            response = broker.call_now(18, 3, client_software_name=name, client_software_version=version)
            assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])

    asyncio.run(main())


@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_garbage_raises_only_protocol_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Invalid bodies of synchronous APIs: a response or a ProtocolError, nothing else."""
    keys = st.sampled_from([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.METADATA])
    requests = data.draw(
        st.lists(st.tuples(keys, st.integers(0, 18), st.binary(max_size=60)), min_size=100, max_size=100)
    )

    async def main() -> None:
        async with running(tmp_path_factory.mktemp("garbage")) as broker:
            for key, version, body in requests:
                frame = encode_request_frame(RequestHeader(key, version, CORRELATION_ID, None), body)[4:]
                with suppress(ProtocolError):
                    answer = handle(broker, frame)
                    if isinstance(answer, Awaitable):
                        await answer

    asyncio.run(main())


def test_the_frame_may_be_reused_after_stage_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topics = [Message(name="later")]
            frame = request_frame(ApiKey.METADATA, 4, topics=topics, allow_auto_topic_creation=True)
            answer = broker.dispatcher.handle(memoryview(frame), broker.connection)
            frame[:] = bytes(len(frame))
            assert answer is not None
            assert not isinstance(answer, list)
            await answer
            assert "later" in broker.services.image.topics

    asyncio.run(main())
