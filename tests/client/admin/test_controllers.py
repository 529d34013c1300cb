"""An admin that talks to controllers instead of brokers (`bootstrap.controllers`), and one that calls all brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import pytest

from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.client.admin import Admin, EndpointType
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.admin.test_quorum import quorum
from tests.client.fake_broker import FakeBroker, Responder

Result = TypeVar("Result")


def not_served(version: int, request: Message) -> Message:
    raise AssertionError("controllers do not serve Metadata")


class Controllers:
    """Two scripted controllers with the node ids 1 and 2; `active` is the id of the active one."""

    def __init__(self, active: int) -> None:
        self.active = active
        self.nodes: list[FakeBroker] = []

    def answers(self, node: int) -> dict[ApiKey, Responder]:
        def refused_by_others(version: int, request: Message) -> Message | None:
            return quorum(ErrorCode.NONE if node == self.active else ErrorCode.NOT_CONTROLLER)(version, request)

        return {
            ApiKey.METADATA: not_served,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_QUORUM: refused_by_others,
        }

    def describe_cluster(self, version: int, request: Message) -> Message:
        assert request.get("endpoint_type") == EndpointType.CONTROLLER
        rows = [
            Message(broker_id=node, host=broker.address.host, port=broker.address.port, rack=None, is_fenced=False)
            for node, broker in enumerate(self.nodes, start=1)
        ]
        return Message(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=2,
            cluster_id="fake",
            controller_id=self.active,
            brokers=rows,
            cluster_authorized_operations=0,
        )


def run_with_controllers(controllers: Controllers, work: Callable[[Admin], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with AsyncExitStack() as stack:
            for node in (1, 2):
                controllers.nodes.append(await stack.enter_async_context(FakeBroker(controllers.answers(node))))
            config = {
                "bootstrap.controllers": str(controllers.nodes[0].address),
                "default.api.timeout.ms": 1000,
                "request.timeout.ms": 1000,
                "retry.backoff.ms": 10,
            }
            return await work(await stack.enter_async_context(Admin(config)))

    return asyncio.run(run())


def test_requests_go_to_the_active_controller() -> None:
    controllers = Controllers(active=2)

    async def work(admin: Admin) -> None:
        assert (await admin.describe_quorum()).leader_epoch == 5
        assert [len(node.requests_of(ApiKey.DESCRIBE_QUORUM)) for node in controllers.nodes] == [0, 1]
        controllers.active = 1
        assert (await admin.describe_quorum()).leader_epoch == 5
        assert [len(node.requests_of(ApiKey.DESCRIBE_QUORUM)) for node in controllers.nodes] == [1, 2]
        described = await admin.describe_cluster()
        assert described.endpoint_type is EndpointType.CONTROLLER
        assert (described.controller_id, [node.node_id for node in described.brokers]) == (1, [1, 2])

    run_with_controllers(controllers, work)


def test_a_quorum_without_a_leader_is_waited_for() -> None:
    controllers = Controllers(active=-1)
    with pytest.raises(ApiError, match="NOT_CONTROLLER: the quorum has no leader"):
        run_with_controllers(controllers, lambda admin: admin.describe_quorum())
    assert len(controllers.nodes[0].requests_of(ApiKey.DESCRIBE_CLUSTER)) > 1


def test_what_controllers_do_not_serve() -> None:
    with pytest.raises(ApiError, match="UNSUPPORTED_ENDPOINT_TYPE: controllers do not describe topics"):
        run_with_controllers(Controllers(active=1), lambda admin: admin.list_topics())
    with pytest.raises(ApiError, match="LIST_GROUPS") as caught:
        run_with_controllers(Controllers(active=1), lambda admin: admin.list_groups())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_brokers_and_controllers_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="set either bootstrap"):
        Admin({"bootstrap.servers": "h:1", "bootstrap.controllers": "h:2"})
    with pytest.raises(ConfigError, match="is required: host:port"):
        Admin({})


def test_a_broker_that_dies_is_not_asked_any_more() -> None:
    """Without a new list of brokers, the groups would be requested from the dead one until the time-out."""
    alive: dict[int, FakeBroker] = {}

    def metadata(version: int, request: Message) -> Message:
        rows = [
            Message(node_id=node, host=broker.address.host, port=broker.address.port, rack=None)
            for node, broker in alive.items()
        ]
        return Message(throttle_time_ms=0, brokers=rows, cluster_id="fake", controller_id=1, topics=[], error_code=0)

    def groups_of(node: int) -> Responder:
        row = Message(group_id=f"g{node}", protocol_type="consumer", group_state="Stable", group_type="classic")
        return lambda version, request: Message(throttle_time_ms=0, error_code=0, groups=[row])

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for node in (1, 2):
                broker = FakeBroker({ApiKey.METADATA: metadata, ApiKey.LIST_GROUPS: groups_of(node)})
                alive[node] = await stack.enter_async_context(broker)
            async with Admin({"bootstrap.servers": str(alive[1].address), "retry.backoff.ms": 10}) as admin:
                assert [group.group_id for group in await admin.list_groups()] == ["g1", "g2"]

                def dying(version: int, request: Message) -> Message:
                    del alive[2]
                    return Message(throttle_time_ms=0, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[])

                alive[2].answers[ApiKey.LIST_GROUPS] = dying
                assert [group.group_id for group in await admin.list_groups()] == ["g1"]

    asyncio.run(run())
