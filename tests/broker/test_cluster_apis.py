"""The APIs between nodes, and those of operators for clusters: every version, with fakes of controller and quorum."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.codes import ElectionType
from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.metadata.records import BrokerEndpoint, BrokerFeature
from rookery.metadata.requests import (
    OK,
    AlteredPartition,
    AlteredPartitions,
    AssignedReplica,
    AssignedReplicas,
    BrokerHeartbeat,
    ControllerRegistration,
    HeartbeatReply,
    OngoingReassignment,
    Outcome,
    PartitionAlteration,
    PartitionOutcome,
    ProducerIdBlock,
    Reassignment,
    Registered,
    Registration,
)
from rookery.protocol.api import SERVED_BY_CONTROLLERS, ApiKey
from rookery.protocol.codec import request_shape, response_shape
from rookery.protocol.message import Message
from tests.broker.cluster import ControllerNode
from tests.broker.harness import CLUSTER_ID, NODE_ID, running, versions
from tests.protocol.test_messages import sample
from tests.support.apis import CLUSTER_APIS, SECURITY_APIS

TOPIC, DIRECTORY, INCARNATION = UUID(int=5), UUID(int=6), UUID(int=7)
QUORUM_APIS = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
Check = Callable[[ControllerNode, int], Awaitable[None]]
CHECKS: dict[ApiKey, Check] = {}


def check(api_key: ApiKey) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS[api_key] = function
        return function

    return register


def controller_versions(*keys: ApiKey) -> list[Any]:
    return [
        pytest.param(key, version, id=f"{key.name}-v{version}")
        for key in keys
        for version in range(SERVED_BY_CONTROLLERS[key].minimum, SERVED_BY_CONTROLLERS[key].maximum + 1)
    ]


def only_call(node: ControllerNode) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    (call,) = node.controller.calls
    return call


@pytest.mark.parametrize(("api_key", "version"), controller_versions(*QUORUM_APIS))
def test_requests_of_the_quorum_are_passed_on(api_key: ApiKey, version: int) -> None:
    async def main() -> None:
        node = ControllerNode()
        request, response = sample(request_shape(api_key, version)), sample(response_shape(api_key, version))
        node.quorum.responses[api_key] = response
        answer = await node.call(api_key, version, **vars(request))
        response.__dict__.pop("throttle_time_ms", None)
        assert answer == Message(**vars(answer) | vars(response))
        ((received_key, received),) = node.quorum.received
        assert received_key is api_key
        assert received == request

    asyncio.run(main())


@pytest.mark.parametrize(("api_key", "version"), controller_versions(*(key for key in SERVED_BY_CONTROLLERS)))
def test_every_api_of_the_cluster_in_every_version(api_key: ApiKey, version: int) -> None:
    if api_key not in CHECKS:
        assert api_key in (
            *QUORUM_APIS,
            ApiKey.API_VERSIONS,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ENVELOPE,
            # The handlers are those of a broker's listener.
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            # These have tests with a real controller.
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.UPDATE_FEATURES,
            *SECURITY_APIS,
        )
        return

    asyncio.run(_run(CHECKS[api_key], version))


async def _run(function: Check, version: int) -> None:
    await function(ControllerNode(), version)


def test_the_apis_left_out_elsewhere_are_tested_here() -> None:
    assert CHECKS.keys() | set(QUORUM_APIS) >= CLUSTER_APIS


@check(ApiKey.ELECT_LEADERS)
async def check_elect_leaders(node: ControllerNode, version: int) -> None:
    failed = Outcome(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no leader")
    node.controller.results["elect_leaders"] = [PartitionOutcome("t", 0, OK), PartitionOutcome("t", 3, failed)]
    response = await node.call(
        ApiKey.ELECT_LEADERS,
        version,
        election_type=1,
        topic_partitions=[Message(topic="t", partitions=[0, 3])],
        timeout_ms=60_000,
    )
    election = ElectionType.UNCLEAN if version >= 1 else ElectionType.PREFERRED
    assert only_call(node) == ("elect_leaders", (election, [("t", 0), ("t", 3)]), {})
    ((topic,),) = (response.replica_election_results,)
    assert response.get("error_code", 0) == 0
    assert [(each.partition_id, each.error_code, each.error_message) for each in topic.partition_result] == [
        (0, 0, None),
        (3, failed.code, "no leader"),
    ]


@check(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def check_alter_reassignments(node: ControllerNode, version: int) -> None:
    failed = Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    node.controller.results["alter_reassignments"] = [PartitionOutcome("t", 0, OK), PartitionOutcome("u", 1, failed)]
    response = await node.call(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout_ms=60_000,
        allow_replication_factor_change=False,
        topics=[
            Message(name="t", partitions=[Message(partition_index=0, replicas=[1, 2])]),
            Message(name="u", partitions=[Message(partition_index=1, replicas=None)]),
        ],
    )
    name, (reassignments,), options = only_call(node)
    assert name == "alter_reassignments"
    assert reassignments == [Reassignment("t", 0, (1, 2)), Reassignment("u", 1, None)]
    assert options == {"allow_factor_change": version < 1}
    assert response.error_code == 0
    assert [(topic.name, topic.partitions[0].error_code) for topic in response.responses] == [
        ("t", 0),
        ("u", failed.code),
    ]


@check(ApiKey.LIST_PARTITION_REASSIGNMENTS)
async def check_list_reassignments(node: ControllerNode, version: int) -> None:
    node.controller.results["list_reassignments"] = [OngoingReassignment("t", 0, (1, 2, 3), (3,), (1,))]
    response = await node.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, timeout_ms=60_000, topics=None)
    topics = [Message(name="t", partition_indexes=[0, 1])]
    await node.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, timeout_ms=60_000, topics=topics)
    assert [arguments for _, arguments, _ in node.controller.calls] == [(None,), ([("t", 0), ("t", 1)],)]
    (partition,) = response.topics[0].partitions
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ([1, 2, 3], [3], [1])


@check(ApiKey.ALTER_PARTITION)
async def check_alter_partition(node: ControllerNode, version: int) -> None:
    altered = [
        AlteredPartition(topic_id=TOPIC, index=0, leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=9),
        AlteredPartition(topic_id=TOPIC, index=1, code=ErrorCode.INELIGIBLE_REPLICA),
    ]
    node.controller.results["alter_partitions"] = AlteredPartitions(OK, altered)
    members = {"new_isr": [1, 2], "new_isr_with_epochs": [Message(broker_id=n, broker_epoch=n + 10) for n in (1, 2)]}
    response = await node.call(
        ApiKey.ALTER_PARTITION,
        version,
        broker_id=1,
        broker_epoch=11,
        topics=[
            Message(
                topic_id=TOPIC,
                partitions=[
                    Message(partition_index=n, leader_epoch=4, leader_recovery_state=0, partition_epoch=8, **members)
                    for n in (0, 1)
                ],
            )
        ],
    )
    _, (node_id, broker_epoch, alterations), _ = only_call(node)
    assert (node_id, broker_epoch) == (1, 11)
    assert alterations[0] == PartitionAlteration(
        topic_id=TOPIC,
        index=0,
        leader_epoch=4,
        partition_epoch=8,
        isr=((1, 11), (2, 12)) if version >= 3 else ((1, -1), (2, -1)),
    )
    first, second = response.topics[0].partitions
    assert (first.error_code, first.leader_id, first.isr, first.partition_epoch) == (0, 1, [1, 2], 9)
    assert second.error_code == ErrorCode.INELIGIBLE_REPLICA


@check(ApiKey.BROKER_REGISTRATION)
async def check_broker_registration(node: ControllerNode, version: int) -> None:
    node.controller.results["register_broker"] = Registered(OK, 42)
    response = await node.call(
        ApiKey.BROKER_REGISTRATION,
        version,
        broker_id=2,
        cluster_id=CLUSTER_ID,
        incarnation_id=INCARNATION,
        listeners=[Message(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[Message(name="metadata.version", min_supported_version=7, max_supported_version=22)],
        rack="r",
        log_dirs=[DIRECTORY],
        previous_broker_epoch=17,
    )
    _, (registration,), _ = only_call(node)
    assert registration == Registration(
        node_id=2,
        cluster_id=CLUSTER_ID,
        incarnation_id=INCARNATION,
        endpoints=(BrokerEndpoint("PLAINTEXT", "h", 9092, 0),),
        features=(BrokerFeature("metadata.version", 7, 22),),
        rack="r",
        log_directories=(DIRECTORY,) if version >= 2 else (),
        previous_broker_epoch=17 if version >= 3 else -1,
    )
    assert (response.error_code, response.broker_epoch) == (0, 42)


@check(ApiKey.BROKER_HEARTBEAT)
async def check_broker_heartbeat(node: ControllerNode, version: int) -> None:
    node.controller.results["heartbeat"] = HeartbeatReply(OK, True, False, True)
    response = await node.call(
        ApiKey.BROKER_HEARTBEAT,
        version,
        broker_id=2,
        broker_epoch=42,
        current_metadata_offset=50,
        want_fence=False,
        want_shut_down=True,
        offline_log_dirs=[DIRECTORY],
        cordoned_log_dirs=[TOPIC],
    )
    _, (heartbeat,), _ = only_call(node)
    assert heartbeat == BrokerHeartbeat(
        node_id=2,
        broker_epoch=42,
        metadata_offset=50,
        wants_shut_down=True,
        offline_directories=(DIRECTORY,) if version >= 1 else (),
        cordoned_directories=(TOPIC,) if version >= 2 else None,
    )
    assert (response.is_caught_up, response.is_fenced, response.should_shut_down) == (True, False, True)


@check(ApiKey.UNREGISTER_BROKER)
async def check_unregister_broker(node: ControllerNode, version: int) -> None:
    node.controller.results["unregister_broker"] = Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED, "unknown")
    response = await node.call(ApiKey.UNREGISTER_BROKER, version, broker_id=2)
    assert only_call(node) == ("unregister_broker", (2,), {})
    assert (response.error_code, response.error_message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "unknown")


@check(ApiKey.ALLOCATE_PRODUCER_IDS)
async def check_allocate_producer_ids(node: ControllerNode, version: int) -> None:
    node.controller.results["allocate_producer_ids"] = ProducerIdBlock(OK, 2000, 1000)
    response = await node.call(ApiKey.ALLOCATE_PRODUCER_IDS, version, broker_id=2, broker_epoch=42)
    assert only_call(node) == ("allocate_producer_ids", (2, 42), {})
    assert (response.error_code, response.producer_id_start, response.producer_id_len) == (0, 2000, 1000)


@check(ApiKey.CONTROLLER_REGISTRATION)
async def check_controller_registration(node: ControllerNode, version: int) -> None:
    node.controller.results["register_controller"] = OK
    response = await node.call(
        ApiKey.CONTROLLER_REGISTRATION,
        version,
        controller_id=3,
        incarnation_id=INCARNATION,
        zk_migration_ready=False,
        listeners=[Message(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
        features=[Message(name="kraft.version", min_supported_version=0, max_supported_version=1)],
    )
    _, (registration,), _ = only_call(node)
    assert registration == ControllerRegistration(
        node_id=3,
        incarnation_id=INCARNATION,
        endpoints=(BrokerEndpoint("CONTROLLER", "h", 9093, 0),),
        features=(BrokerFeature("kraft.version", 0, 1),),
    )
    assert response.error_code == 0


@check(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
async def check_assign_replicas(node: ControllerNode, version: int) -> None:
    codes = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    node.controller.results["assign_replicas"] = AssignedReplicas(OK, codes)
    partitions = [Message(partition_index=0), Message(partition_index=1)]
    directories = [Message(id_=DIRECTORY, topics=[Message(topic_id=TOPIC, partitions=partitions)])]
    fields = {"broker_id": 2, "broker_epoch": 42, "directories": directories}
    response = await node.call(ApiKey.ASSIGN_REPLICAS_TO_DIRS, version, **fields)
    replicas = [AssignedReplica(directory=DIRECTORY, topic_id=TOPIC, index=n) for n in (0, 1)]
    assert only_call(node) == ("assign_replicas", (2, 42, replicas), {})
    (topic,) = response.directories[0].topics
    assert [partition.error_code for partition in topic.partitions] == codes
    node.controller.results["assign_replicas"] = AssignedReplicas(Outcome(ErrorCode.STALE_BROKER_EPOCH))
    response = await node.call(ApiKey.ASSIGN_REPLICAS_TO_DIRS, version, **fields)
    assert (response.error_code, response.directories) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_the_controller_hears_of_a_lost_connection() -> None:
    async def main() -> None:
        node = ControllerNode()
        fields = {"current_metadata_offset": 1, "want_fence": False, "want_shut_down": False}
        rejected = HeartbeatReply(Outcome(ErrorCode.STALE_BROKER_EPOCH))
        for reply, is_watched in ((rejected, False), (HeartbeatReply(OK), True)):
            node.controller.results["heartbeat"] = reply
            await node.call(ApiKey.BROKER_HEARTBEAT, 0, broker_id=2, broker_epoch=42, **fields)
            assert (node.connection.on_lost is not None) == is_watched
        assert node.connection.on_lost is not None
        node.connection.on_lost()
        assert node.controller.lost == [2]

    asyncio.run(main())


def test_a_broker_alone(tmp_path: Path) -> None:
    """With a real controller and quorum."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            quorum = await broker.call(
                ApiKey.DESCRIBE_QUORUM,
                2,
                topics=[Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])],
            )
            (partition,) = quorum.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
            assert [voter.replica_id for voter in partition.current_voters] == [NODE_ID]
            elected = await broker.call(
                ApiKey.ELECT_LEADERS,
                2,
                election_type=0,
                topic_partitions=[Message(topic="orders", partitions=[0])],
                timeout_ms=60_000,
            )
            (result,) = elected.replica_election_results[0].partition_result
            assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED
            moves = await broker.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=60_000)
            assert (moves.error_code, moves.topics) == (0, [])
            cancelled = Message(name="orders", partitions=[Message(partition_index=0, replicas=None)])
            altered = await broker.call(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                1,
                topics=[cancelled],
                timeout_ms=60_000,
                allow_replication_factor_change=True,
            )
            assert altered.responses[0].partitions[0].error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            removed = await broker.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=99)
            assert removed.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    asyncio.run(main())


def test_an_inactive_controller_says_so() -> None:
    async def main() -> None:
        node = ControllerNode()
        node.controller.is_active = False
        response = await node.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        topic = Message(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        response = await node.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=60_000, validate_only=False)
        assert [(each.name, each.error_code) for each in response.topics] == [("t", ErrorCode.NOT_CONTROLLER)]
        response = await node.call(
            ApiKey.ELECT_LEADERS, 0, topic_partitions=[Message(topic="t", partitions=[3])], timeout_ms=1
        )
        (partition,) = response.replica_election_results[0].partition_result
        assert (partition.partition_id, partition.error_code) == (3, ErrorCode.NOT_CONTROLLER)

    asyncio.run(main())


def test_other_errors_of_the_controller_are_responses() -> None:
    async def main() -> None:
        node = ControllerNode()
        node.controller.results["list_reassignments"] = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
        response = await node.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=60_000, topics=None)
        assert (response.error_code, response.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "no disk")

    asyncio.run(main())


@pytest.mark.parametrize("api_key", [ApiKey.ELECT_LEADERS, ApiKey.LIST_PARTITION_REASSIGNMENTS])
def test_a_decision_that_takes_too_long(api_key: ApiKey) -> None:
    async def forever(*_: object) -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        node = ControllerNode()
        name = {ApiKey.ELECT_LEADERS: "elect_leaders"}.get(api_key, "list_reassignments")
        node.controller.__dict__[name] = forever
        fields = {"topics": None, "topic_partitions": None, "election_type": 0}
        response = await node.call(api_key, SERVED_BY_CONTROLLERS[api_key].maximum, timeout_ms=1, **fields)
        assert response.error_code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(main())


def test_an_unknown_election_type() -> None:
    async def main() -> None:
        response = await ControllerNode().call(
            ApiKey.ELECT_LEADERS, 2, election_type=9, topic_partitions=[], timeout_ms=1
        )
        assert response.error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(main())


def test_controllers_do_not_serve_clients() -> None:
    async def main() -> None:
        with pytest.raises(ProtocolError, match="not served"):
            await ControllerNode().call(ApiKey.LIST_GROUPS, 3)

    asyncio.run(main())


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_api_versions_of_a_controller(version: int) -> None:
    async def main() -> None:
        response = await ControllerNode().call(
            ApiKey.API_VERSIONS, version, client_software_name="a", client_software_version="1"
        )
        assert {row.api_key: (row.min_version, row.max_version) for row in response.api_keys} == dict(
            SERVED_BY_CONTROLLERS
        )

    asyncio.run(main())


def test_describe_cluster_on_a_controller() -> None:
    async def main() -> None:
        node = ControllerNode(2, 1, 2, 3)
        fields = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        response = await node.call(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=2, **fields)
        assert (response.error_code, response.controller_id, response.endpoint_type) == (0, 2, 2)
        described = [(each.broker_id, each.host, each.port) for each in response.brokers]
        assert described == [(n, "controller", 9000 + n) for n in (1, 2, 3)]
        for version, endpoint_type, code in (
            (0, 1, ErrorCode.INVALID_REQUEST),
            (1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (2, 7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            response = await node.call(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=endpoint_type, **fields)
            assert (response.error_code, response.brokers) == (code, [])

    asyncio.run(main())
