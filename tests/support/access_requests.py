"""Requests about two topics, a group and a transactional id, for the tables of access tests."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch
from rookery.security.acls import AclBinding, ResourcePattern

NO_EPOCH: Final = -1
UNKNOWN_ID: Final = UUID(int=77)


class TopicIdOf(NamedTuple):
    """Stands for the id of a topic in the fields of a request."""

    name: str


MINE, OTHER = TopicIdOf("mine"), TopicIdOf("other")


def resolved(value: Any, ids: Mapping[str, UUID]) -> Any:
    """Return the fields of a request with the ids of topics in place of `TopicIdOf`."""
    if isinstance(value, TopicIdOf):
        return ids[value.name]
    if isinstance(value, Message):
        return Message(**{name: resolved(each, ids) for name, each in vars(value).items()})
    if isinstance(value, list):
        return [resolved(each, ids) for each in value]
    if isinstance(value, Mapping):
        return {name: resolved(each, ids) for name, each in value.items()}
    return value


def batch(*, is_transactional: bool = False) -> bytes:
    records = [Record(0, 1_700_000_000_000, b"k", b"v")]
    if is_transactional:
        return bytes(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True))
    return bytes(build_batch(records))


def produce(*topics: str, transactional_id: str | None = None, is_transactional: bool = False) -> dict[str, Any]:
    records = batch(is_transactional=is_transactional)
    data = [Message(name=name, partition_data=[Message(index=0, records=records)]) for name in topics]
    return {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 30_000, "topic_data": data}


def produce_by_id(*ids: TopicIdOf | UUID) -> dict[str, Any]:
    data = [Message(topic_id=each, partition_data=[Message(index=0, records=batch())]) for each in ids]
    return {"transactional_id": None, "acks": 1, "timeout_ms": 30_000, "topic_data": data}


def fetch(topics: Sequence[Message], **more: Any) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": list(topics),
        "forgotten_topics_data": [],
        "rack_id": "",
        **more,
    }


def fetched(**topic: Any) -> Message:
    return Message(
        **topic,
        partitions=[
            Message(
                partition=0,
                current_leader_epoch=NO_EPOCH,
                fetch_offset=0,
                last_fetched_epoch=NO_EPOCH,
                log_start_offset=-1,
                partition_max_bytes=1000,
            )
        ],
    )


def topics(*names: str, partition: Mapping[str, Any] | None = None) -> list[Message]:
    inner = [Message(**partition)] if partition is not None else [0]
    return [Message(name=name, partitions=inner) for name in names]


LISTED: Final = {"partition_index": 0, "current_leader_epoch": NO_EPOCH, "timestamp": -1}
COMMITTED: Final = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": NO_EPOCH,
    "committed_metadata": "",
}
BOTH: Final = ("mine", "other")


def commit(**more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": topics(*BOTH, partition=COMMITTED),
        **more,
    }


def commit_by_id() -> dict[str, Any]:
    ids = (TopicIdOf("mine"), TopicIdOf("other"), UNKNOWN_ID)
    return commit(topics=[Message(topic_id=each, partitions=[Message(**COMMITTED)]) for each in ids])


def fetch_offsets(*groups: str, topics: list[Message] | None) -> dict[str, Any]:
    return {
        "groups": [Message(group_id=group, member_id=None, member_epoch=-1, topics=topics) for group in groups],
        "require_stable": False,
    }


INDEXES: Final = [Message(name=name, partition_indexes=[0]) for name in BOTH]
INDEXES_BY_ID: Final = [
    Message(topic_id=each, partition_indexes=[0]) for each in (TopicIdOf("mine"), TopicIdOf("other"), UNKNOWN_ID)
]
JOIN: Final = {
    "group_id": "g",
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 6000,
    "member_id": "unknown",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [Message(name="range", metadata=b"")],
    "reason": None,
}
SYNC: Final = {
    "group_id": "g",
    "generation_id": 1,
    "member_id": "unknown",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "assignments": [],
}
BEAT: Final = {"group_id": "g", "generation_id": 1, "member_id": "unknown", "group_instance_id": None}
LEAVE: Final = {"group_id": "g", "members": [Message(member_id="unknown", group_instance_id=None, reason=None)]}


def metadata(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "topics": [Message(name=name, topic_id=UUID(int=0)) for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
        **more,
    }


METADATA_BY_ID: Final = metadata(
    topics=[Message(name=None, topic_id=each) for each in (TopicIdOf("mine"), TopicIdOf("other"), UNKNOWN_ID)]
)
ALL_TOPICS: Final = metadata(topics=None)


def new_topics(*names: str) -> dict[str, Any]:
    topics = [Message(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names]
    return {"topics": topics, "timeout_ms": 30_000, "validate_only": True}


def deleted(*topics: Message) -> dict[str, Any]:
    return {"topics": list(topics), "timeout_ms": 30_000}


def named(name: str) -> Message:
    return Message(name=name, topic_id=UUID(int=0))


def with_id(topic_id: TopicIdOf | UUID) -> Message:
    return Message(name=None, topic_id=topic_id)


def deleted_records() -> dict[str, Any]:
    return {"topics": topics(*BOTH, partition={"partition_index": 0, "offset": 0}), "timeout_ms": 30_000}


def init(transactional_id: str | None, **more: Any) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
        **more,
    }


EPOCHS: Final = {
    "replica_id": -2,
    "topics": [
        Message(topic=name, partitions=[Message(partition=0, current_leader_epoch=NO_EPOCH, leader_epoch=0)])
        for name in BOTH
    ],
}


def added(*names: str) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_producer_id": 123_456,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": topics(*names),
    }


VERIFIED: Final = {
    "transactions": [
        Message(transactional_id="t", producer_id=123_456, producer_epoch=0, verify_only=True, topics=topics("mine"))
    ]
}
MARKERS: Final = {
    "markers": [
        Message(
            producer_id=123_456,
            producer_epoch=0,
            transaction_result=True,
            topics=[Message(name="absent", partition_indexes=[0])],
            coordinator_epoch=0,
        )
    ]
}


def txn_commit() -> dict[str, Any]:
    return {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": 123_456,
        "producer_epoch": 0,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": topics("absent", "other", partition=COMMITTED),
    }


def configs(*resources: tuple[int, str]) -> dict[str, Any]:
    return {
        "resources": [
            Message(resource_type=kind, resource_name=name, configuration_keys=["cleanup.policy"])
            for kind, name in resources
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }


RESOURCES: Final = ((2, "mine"), (2, "other"), (4, "1"), (32, "g"))


def altered(*resources: tuple[int, str]) -> dict[str, Any]:
    configs = [Message(name="retention.ms", config_operation=0, value="1000")]
    return {
        "resources": [Message(resource_type=kind, resource_name=name, configs=configs) for kind, name in resources],
        "validate_only": True,
    }


def more_partitions(*names: str) -> dict[str, Any]:
    topics = [Message(name=name, count=2, assignments=None) for name in names]
    return {"topics": topics, "timeout_ms": 30_000, "validate_only": True}


ELECTION: Final = {
    "election_type": 0,
    "topic_partitions": [Message(topic="mine", partitions=[0])],
    "timeout_ms": 30_000,
}
REASSIGNMENT: Final = {
    "timeout_ms": 30_000,
    "topics": [Message(name="mine", partitions=[Message(partition_index=0, replicas=None)])],
}
REASSIGNMENTS: Final = {"timeout_ms": 30_000, "topics": None}
DELETED_OFFSETS: Final = {"group_id": "g", "topics": topics("absent", "other", partition={"partition_index": 0})}
QUORUM: Final = {
    "topics": [Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])],
}
FEATURES: Final = {"timeout_ms": 30_000, "feature_updates": [], "validate_only": True}


def cluster(*, operations: bool = True) -> dict[str, Any]:
    return {
        "include_cluster_authorized_operations": operations,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    }


def subscribed(*names: str, regex: str | None = None, member: str = "member-1") -> dict[str, Any]:
    return {
        "group_id": "new",
        "member_id": member,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 6000,
        "subscribed_topic_names": list(names),
        "subscribed_topic_regex": regex,
        "server_assignor": None,
        "topic_partitions": [],
    }


def pages(*names: str) -> dict[str, Any]:
    return {"topics": [Message(name=name) for name in names], "response_partition_limit": 100, "cursor": None}


VOTER: Final = {
    "cluster_id": None,
    "timeout_ms": 1000,
    "voter_id": 9,
    "voter_directory_id": UUID(int=9),
    "listeners": [Message(name="CONTROLLER", host="localhost", port=1)],
}


ANY_ACL: Final = Message(
    resource_type_filter=AclResourceType.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=AclOperation.ANY,
    permission_type=AclPermission.ANY,
)


def new_acls(*acls: AclBinding) -> dict[str, Any]:
    return {
        "creations": [
            Message(
                resource_type=acl.pattern.type,
                resource_name=acl.pattern.name,
                resource_pattern_type=acl.pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    }


ACL_OF_BOB: Final = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "bobs"), "User:bob", "*", AclOperation.READ, AclPermission.ALLOW
)


def deleted_acls(principal: str | None = None) -> dict[str, Any]:
    return {"filters": [Message(**{**vars(ANY_ACL), "principal_filter": principal})]}


def token_of(owner: str) -> dict[str, Any]:
    return {
        "owner_principal_type": "User",
        "owner_principal_name": owner,
        "renewers": [],
        "max_lifetime_ms": -1,
    }


CHANGED_QUOTAS: Final = {
    "entries": [
        Message(
            entity=[Message(entity_type="user", entity_name="bob")],
            ops=[Message(key="producer_byte_rate", value=1000.0, remove=False)],
        )
    ],
    "validate_only": True,
}
REMOVED_USER: Final = {"deletions": [Message(name="bob", mechanism=1)], "upsertions": []}


def _of_admin(transactional_id: str, producer_id: int = -1) -> dict[str, Any]:
    return init(transactional_id, producer_id=producer_id) | {"transaction_timeout_ms": 900_000}


# What a super user sends before the requests of the table, in order. Topics exist already.
SETUP: Final[tuple[tuple[ApiKey, int, Mapping[str, Any]], ...]] = (
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["t"]}),
    (ApiKey.CREATE_DELEGATION_TOKEN, 3, token_of("admin")),
    (ApiKey.OFFSET_COMMIT, 8, commit()),
    (ApiKey.OFFSET_COMMIT, 8, commit(group_id="h")),
    *((ApiKey.INIT_PRODUCER_ID, 4, _of_admin(each)) for each in ("t", "u", "open")),
)


def opened(producer_id: int, producer_epoch: int) -> dict[str, Any]:
    """Return the request that begins the transaction `open`, after its InitProducerId."""
    return {
        "v3_and_below_transactional_id": "open",
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": producer_epoch,
        "v3_and_below_topics": topics(*BOTH),
    }
