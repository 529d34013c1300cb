"""Clients' requests for the controller at a broker that is not the active one: forwarded over loopback sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode, NotControllerError, ProtocolError
from rookery.broker.api_row import ListenerType
from rookery.broker.controller_link import ActiveControllerLink
from rookery.broker.dispatch import Dispatcher
from rookery.broker.forwarding import Forwarder
from rookery.metadata.requests import OK, CreatedTopic, Outcome
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame
from rookery.protocol.message import Message
from rookery.protocol.principal import ANONYMOUS, Principal, decode_principal, encode_principal
from tests.broker.cluster import ControllerNode, Controllers
from tests.broker.harness import CORRELATION_ID, NODE_ID, Broker, decode, request_frame, running

TOPIC = Message(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
CREATE = {"topics": [TOPIC], "timeout_ms": 60_000, "validate_only": False}
PRINCIPAL = encode_principal(ANONYMOUS)
CREATED = [CreatedTopic("t", OK, UUID(int=3), 1, 1)]


@asynccontextmanager
async def forwarding_broker(
    path: Path, controllers: Controllers, *, timeout_s: float = 10, has_controller: bool = False
) -> AsyncIterator[Broker]:
    """A broker that sees the `controllers` as its cluster's; with `has_controller`, it can become active itself."""
    async with running(path) as broker:
        local = Dispatcher(broker.services, ListenerType.CONTROLLER).handle if has_controller else None
        link = ActiveControllerLink(
            node_id=NODE_ID, leader=lambda: controllers.leader, local=local, peers=controllers.peers
        )
        forwarder = Forwarder(link, node_id=NODE_ID, leader=lambda: controllers.leader, timeout_s=lambda: timeout_s)
        broker.services = replace(broker.services, forwarding=forwarder)
        broker.dispatcher = Dispatcher(broker.services)
        yield broker


async def create(broker: Broker, version: int = 7) -> Message:
    response = await broker.call(ApiKey.CREATE_TOPICS, version, **CREATE)
    (topic,) = response.topics
    assert isinstance(topic, Message)
    return topic


def test_the_active_controller_decides(tmp_path: Path) -> None:
    async def main() -> None:
        async with Controllers(11, 12) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(12)
            controllers.nodes[12].controller.results["create_topics"] = CREATED
            for version in range(2, 8):
                topic = await create(broker, version)
                assert (topic.name, topic.error_code) == ("t", 0)
            assert "t" not in broker.services.image.topics, "this node's controller was not called"
            assert controllers.nodes[11].controller.calls == []

    asyncio.run(main())


def test_many_clients_at_once_get_their_own_responses(tmp_path: Path) -> None:
    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            controllers.nodes[11].controller.results["unregister_broker"] = lambda node_id: Outcome(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {node_id}"
            )
            answers = await asyncio.gather(*(unregister(broker, number) for number in range(30)))
            assert answers == [f"no broker {number}" for number in range(30)]

    asyncio.run(main())


async def unregister(broker: Broker, number: int) -> str:
    header = RequestHeader(ApiKey.UNREGISTER_BROKER, 0, 1000 + number, "test")
    frame = encode_request_frame(header, encode_request(ApiKey.UNREGISTER_BROKER, 0, Message(broker_id=number)))[4:]
    answer = broker.dispatcher.handle(memoryview(bytearray(frame)), broker.connection)
    assert isinstance(answer, Awaitable)
    reply = await answer
    assert reply is not None
    data = b"".join(bytes(part) for part in reply if not hasattr(part, "file"))
    assert int.from_bytes(data[4:8], "big") == 1000 + number
    message = decode(ApiKey.UNREGISTER_BROKER, 0, [data[:4], CORRELATION_ID.to_bytes(4, "big"), data[8:]])
    return str(message.error_message)


def test_a_change_of_controllers_in_the_middle(tmp_path: Path) -> None:
    async def main() -> None:
        async with Controllers(11, 12) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            controllers.nodes[11].controller.is_active = False
            controllers.nodes[12].controller.results["create_topics"] = CREATED
            asyncio.get_running_loop().call_later(0.12, controllers.lead, 12)
            assert (await create(broker)).error_code == 0

    asyncio.run(main())


def test_a_controller_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    async def forever(*_: object, **__: object) -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        async with Controllers(11, 12) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            controllers.nodes[11].controller.__dict__["create_topics"] = forever
            controllers.nodes[12].controller.results["create_topics"] = CREATED
            request = asyncio.ensure_future(create(broker))
            await asyncio.sleep(0.1)
            await controllers.kill(11)
            controllers.leader = None
            await asyncio.sleep(0.1)
            controllers.lead(12)
            async with asyncio.timeout(5):
                assert (await request).error_code == 0

    asyncio.run(main())


def test_without_a_controller_the_request_times_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers, timeout_s=0.1) as broker:
            topic = await create(broker)
            assert (topic.name, topic.error_code) == ("t", ErrorCode.REQUEST_TIMED_OUT)
            assert "no active controller" in topic.error_message

    asyncio.run(main())


def test_this_node_becomes_the_active_controller_in_the_middle(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Controllers(11) as controllers,
            forwarding_broker(tmp_path, controllers, has_controller=True) as broker,
        ):
            request = asyncio.ensure_future(create(broker))
            await asyncio.sleep(0.1)
            controllers.lead(NODE_ID)
            assert (await request).error_code == 0
            assert "t" in broker.services.image.topics
            assert (await create(broker)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS, "in process now"

    asyncio.run(main())


def test_this_node_stops_being_the_active_controller_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(NODE_ID)
            controllers.nodes[11].controller.results["create_topics"] = CREATED

            async def step_down(*_: object, **__: object) -> None:
                controllers.lead(11)
                raise NotControllerError

            monkeypatch.setattr(type(broker.services.controller), "create_topics", step_down)
            topic = await create(broker)
            assert (topic.error_code, topic.topic_id) == (0, UUID(int=3))
            ((_, (topics,), _),) = controllers.nodes[11].controller.calls
            assert [each.name for each in topics] == ["t"]

    asyncio.run(main())


def test_a_version_that_the_controller_lacks_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            older = controllers.nodes[11].dispatcher
            routes = {key: route for key, route in older._routes.items() if key != (ApiKey.CREATE_TOPICS, 7)}
            monkeypatch.setattr(older, "_routes", routes)
            with pytest.raises(ProtocolError, match="does not serve API key 19 version 7"):
                await create(broker)

    asyncio.run(main())


def test_a_rejected_envelope_is_the_fault_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.broker.forwarding.encode_principal", lambda _: b"?")

    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            assert (await create(broker)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(main())


def test_malformed_requests_close_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            frame = request_frame(ApiKey.CREATE_TOPICS, 7, **CREATE)[:-3]
            answer = broker.dispatcher.handle(memoryview(frame), broker.connection)
            assert isinstance(answer, Awaitable)
            with pytest.raises(ProtocolError):
                await answer

    asyncio.run(main())


def test_large_requests_are_forwarded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.broker.large_requests.WAITING_REQUEST_BYTES_MAX", 2_000_000)
    topics = [Message(**vars(TOPIC) | {"name": f"{number:0200}"}) for number in range(6000)]
    whole = {**CREATE, "topics": topics}

    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.nodes[11].controller.results["create_topics"] = lambda topics, **_: [
                CreatedTopic(topic.name, OK) for topic in topics
            ]
            first = asyncio.ensure_future(broker.call(ApiKey.CREATE_TOPICS, 7, **whole))
            await asyncio.sleep(0.05)
            with pytest.raises(ProtocolError, match="while others of"):
                await broker.call(ApiKey.CREATE_TOPICS, 7, **whole)
            controllers.lead(11)
            assert len((await first).topics) == len(topics)
            assert len((await broker.call(ApiKey.CREATE_TOPICS, 7, **whole)).topics) == len(topics)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"client_host_address": bytes(16)}, ErrorCode.NONE),
        ({"client_host_address": b"abc"}, ErrorCode.INVALID_REQUEST),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\x00\x07" + PRINCIPAL[2:]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_data": bytes(request_frame(ApiKey.CREATE_TOPICS, 7, **CREATE)[:-3])}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x13\x00\x63" + bytes(20)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": bytes(request_frame(ApiKey.API_VERSIONS, 0))}, ErrorCode.INVALID_REQUEST),
        (
            {"request_data": bytes(request_frame(ApiKey.LIST_GROUPS, 3, states_filter=[]))},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_envelopes(fields: dict[str, Any], code: ErrorCode) -> None:
    async def main() -> None:
        node = ControllerNode()
        node.controller.results["create_topics"] = CREATED
        whole = {
            "request_data": bytes(request_frame(ApiKey.CREATE_TOPICS, 7, **CREATE)),
            "request_principal": PRINCIPAL,
            "client_host_address": bytes([127, 0, 0, 1]),
        }
        response = await node.call(ApiKey.ENVELOPE, 0, **whole | fields)
        assert response.error_code == code
        assert (response.response_data is not None) == (code is ErrorCode.NONE)
        node.controller.is_active = False
        response = await node.call(ApiKey.ENVELOPE, 0, **whole)
        assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)

    asyncio.run(main())


def test_principals_have_kafkas_form() -> None:
    assert PRINCIPAL == b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
    for principal in (ANONYMOUS, Principal("User", "ä", True)):
        assert decode_principal(encode_principal(principal)) == principal
