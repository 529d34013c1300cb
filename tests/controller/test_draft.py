"""Decisions that do not wait for the commit of those before them, while commits and losses of leadership interleave."""

import asyncio
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import CorruptionError, ErrorCode, NotControllerError, StorageError
from rookery.base.types import NO_TOPIC_ID
from rookery.controller.draft import Draft
from rookery.controller.service import Controller
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.image import ClusterImage
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.records import BrokerEndpoint, RemoveTopicRecord, TopicRecord, decode_record
from rookery.metadata.requests import BrokerHeartbeat, NewTopic, Registration
from tests.controller.manual_log import ManualLog

NAMES = ("a", "b", "c")
SEEDS = range(40)
STEPS = 60


class World:
    """An active controller with one broker, and clients that create and delete topics at the same time."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.metadata = MetadataPublisher()
        self.log = ManualLog(self.metadata)
        self.controller = Controller(
            self.log, self.metadata, node_id=9, cluster_id="c", static={}, random=Random(seed), clock=ManualClock()
        )
        self.clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.log.commits_at_once = True
        self.controller.activate(1)
        await self.register(1)
        self.log.commits_at_once = False

    async def register(self, incarnation: int) -> int:
        registered = await self.controller.register_broker(registration(incarnation))
        assert registered.outcome.code is ErrorCode.NONE
        epoch = registered.broker_epoch
        await self.controller.heartbeat(BrokerHeartbeat(node_id=1, broker_epoch=epoch, metadata_offset=epoch))
        return epoch

    async def run(self) -> None:
        await self.start()
        for _ in range(STEPS):
            step = self.random.choice((self.request, self.request, self.commit, self.lose, self.turn, self.turn))
            await step()
        while self.clients:
            await self.commit()
            await self.turn()
        await self.controller.close()

    async def request(self) -> None:
        client = asyncio.ensure_future(self.random.choice((self.create, self.delete))(self.random.choice(NAMES)))
        self.clients.add(client)

    async def commit(self) -> None:
        if self.log.pending_count:
            await self.log.commit()

    async def lose(self) -> None:
        if self.random.random() < 0.5:
            self.controller.deactivate()
            self.log.lose()
            self.controller.activate(self.log.epoch)

    async def turn(self) -> None:
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        for client in [client for client in self.clients if client.done()]:
            self.clients.remove(client)
            client.result()

    async def create(self, name: str) -> None:
        try:
            ((_, outcome, topic_id, *_),) = await self.controller.create_topics([NewTopic(name=name)])
        except NotControllerError:
            return
        created = [(record.name, record.topic_id) for record in self.committed() if isinstance(record, TopicRecord)]
        if outcome.code is ErrorCode.NONE:
            assert (name, topic_id) in created, "the creation was acknowledged, and is not committed"
        else:
            assert outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert name in dict(created), "the topic was said to exist, and its creation is not committed"

    async def delete(self, name: str) -> None:
        try:
            ((_, topic_id, outcome),) = await self.controller.delete_topics([(name, NO_TOPIC_ID)])
        except NotControllerError:
            return
        removed = {record.topic_id for record in self.committed() if isinstance(record, RemoveTopicRecord)}
        if outcome.code is ErrorCode.NONE:
            assert topic_id in removed, "the deletion was acknowledged, and is not committed"
        else:
            assert outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def committed(self) -> list[object]:
        return [decode_record(value) for values in self.log.committed for value in values]


def registration(incarnation: int) -> Registration:
    return Registration(
        node_id=1,
        cluster_id="c",
        incarnation_id=UUID(int=incarnation),
        endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0),),
        features=SUPPORTED_FEATURES,
        log_directories=(UUID(int=1000),),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_interleaved_decisions_commits_and_losses_of_leadership(seed: int) -> None:
    asyncio.run(World(seed).run())


def keep_draft(draft: Draft) -> None:
    """A bug: the records of a lost epoch stay in the draft."""


def published_image(draft: Draft) -> ClusterImage:
    """A bug: decisions are based on the published image, which does not have the records of the one before."""
    return draft._images.image


async def not_settled(controller: Controller) -> None:
    """A bug: a response without records does not wait for the records that it has seen."""


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Draft, "drop", keep_draft),
        (Draft, "image", property(published_image)),
        (Controller, "_settled", not_settled),
    ],
    ids=["drop", "image", "settled"],
)
def test_a_planted_bug_is_found(owner: type, name: str, bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, bug)
    for seed in SEEDS:
        try:
            asyncio.run(World(seed).run())
        except (AssertionError, CorruptionError):
            return
    pytest.fail("no seed has found the bug")


def test_a_decision_begins_before_the_one_before_is_committed() -> None:
    async def main() -> None:
        world = World()
        await world.start()
        requests = [asyncio.ensure_future(world.controller.create_topics([NewTopic(name=name)])) for name in NAMES]
        while world.log.pending_count < len(NAMES):
            await asyncio.sleep(0)
        assert not any(request.done() for request in requests)
        assert not world.metadata.image.topics
        for count, request in enumerate(requests, 1):
            await world.log.commit()
            await request
            assert len(world.metadata.image.topics) == count
        assert world.controller._draft.image is world.metadata.image
        await world.controller.close()

    asyncio.run(main())


def test_a_refused_append_leaves_the_draft_as_it_was() -> None:
    async def main() -> None:
        world = World()
        await world.start()
        world.log.is_broken = True
        (refused,) = await world.controller.create_topics([NewTopic(name="a")])
        assert refused.outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
        world.log.is_broken, world.log.commits_at_once = False, True
        (created,) = await world.controller.create_topics([NewTopic(name="a")])
        assert created.outcome.code is ErrorCode.NONE
        world.log.is_broken = True
        with pytest.raises(StorageError):
            await world.register(2)
        await world.controller.close()

    asyncio.run(main())


def test_a_heartbeat_sees_that_its_broker_is_being_fenced() -> None:
    async def main() -> None:
        world = World()
        await world.start()
        controller = world.controller
        epoch = world.metadata.image.brokers[1].broker_epoch
        beat = BrokerHeartbeat(node_id=1, broker_epoch=epoch, metadata_offset=epoch)
        assert not (await controller.heartbeat(beat)).is_fenced
        fence = asyncio.ensure_future(controller.heartbeat(replace(beat, wants_fence=True)))
        while not world.log.pending_count:
            await asyncio.sleep(0)
        # Decided on the published image, it would say that the broker is not fenced, and change nothing.
        next_beat = asyncio.ensure_future(controller.heartbeat(beat))
        while world.log.pending_count < 2:
            await asyncio.sleep(0)
        assert not fence.done()
        await world.log.commit()
        assert (await fence).is_fenced
        assert not next_beat.done()
        await world.log.commit()
        assert not (await next_beat).is_fenced
        await controller.close()

    asyncio.run(main())


def test_two_processes_of_a_broker_do_not_both_register() -> None:
    async def main() -> None:
        world = World()
        world.controller.activate(1)
        first, second = (
            asyncio.ensure_future(world.controller.register_broker(replace(registration(number), log_directories=dirs)))
            for number, dirs in ((1, (UUID(int=1000),)), (2, (UUID(int=2000),)))
        )
        while not second.done():
            await world.commit()
            await asyncio.sleep(0)
        assert (await first).outcome.code is ErrorCode.NONE
        assert (await second).outcome.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await world.controller.close()

    asyncio.run(main())
