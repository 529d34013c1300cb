"""A scripted broker on a real socket, for failures that a healthy broker does not show.

`answers` maps an API to a function from (version, request) to a response, None for no response, or HANG_UP to close
the connection. ApiVersions and Metadata (one broker, the topics in `topics`) have default answers. Partitions whose
index is in `leaderless` have no leader; `versions` are the highest versions to serve, by the API's name. A test may
change `answers` and `topics` while the broker runs.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.net.address import Address
from rookery.protocol.api import DEFINED, ApiKey, VersionRange
from rookery.protocol.codec import decode_request, encode_response
from rookery.protocol.framing import parse_request_header, response_prefix
from rookery.protocol.message import Message

HANG_UP = Message(hang_up=True)
NODE_ID = 7

Responder = Callable[[int, Message], Message | None]


class FakeBroker:
    def __init__(
        self,
        answers: Mapping[ApiKey, Responder],
        *,
        topics: Mapping[str, int] | None = None,
        leaderless: Collection[int] = (),
        versions: Mapping[str, int] | None = None,
    ) -> None:
        self.requests: list[tuple[ApiKey, int, Message]] = []
        self.answers: dict[ApiKey, Responder] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            **answers,
        }
        self.topics = dict(topics or {})
        self._leaderless = leaderless
        self._versions = {
            key: VersionRange(DEFINED[key].minimum, (versions or {}).get(key.name, DEFINED[key].maximum))
            for key in self.answers
        }
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "FakeBroker":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> Address:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return Address(host, port)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._tasks)

    def forget(self, api_key: ApiKey) -> None:
        """Stop serving an API. Clients that are connected already may still send it."""
        del self.answers[api_key], self._versions[api_key]

    def requests_of(self, api_key: ApiKey) -> list[Message]:
        return [request for key, _, request in self.requests if key == api_key]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._serve(reader, writer):
                pass
        except asyncio.IncompleteReadError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        header, position = parse_request_header(frame)
        api_key, version = ApiKey(header.api_key), header.api_version
        answered_version = version
        if version > self._versions[api_key].maximum:
            assert api_key == ApiKey.API_VERSIONS, "only ApiVersions may be sent in a version that is not served"
            response: Message | None = self._api_versions(version, Message(), ErrorCode.UNSUPPORTED_VERSION)
            answered_version = 0
        else:
            request = decode_request(api_key, version, frame, position)
            self.requests.append((api_key, version, request))
            response = self.answers[api_key](version, request)
        if response is HANG_UP:
            return False
        if response is not None:
            body = encode_response(api_key, answered_version, response)
            prefix = response_prefix(
                api_key, answered_version, correlation_id=header.correlation_id, body_size=len(body)
            )
            writer.write(prefix + body)
        return True

    def _api_versions(self, version: int, request: Message, error: ErrorCode = ErrorCode.NONE) -> Message:
        rows = [
            Message(api_key=key, min_version=versions.minimum, max_version=versions.maximum)
            for key, versions in self._versions.items()
        ]
        return Message(error_code=error, api_keys=rows, throttle_time_ms=0)

    def _metadata(self, version: int, request: Message) -> Message:
        names = self.topics if request.topics is None else [topic.name for topic in request.topics]
        return Message(
            throttle_time_ms=0,
            brokers=[Message(node_id=NODE_ID, host=self.address.host, port=self.address.port, rack=None)],
            cluster_id="fake",
            controller_id=NODE_ID,
            topics=[self._topic(name) for name in names],
            cluster_authorized_operations=-1,
            error_code=0,
        )

    def _topic(self, name: str) -> Message:
        count = self.topics.get(name)
        partitions = [
            Message(
                error_code=0,
                partition_index=index,
                leader_id=-1 if index in self._leaderless else NODE_ID,
                leader_epoch=0,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
                offline_replicas=[],
            )
            for index in range(count or 0)
        ]
        return Message(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if count is None else ErrorCode.NONE,
            name=name,
            topic_id=NO_TOPIC_ID if count is None else topic_id(name),
            is_internal=False,
            partitions=partitions,
            topic_authorized_operations=-1,
        )


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"\1")[:16])


def produced(error_code: int = 0, base_offset: int = 0) -> Responder:
    """Return an answer to Produce that is the same for every partition in the request."""

    def answer(version: int, request: Message) -> Message:
        def row(partition: Any) -> Message:
            return Message(
                index=partition.index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=-1,
                log_start_offset=0,
                record_errors=[],
                error_message=None,
            )

        topics = [
            Message(
                name=topic.get("name"),
                topic_id=topic.get("topic_id"),
                partition_responses=[row(partition) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return Message(responses=topics, throttle_time_ms=0)

    return answer
