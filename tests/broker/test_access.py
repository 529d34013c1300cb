"""Guards: what requests get with which ACLs, through the dispatcher of a broker with an authorizer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.base.config_access import AUTHORIZER, STANDARD_AUTHORIZER, SUPER_USERS
from rookery.base.errors import ErrorCode, ProtocolError
from rookery.broker.access.guards import Unguarded
from rookery.broker.api_row import ListenerType
from rookery.broker.api_table import APIS
from rookery.broker.controller_link import ActiveControllerLink
from rookery.broker.dispatch import routes
from rookery.broker.permissions import Access
from rookery.metadata.requests import ChangedTopic, Outcome
from rookery.net.connection import Held
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_response
from rookery.protocol.framing import parse_response_header
from rookery.protocol.message import Message
from rookery.protocol.messages import VoteRequest
from rookery.protocol.principal import ANONYMOUS, Principal, encode_principal
from rookery.security.authorizer import Authorizer
from tests.broker.cluster import ControllerNode
from tests.broker.harness import Broker, decode, request_frame, running, settle
from tests.support import access_requests as make
from tests.support.access_cases import ADMIN, TOPICS, USER, outcome, parse_acls
from tests.support.access_table import CASES

SETTINGS = {AUTHORIZER: STANDARD_AUTHORIZER, SUPER_USERS: f"User:{ADMIN}", "delegation.token.secret.key": "k"}


def as_user(broker: Broker, name: str) -> None:
    broker.connection.principal = Principal("User", name)


def decide_by(broker: Broker, acls: str) -> None:
    """Make `acls` the only ones of the authorizer, quickly: the cluster does not have them."""
    assert broker.services.access is not None
    entries = {UUID(int=number): acl for number, acl in enumerate(parse_acls(acls))}
    broker.services.access.authorizer.load(entries)


async def permit(broker: Broker, acls: str) -> None:
    """Make `acls` the only ones of the cluster."""
    decide_by(broker, "")
    user = broker.connection.principal
    as_user(broker, ADMIN)
    await broker.call(ApiKey.DELETE_ACLS, 3, **make.deleted_acls())
    if acls:
        created = await broker.call(ApiKey.CREATE_ACLS, 3, **make.new_acls(*parse_acls(acls)))
        assert all(result.error_code == ErrorCode.NONE for result in created.results)
    broker.connection.principal = user


@asynccontextmanager
async def guarded(path: Path, **config: str) -> AsyncIterator[tuple[Broker, dict[str, UUID]]]:
    """Run a broker with an authorizer and the resources that the table is about; yields the topics' ids too."""
    more = {key.replace("_", "."): value for key, value in config.items()}
    async with running(path, config={**SETTINGS, **more}) as broker:
        as_user(broker, ADMIN)
        ids = {name: await broker.create_topic(name) for name in TOPICS}
        for key, version, fields in make.SETUP:
            response = await broker.call(key, version, **fields)
            await settle()
        opened = make.opened(response.producer_id, response.producer_epoch)
        await broker.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **opened)
        as_user(broker, USER)
        await permit(broker, "")
        yield broker, ids


def test_the_table(tmp_path: Path) -> None:
    """All rows on one broker: none of them changes what the others depend on."""

    async def main() -> None:
        async with guarded(tmp_path) as (broker, ids):
            for case in CASES:
                if case.key is ApiKey.DESCRIBE_ACLS:
                    await permit(broker, case.acls)
                else:
                    decide_by(broker, case.acls)
                response = await broker.call(case.key, case.version, **make.resolved(case.fields, ids))
                if (found := outcome(response, ids)) != case.outcome:
                    wrong.append(f"{case.label}: {found}, not {case.outcome}")

    wrong: list[str] = []
    asyncio.run(main())
    assert not wrong, "\n".join(wrong)


def test_every_api_of_brokers_is_in_the_table() -> None:
    in_table = {case.key for case in CASES}
    needed = {api.key for api in APIS.values() if ListenerType.BROKER in api.listeners}
    # Logins: there is no client yet whose permissions could be asked for.
    needed -= {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert needed == in_table, "add rows for the new APIs to tests/support/access_table.py"


def test_every_guard_denies_in_the_table() -> None:
    """Every API with a guard has a row that is denied, and one in which the denied part is less."""
    for api in APIS.values():
        if ListenerType.BROKER in api.listeners and not isinstance(api.guard, Unguarded):
            outcomes = {case.outcome for case in CASES if case.key == api.key}
            assert len(outcomes) > 1 or any("NO_" in each for each in outcomes), api.name


def run(path: Path, scene: Callable[[Broker, dict[str, UUID]], Coroutine[Any, Any, None]], **config: str) -> None:
    async def main() -> None:
        async with guarded(path, **config) as (broker, ids):
            await scene(broker, ids)

    asyncio.run(main())


def test_clients_without_a_login_are_a_principal_like_others(tmp_path: Path) -> None:
    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        broker.connection.principal = ANONYMOUS
        response = await broker.call(ApiKey.METADATA, 12, **make.metadata("mine"))
        assert outcome(response, ids) == "mine NO_TOPIC"

    run(tmp_path, scene)


def test_cached_metadata_is_not_shared_between_principals(tmp_path: Path) -> None:
    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        await permit(broker, "READ topic mine")
        fields = make.metadata(topics=None, include_topic_authorized_operations=True)
        for _ in range(2):
            as_user(broker, ADMIN)
            everything = outcome(await broker.call(ApiKey.METADATA, 12, **fields), ids)
            assert "mine 110111111000, mine ok, other 110111111000, other ok" in everything
            as_user(broker, USER)
            assert outcome(await broker.call(ApiKey.METADATA, 12, **fields), ids) == "mine 100001000, mine ok"

    run(tmp_path, scene)


def test_a_topic_is_created_with_the_permission_for_it(tmp_path: Path) -> None:
    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        for name, acls in (("new1", "WRITE topic new1, CREATE topic new1"), ("new2", "WRITE topic *, CREATE cluster")):
            await permit(broker, acls)
            fields = make.metadata(name, allow_auto_topic_creation=True)
            response = await broker.call(ApiKey.METADATA, 12, **fields)
            assert response.topics[0].error_code == ErrorCode.NONE
            assert name in broker.services.image.topics

    run(tmp_path, scene)


def test_a_fetch_session_remembers_denied_topics(tmp_path: Path) -> None:
    """The error comes back with each incremental fetch, and data as soon as an ACL allows it."""

    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        broker.append("other", b"v")
        await permit(broker, "READ topic mine")
        wanted = [make.fetched(topic="mine"), make.fetched(topic="other")]
        first = await broker.call(ApiKey.FETCH, 12, **make.fetch(wanted, session_epoch=0))
        assert outcome(first, ids) == "mine ok, ok, other NO_TOPIC"
        assert first.session_id

        async def again(epoch: int) -> Message:
            return await broker.call(
                ApiKey.FETCH, 12, **make.fetch([], session_id=first.session_id, session_epoch=epoch)
            )

        assert outcome(await again(1), ids) == "ok, other NO_TOPIC"
        await permit(broker, "READ topic *")
        allowed = await again(2)
        assert outcome(allowed, ids) == "ok, other ok"
        assert allowed.responses[0].partitions[0].records
        await permit(broker, "")
        assert outcome(await again(3), ids) == "mine NO_TOPIC, ok, other NO_TOPIC"

    run(tmp_path, scene)


def test_a_denied_topic_does_not_end_the_wait_of_others(tmp_path: Path) -> None:
    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        await permit(broker, "READ topic mine")
        wanted = [make.fetched(topic="mine"), make.fetched(topic="other")]
        waiting = broker.send(ApiKey.FETCH, 12, **make.fetch(wanted, max_wait_ms=20_000))
        assert isinstance(waiting, asyncio.Future)
        waiting.cancel()
        denied = broker.send(ApiKey.FETCH, 12, **make.fetch(wanted[1:], max_wait_ms=20_000))
        assert isinstance(denied, list), "nothing can end this wait"

    run(tmp_path, scene)


def test_a_produce_without_a_response_ends_the_connection(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: dict[str, UUID]) -> None:
        with pytest.raises(ProtocolError, match="TOPIC_AUTHORIZATION_FAILED"):
            broker.send(ApiKey.PRODUCE, 9, **(make.produce("mine") | {"acks": 0}))

    run(tmp_path, scene)


def test_requests_in_pieces_are_guarded_piece_by_piece(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: dict[str, UUID]) -> None:
        await permit(broker, "DESCRIBE topic mine")
        partitions = [Message(**{**make.LISTED, "partition_index": index}) for index in range(3 * ITEMS_PER_SLICE)]
        topics = [Message(name=name, partitions=partitions) for name in ("other", "mine", "other2")]
        answer = broker.send(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
        assert isinstance(answer, Held)
        reply = await answer
        assert reply is not None
        response = decode(ApiKey.LIST_OFFSETS, 7, reply)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [
            (name, 3 * ITEMS_PER_SLICE) for name in ("other", "mine", "other2")
        ]
        denied = {topic.name: {each.error_code for each in topic.partitions} for topic in response.topics}
        assert denied["other"] == denied["other2"] == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED not in denied["mine"]

    run(tmp_path, scene)


def test_denied_items_keep_their_place(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: dict[str, UUID]) -> None:
        await permit(broker, "DESCRIBE group b, DESCRIBE group d")
        response = await broker.call(
            ApiKey.DESCRIBE_GROUPS, 5, groups=list("abcde"), include_authorized_operations=False
        )
        assert [group.group_id for group in response.groups] == list("abcde")

    run(tmp_path, scene)


def test_pages_of_topics_do_not_tell_the_names_of_hidden_ones(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: dict[str, UUID]) -> None:
        as_user(broker, ADMIN)
        for name in ("a", "b", "c", "d"):
            await broker.create_topic(name)
        as_user(broker, USER)
        await permit(broker, "DESCRIBE topic a, DESCRIBE topic d")
        page = await broker.call(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, **(make.pages() | {"response_partition_limit": 1})
        )
        assert [topic.name for topic in page.topics] == ["a"]
        assert page.next_cursor.topic_name == "d"
        page = await broker.call(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            **(make.pages("a", "b", "c", "d") | {"cursor": Message(topic_name="b", partition_index=0)}),
        )
        assert [(topic.name, topic.error_code) for topic in page.topics] == [
            ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ("c", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ("d", ErrorCode.NONE),
        ]

    run(tmp_path, scene)


def test_a_pattern_matches_the_topics_that_its_member_may_see(tmp_path: Path) -> None:
    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        await permit(broker, "READ group new, DESCRIBE topic mine")
        joined = await broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **make.subscribed(regex=".*"))
        assert [topic.topic_id for topic in joined.assignment.topic_partitions] == [ids["mine"]]
        await permit(broker, "READ group new, DESCRIBE topic *")
        owned = [Message(topic_id=ids["mine"], partitions=[0])]
        beat = {**make.subscribed(), "member_epoch": joined.member_epoch, "topic_partitions": owned}
        beat["subscribed_topic_names"] = None
        more = await broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **beat)
        assert {topic.topic_id for topic in more.assignment.topic_partitions} >= set(ids.values())

    run(tmp_path, scene)


def test_groups_with_hidden_topics_are_not_described(tmp_path: Path) -> None:
    async def scene(broker: Broker, ids: dict[str, UUID]) -> None:
        await permit(broker, "READ group new, DESCRIBE topic *")
        await broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **make.subscribed("mine", "other"))
        wanted = {"group_ids": ["new"], "include_authorized_operations": True}
        for acls, expected in (
            ("DESCRIBE group new, DESCRIBE topic *", "new 100000000, new ok"),
            ("DESCRIBE group new, DESCRIBE topic mine", "new NO_TOPIC"),
        ):
            await permit(broker, acls)
            response = await broker.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **wanted)
            assert outcome(response, ids).split(", new/")[0] == expected

    run(tmp_path, scene)


# Controllers


def controller_with(*acls: str, is_loaded: bool = True) -> ControllerNode:
    authorizer = Authorizer(super_users=(f"User:{ADMIN}",))
    if is_loaded:
        authorizer.load({UUID(int=number): acl for number, acl in enumerate(parse_acls(", ".join(acls)))})
    node = ControllerNode(access=Access(authorizer))
    node.connection.principal = Principal("User", USER)
    return node


_HEARTBEAT = {
    "broker_id": 1,
    "broker_epoch": 1,
    "current_metadata_offset": 1,
    "want_fence": False,
    "want_shut_down": False,
}
_VOTE: dict[str, Any] = {"cluster_id": None, "topics": [], "voter_id": 1}
BETWEEN_NODES: list[tuple[ApiKey, dict[str, Any]]] = [
    (ApiKey.VOTE, _VOTE),
    (ApiKey.BROKER_HEARTBEAT, _HEARTBEAT),
    (ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": 1, "broker_epoch": 1}),
    (ApiKey.ENVELOPE, {"request_data": b"", "request_principal": None, "client_host_address": bytes(4)}),
    (ApiKey.FETCH, make.fetch([])),
]


@pytest.mark.parametrize(("key", "fields"), BETWEEN_NODES, ids=lambda value: getattr(value, "name", ""))
def test_requests_between_nodes_need_the_permission_for_the_cluster(key: ApiKey, fields: dict[str, Any]) -> None:
    async def main() -> None:
        node = controller_with("ALTER cluster")
        response = await node.call(key, APIS[key].versions[-1], **fields)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not node.controller.calls
        assert not node.quorum.received

    asyncio.run(main())


def test_a_controller_describes_controllers_to_operators_only() -> None:
    async def main() -> None:
        fields = {**make.cluster(), "endpoint_type": 2}
        refused = await controller_with("DESCRIBE cluster").call(ApiKey.DESCRIBE_CLUSTER, 1, **fields)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allowed = await controller_with("ALTER cluster").call(ApiKey.DESCRIBE_CLUSTER, 1, **fields)
        assert allowed.error_code == ErrorCode.NONE

    asyncio.run(main())


def envelope(user: str) -> dict[str, Any]:
    frame = request_frame(ApiKey.CREATE_PARTITIONS, 2, **make.more_partitions("mine", "other"))
    return {
        "request_data": bytes(frame),
        "request_principal": encode_principal(Principal("User", user)),
        "client_host_address": bytes((10, 0, 0, 1)),
    }


def test_a_forwarded_request_is_decided_for_the_client_that_sent_it() -> None:
    async def main() -> None:
        node = controller_with("ALTER topic mine")
        node.controller.results["create_partitions"] = lambda topics, **_: [
            ChangedTopic(topic.name, Outcome(ErrorCode.NONE)) for topic in topics
        ]
        node.connection.principal = Principal("User", ADMIN)
        for user, expected in ((USER, "mine ok, other NO_TOPIC"), (ADMIN, "mine ok, other ok")):
            response = await node.call(ApiKey.ENVELOPE, 0, **envelope(user))
            assert response.error_code == ErrorCode.NONE
            data = response.response_data
            _, position = parse_response_header(ApiKey.CREATE_PARTITIONS, 2, data)
            assert outcome(decode_response(ApiKey.CREATE_PARTITIONS, 2, data, position), {}) == expected

    asyncio.run(main())


def test_a_node_may_send_requests_to_itself() -> None:
    async def main() -> None:
        node = controller_with()
        node.quorum.responses[ApiKey.VOTE] = Message(error_code=0, topics=[], node_endpoints=[])
        link = ActiveControllerLink(node_id=1, leader=lambda: 1, local=node.dispatcher.handle)
        response = await link.send(ApiKey.VOTE, VoteRequest(cluster_id=None, topics=[], voter_id=1), timeout_s=5)
        assert response.error_code == ErrorCode.NONE

    asyncio.run(main())


def test_before_the_acls_are_loaded_only_super_users_are_decided_about() -> None:
    async def main() -> None:
        node = controller_with(is_loaded=False)
        response = await node.call(ApiKey.BROKER_HEARTBEAT, 0, **_HEARTBEAT)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        node.connection.principal = Principal("User", ADMIN)
        node.quorum.responses[ApiKey.VOTE] = Message(error_code=0, topics=[], node_endpoints=[])
        assert (await node.call(ApiKey.VOTE, 0, **_VOTE)).error_code == ErrorCode.NONE

    asyncio.run(main())


def test_without_an_authorizer_no_handler_is_wrapped() -> None:
    for api in APIS.values():
        for version in api.versions:
            route = routes(ListenerType.BROKER, is_guarded=False).get((api.key, version))
            if route is not None:
                assert route.handle_frame is api.handle_frame
                assert api.handle is None or route.handle is api.handle
