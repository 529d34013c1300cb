"""A cluster's image and the connections to its other brokers, for tests of what coordinators send to them."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from rookery.base.errors import ApiError
from rookery.base.types import NodeId, TopicPartition
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage
from rookery.metadata.records import PartitionRecord, TopicRecord
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_request, decode_response, encode_request, encode_response
from rookery.protocol.message import Message

NODE = 1


class Sent(NamedTuple):
    node: NodeId
    api_key: ApiKey
    request: Message
    response: "asyncio.Future[Any]"

    def answer(self, response: Message) -> None:
        self.response.set_result(response)

    def fail(self, error: ApiError) -> None:
        self.response.set_exception(error)


class FakePeers:
    """Keeps each request until the test answers it. Messages are encoded and decoded as on a real connection."""

    def __init__(self, versions: dict[ApiKey, int]) -> None:
        self.sent: list[Sent] = []
        self._versions = versions

    async def request(
        self, node: NodeId, api_key: ApiKey, request: Any, *, timeout_s: float, version_min: int = 0
    ) -> Any:
        version = self._versions[api_key]
        assert version >= version_min
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        encoded = encode_request(api_key, version, request)
        self.sent.append(Sent(node, api_key, decode_request(api_key, version, memoryview(encoded), 0), future))
        return decode_response(api_key, version, encode_response(api_key, version, await future))

    async def close(self) -> None:
        pass


def image_of(leaders: dict[TopicPartition, NodeId]) -> ClusterImage:
    """Return an image with these partitions, each of which has two replicas in sync unless it has no leader."""
    changes: list[Any] = []
    names = sorted({partition.topic for partition in leaders})
    for number, name in enumerate(names, 1):
        changes.append(TopicRecord(name=name, topic_id=UUID(int=number)))
        for index in sorted(partition.partition for partition in leaders if partition.topic == name):
            leader = leaders[TopicPartition(name, index)]
            changes.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=UUID(int=number),
                    replicas=(1, 2, 3),
                    isr=(1, 2, 3),
                    removing_replicas=(),
                    adding_replicas=(),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=(),
                )
            )
    return EMPTY_IMAGE.apply(changes)[0]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def play(scene: Callable[[], Any]) -> None:
    asyncio.run(scene())
