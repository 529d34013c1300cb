"""The rows of the access table about the cluster, its configuration and its users."""

from typing import Final
from uuid import UUID

from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.support import access_requests as make
from tests.support.access_cases import rows
from tests.support.access_requests import MINE, UNKNOWN_ID

_ADMIN = [
    *rows(
        ApiKey.CREATE_TOPICS,
        5,
        make.new_topics("new1", "new2"),
        ("ALTER cluster", "new1 NO_TOPIC, new2 NO_TOPIC"),
        ("CREATE topic new1", "new1 configs NO_TOPIC, new1 ok, new2 NO_TOPIC"),
        ("CREATE cluster", "new1 configs NO_TOPIC, new1 ok, new2 configs NO_TOPIC, new2 ok"),
        ("CREATE topic new*, DESCRIBE_CONFIGS topic new1", "new1 ok, new1/configs, new2 configs NO_TOPIC, new2 ok"),
        ("CREATE topic new*, ALTER_CONFIGS topic new*", "new1 ok, new1/configs, new2 ok, new2/configs"),
    ),
    *rows(
        ApiKey.CREATE_TOPICS,
        5,
        make.new_topics("new1", "__cluster_metadata", "mine"),
        (
            "CREATE topic mine",
            "__cluster_metadata INVALID_REQUEST, mine TOPIC_ALREADY_EXISTS, new1 NO_TOPIC",
        ),
    ),
    *rows(
        ApiKey.DELETE_TOPICS,
        5,
        {"topic_names": ["mine", "other", "absent"], "timeout_ms": 30_000},
        ("", "absent NO_TOPIC, mine NO_TOPIC, other NO_TOPIC"),
        ("DESCRIBE topic *", "absent UNKNOWN_TOPIC_OR_PARTITION, mine NO_TOPIC, other NO_TOPIC"),
        ("DELETE topic absent", "absent UNKNOWN_TOPIC_OR_PARTITION, mine NO_TOPIC, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.DELETE_TOPICS,
        6,
        make.deleted(make.with_id(MINE), make.with_id(UNKNOWN_ID), make.named("other"), make.named("absent")),
        ("", "absent NO_TOPIC, id:? UNKNOWN_TOPIC_ID, id:mine NO_TOPIC, other NO_TOPIC"),
        (
            "DESCRIBE topic *",
            "absent UNKNOWN_TOPIC_OR_PARTITION, id:? UNKNOWN_TOPIC_ID, mine NO_TOPIC, other NO_TOPIC",
        ),
    ),
    *rows(
        ApiKey.DELETE_TOPICS,
        6,
        make.deleted(make.named("absent"), make.named("missing")),
        ("DELETE cluster", "absent UNKNOWN_TOPIC_OR_PARTITION, missing UNKNOWN_TOPIC_OR_PARTITION"),
        ("DELETE topic absent", "absent UNKNOWN_TOPIC_OR_PARTITION, missing NO_TOPIC"),
    ),
    *rows(
        ApiKey.CREATE_PARTITIONS,
        2,
        make.more_partitions("mine", "other"),
        ("ALTER cluster", "mine NO_TOPIC, other NO_TOPIC"),
        ("ALTER topic mine", "mine ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        make.configs(*make.RESOURCES),
        ("", "1 NO_CLUSTER, g NO_GROUP, mine NO_TOPIC, other NO_TOPIC"),
        ("DESCRIBE_CONFIGS topic mine", "1 NO_CLUSTER, g NO_GROUP, mine ok, mine/configs, other NO_TOPIC"),
        ("ALTER_CONFIGS topic mine", "1 NO_CLUSTER, g NO_GROUP, mine ok, mine/configs, other NO_TOPIC"),
        ("DESCRIBE_CONFIGS cluster", "1 ok, g NO_GROUP, mine NO_TOPIC, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.ALTER_CONFIGS,
        1,
        make.altered(*make.RESOURCES[:2]),
        ("ALTER topic *", "mine NO_TOPIC, other NO_TOPIC"),
        ("ALTER_CONFIGS topic mine", "mine ok, other NO_TOPIC"),
        ("ALTER_CONFIGS cluster", "mine NO_TOPIC, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        make.altered((2, "mine"), (2, "other"), (32, "g")),
        ("", "g NO_GROUP, mine NO_TOPIC, other NO_TOPIC"),
        ("ALTER_CONFIGS topic mine", "g NO_GROUP, mine ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        make.altered((4, "")),
        ("ALTER cluster", "NO_CLUSTER"),
    ),
    *rows(ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": []}, ("", "")),
    *rows(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": []}, ("", "NO_CLUSTER"), ("DESCRIBE cluster", "ok")),
    *rows(
        ApiKey.ELECT_LEADERS,
        2,
        make.ELECTION,
        ("DESCRIBE cluster", "NO_CLUSTER, mine NO_CLUSTER"),
        ("ALTER cluster", "mine ELECTION_NOT_NEEDED, ok"),
    ),
    *rows(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        make.REASSIGNMENT,
        ("DESCRIBE cluster", "NO_CLUSTER, mine NO_CLUSTER"),
        ("ALTER cluster", "mine NO_REASSIGNMENT_IN_PROGRESS, ok"),
    ),
    *rows(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        make.REASSIGNMENTS,
        ("", "NO_CLUSTER"),
        ("DESCRIBE cluster", "ok"),
        ("ALTER cluster", "ok"),
    ),
    *rows(ApiKey.DESCRIBE_QUORUM, 0, make.QUORUM, ("", "NO_CLUSTER")),
    *rows(ApiKey.UPDATE_FEATURES, 1, make.FEATURES, ("DESCRIBE cluster", "NO_CLUSTER"), ("ALTER cluster", "ok")),
    *rows(
        ApiKey.UNREGISTER_BROKER,
        0,
        {"broker_id": 99},
        ("DESCRIBE cluster", "NO_CLUSTER"),
        ("ALTER cluster", "BROKER_ID_NOT_REGISTERED"),
    ),
    *rows(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        {"resource_types": [2]},
        ("DESCRIBE cluster", "NO_CLUSTER"),
    ),
    *rows(ApiKey.ADD_RAFT_VOTER, 0, make.VOTER, ("DESCRIBE cluster", "NO_CLUSTER")),
    *rows(
        ApiKey.REMOVE_RAFT_VOTER,
        0,
        {"cluster_id": None, "voter_id": 9, "voter_directory_id": UUID(int=9)},
        ("DESCRIBE cluster", "NO_CLUSTER"),
    ),
]

_USERS = [
    *rows(
        ApiKey.DESCRIBE_ACLS,
        3,
        vars(make.ANY_ACL),
        ("DESCRIBE topic *", "NO_CLUSTER"),
        ("DESCRIBE cluster", "kafka-cluster, ok"),
        ("ALTER cluster, READ topic mine", "kafka-cluster, mine, ok"),
    ),
    *rows(
        ApiKey.CREATE_ACLS,
        3,
        make.new_acls(make.ACL_OF_BOB),
        ("DESCRIBE cluster", "NO_CLUSTER"),
        ("ALTER cluster", "ok"),
    ),
    *rows(
        ApiKey.DELETE_ACLS,
        3,
        make.deleted_acls("User:absent"),
        ("DESCRIBE cluster", "NO_CLUSTER"),
        ("ALTER cluster", "ok"),
    ),
    # In this order: a client sees the tokens that it has created.
    *rows(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        3,
        {"owners": None},
        ("ALL cluster", "ok"),
        ("DESCRIBE_TOKENS user User:admin", "admin, ok"),
        ("DESCRIBE delegation_token *", "admin, ok"),
    ),
    *rows(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        make.token_of("bob"),
        ("ALL cluster", "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
        ("CREATE_TOKENS user User:bob", "ok"),
    ),
    *rows(ApiKey.CREATE_DELEGATION_TOKEN, 3, make.token_of("alice"), ("", "ok")),
    *rows(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None}, ("", "alice, bob, ok")),
    *rows(
        ApiKey.RENEW_DELEGATION_TOKEN,
        2,
        {"hmac": b"x", "renew_period_ms": 1000},
        ("", "DELEGATION_TOKEN_NOT_FOUND"),
    ),
    *rows(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        2,
        {"hmac": b"x", "expiry_time_period_ms": 1000},
        ("", "DELEGATION_TOKEN_NOT_FOUND"),
    ),
    *rows(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [], "strict": False},
        ("DESCRIBE cluster", "NO_CLUSTER"),
        ("DESCRIBE_CONFIGS cluster", "ok"),
    ),
    *rows(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        make.CHANGED_QUOTAS,
        ("ALTER cluster", "NO_CLUSTER"),
        ("ALTER_CONFIGS cluster", "ok"),
    ),
    *rows(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": [Message(name="bob")]},
        ("", "NO_CLUSTER"),
        ("DESCRIBE cluster", "bob RESOURCE_NOT_FOUND, ok"),
    ),
    *rows(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        make.REMOVED_USER,
        ("DESCRIBE cluster", "bob NO_CLUSTER"),
        ("ALTER cluster", "bob RESOURCE_NOT_FOUND"),
    ),
]


ADMIN_CASES: Final = (*_ADMIN, *_USERS)
