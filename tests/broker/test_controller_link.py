"""Requests of a node to the active controller: over loopback sockets, and in process."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.broker.controller_link import ActiveControllerLink
from rookery.broker.dispatch import Dispatcher
from rookery.broker.image_waiters import ImageWaiters
from rookery.broker.producer_ids import ProducerIds
from rookery.broker.remote_controller import RemoteController
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.records import PartitionRecord, TopicRecord, encode_record
from rookery.metadata.requests import OK, CreatedTopic, NewTopic, Outcome, ProducerIdBlock
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.broker.cluster import ControllerNode, Controllers
from tests.broker.harness import running

BROKER: NodeId = 7
ALLOCATE = AllocateProducerIdsRequest(broker_id=BROKER, broker_epoch=5)


def link_of(controllers: Controllers) -> ActiveControllerLink:
    return ActiveControllerLink(node_id=BROKER, leader=lambda: controllers.leader, peers=controllers.peers)


def answer_with(node: ControllerNode, first: int) -> None:
    node.controller.results["allocate_producer_ids"] = ProducerIdBlock(OK, first, 1000)


async def allocate(link: ActiveControllerLink, timeout_s: float = 10) -> AllocateProducerIdsResponse:
    return await link.send(ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE, timeout_s=timeout_s)


def test_the_active_controller_responds() -> None:
    async def main() -> None:
        async with Controllers(1, 2) as controllers:
            controllers.lead(2)
            answer_with(controllers.nodes[2], 3000)
            assert (await allocate(link_of(controllers))).producer_id_start == 3000
            assert controllers.nodes[1].controller.calls == []

    asyncio.run(main())


def test_it_waits_for_an_active_controller() -> None:
    async def main() -> None:
        async with Controllers(1) as controllers:
            answer_with(controllers.nodes[1], 3000)
            asyncio.get_running_loop().call_later(0.1, controllers.lead, 1)
            assert (await allocate(link_of(controllers))).producer_id_start == 3000

    asyncio.run(main())


def test_without_an_active_controller_it_times_out() -> None:
    async def main() -> None:
        async with Controllers(1) as controllers:
            with pytest.raises(ApiError, match="there is no active controller") as caught:
                await allocate(link_of(controllers), timeout_s=0.1)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            controllers.lead(1)
            await controllers.kill(1)
            with pytest.raises(ApiError, match="address of node 1 is not known") as caught:
                await allocate(link_of(controllers), timeout_s=0.1)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(main())


def test_a_node_that_is_not_active_any_more_is_asked_again() -> None:
    """This node hears of the new leader only later."""

    async def main() -> None:
        async with Controllers(1, 2) as controllers:
            controllers.lead(1)
            answer_with(controllers.nodes[2], 4000)
            controllers.nodes[1].controller.is_active = False
            asyncio.get_running_loop().call_later(0.15, controllers.lead, 2)
            assert (await allocate(link_of(controllers))).producer_id_start == 4000
            assert len(controllers.nodes[1].controller.calls) >= 2

    asyncio.run(main())


def test_a_lost_connection_is_opened_again() -> None:
    async def main() -> None:
        async with Controllers(1) as controllers:
            controllers.lead(1)
            answer_with(controllers.nodes[1], 5000)
            link = link_of(controllers)
            await allocate(link)
            await controllers.kill(1)
            request = asyncio.ensure_future(allocate(link))
            await asyncio.sleep(0.1)
            assert not request.done()
            await controllers.restart(1)
            assert (await request).producer_id_start == 5000

    asyncio.run(main())


def test_a_request_to_a_hung_controller_goes_to_its_successor() -> None:
    async def forever(*_: object) -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        async with Controllers(1, 2) as controllers:
            controllers.lead(1)
            controllers.nodes[1].controller.__dict__["allocate_producer_ids"] = forever
            answer_with(controllers.nodes[2], 6000)
            asyncio.get_running_loop().call_later(0.1, controllers.lead, 2)
            async with asyncio.timeout(5):
                assert (await allocate(link_of(controllers), timeout_s=60)).producer_id_start == 6000

    asyncio.run(main())


def test_in_process() -> None:
    async def main() -> None:
        node = ControllerNode(BROKER)
        link = ActiveControllerLink(node_id=BROKER, leader=lambda: BROKER, local=node.dispatcher.handle)
        answer_with(node, 7000)
        assert (await allocate(link)).producer_id_start == 7000
        node.controller.is_active = False
        with pytest.raises(ApiError, match="node 7 is not the active controller any more"):
            await allocate(link, timeout_s=0.1)

    asyncio.run(main())


async def commit_topic(metadata: MetadataPublisher, name: str) -> None:
    topic_id = UUID(int=int.from_bytes(name.encode(), "big"))
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
    )
    await metadata.commit(
        metadata.image.offset + 1, [encode_record(TopicRecord(name, topic_id)), encode_record(partition)]
    )


def test_a_broker_creates_topics_elsewhere_and_waits_for_its_own_image() -> None:
    async def main() -> None:
        async with Controllers(1) as controllers:
            controllers.lead(1)
            metadata = MetadataPublisher()
            remote = RemoteController(link_of(controllers), ImageWaiters(metadata))
            refused = Outcome(ErrorCode.INVALID_REPLICATION_FACTOR, "too few")
            controllers.nodes[1].controller.results["create_topics"] = [
                CreatedTopic("new", OK, UUID(int=9), 3, 1),
                CreatedTopic("old", Outcome(ErrorCode.TOPIC_ALREADY_EXISTS, "exists")),
                CreatedTopic("large", refused),
            ]
            new = NewTopic(name="new", partition_count=3, configs=(("cleanup.policy", "compact"),))
            placed = NewTopic(name="large", assignments=((0, (1, 2)),))
            creation = asyncio.ensure_future(remote.create_topics([new, NewTopic(name="old"), placed]))
            for name in ("new", "old"):
                await asyncio.sleep(0.1)
                assert not creation.done(), "the topic is not in the image yet"
                await commit_topic(metadata, name)
            created = await creation
            assert [(topic.name, topic.outcome.code) for topic in created] == [
                ("new", ErrorCode.NONE),
                ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
                ("large", ErrorCode.INVALID_REPLICATION_FACTOR),
            ]
            assert created[0] == CreatedTopic("new", OK, UUID(int=9), 3, 1)
            assert created[2].outcome == refused
            ((_, (topics,), options),) = controllers.nodes[1].controller.calls
            assert topics == [new, NewTopic(name="old"), placed]
            assert options == {"validate_only": False}

    asyncio.run(main())


def test_a_failure_to_reach_the_controller_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.broker.remote_controller._TIMEOUT_S", 0.05)

    async def main() -> None:
        async with Controllers(1) as controllers:
            remote = RemoteController(link_of(controllers), ImageWaiters(MetadataPublisher()))
            (created,) = await remote.create_topics([NewTopic(name="t")])
            assert (created.name, created.outcome.code) == ("t", ErrorCode.REQUEST_TIMED_OUT)
            block = await remote.allocate_producer_ids(BROKER, 5)
            assert (block.outcome.code, block.size) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            controllers.lead(1)
            controllers.nodes[1].controller.results["allocate_producer_ids"] = ProducerIdBlock(
                Outcome(ErrorCode.STALE_BROKER_EPOCH)
            )
            assert (await remote.allocate_producer_ids(BROKER, 5)).outcome.code is ErrorCode.STALE_BROKER_EPOCH

    asyncio.run(main())


class NoController:
    """Stands for the requests of a broker that cannot reach a controller."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        return [CreatedTopic(topic.name, Outcome(self.code)) for topic in topics]

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock:
        return ProducerIdBlock(Outcome(self.code))


@pytest.mark.parametrize(
    ("code", "of_topic", "of_producer"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_clients_retry_while_there_is_no_controller(
    tmp_path: Path, code: ErrorCode, of_topic: ErrorCode, of_producer: ErrorCode
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            requests = NoController(code)
            producer_ids = ProducerIds(requests, broker.services.metadata, node_id=1)
            broker.services = replace(broker.services, broker_requests=requests, producer_ids=producer_ids)
            broker.dispatcher = Dispatcher(broker.services)
            response = await broker.call(
                ApiKey.METADATA,
                12,
                topics=[Message(name="new", topic_id=UUID(int=0))],
                allow_auto_topic_creation=True,
                include_topic_authorized_operations=False,
            )
            assert [ErrorCode(topic.error_code) for topic in response.topics] == [of_topic]
            response = await broker.call(
                ApiKey.INIT_PRODUCER_ID,
                4,
                transactional_id=None,
                transaction_timeout_ms=1,
                producer_id=-1,
                producer_epoch=-1,
            )
            assert ErrorCode(response.error_code) is of_producer

    asyncio.run(main())
