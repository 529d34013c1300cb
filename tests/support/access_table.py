"""What each API answers with which ACLs: one table that Rookery and Apache Kafka must both agree with.

`tests.broker.test_access` sends the requests to Rookery, `tests.conformance.test_access_table` to both. What a super
user has created before is in `access_requests.SETUP`.
"""

from typing import Final

from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.support import access_requests as make
from tests.support.access_admin_table import ADMIN_CASES
from tests.support.access_cases import rows
from tests.support.access_requests import MINE, OTHER, UNKNOWN_ID

_TOPIC_BITS = "110111111000"

_RECORDS = [
    *rows(
        ApiKey.PRODUCE,
        9,
        make.produce("mine", "other"),
        ("", "mine NO_TOPIC, other NO_TOPIC"),
        ("WRITE topic mine", "mine ok, other NO_TOPIC"),
        ("READ topic mine, DESCRIBE topic *", "mine NO_TOPIC, other NO_TOPIC"),
        ("ALL topic m*, WRITE topic other, -WRITE topic o*", "mine ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.PRODUCE,
        9,
        make.produce("mine", "absent"),
        ("WRITE topic mine", "absent NO_TOPIC, mine ok"),
        ("WRITE topic *", "absent UNKNOWN_TOPIC_OR_PARTITION, mine ok"),
    ),
    *rows(
        ApiKey.PRODUCE,
        13,
        make.produce_by_id(MINE, OTHER, UNKNOWN_ID),
        ("WRITE topic mine", "id:? UNKNOWN_TOPIC_ID, id:mine ok, id:other NO_TOPIC"),
    ),
    *rows(
        ApiKey.PRODUCE,
        9,
        make.produce("mine", transactional_id="t", is_transactional=True),
        ("WRITE topic mine", "mine NO_TXN"),
        ("WRITE transactional_id t", "mine NO_TOPIC"),
    ),
    *rows(
        ApiKey.PRODUCE,
        9,
        make.produce("mine", is_transactional=True),
        ("WRITE topic mine, WRITE transactional_id *", "mine NO_TXN"),
    ),
    *rows(
        ApiKey.PRODUCE,
        9,
        make.produce("mine", transactional_id="t"),
        ("WRITE topic mine", "mine ok"),
    ),
    *rows(
        ApiKey.FETCH,
        12,
        make.fetch([make.fetched(topic="mine"), make.fetched(topic="other"), make.fetched(topic="absent")]),
        ("", "absent NO_TOPIC, mine NO_TOPIC, ok, other NO_TOPIC"),
        ("READ topic mine", "absent NO_TOPIC, mine ok, ok, other NO_TOPIC"),
        ("WRITE topic mine, READ topic a*", "absent UNKNOWN_TOPIC_OR_PARTITION, mine NO_TOPIC, ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.FETCH,
        13,
        make.fetch([make.fetched(topic_id=each) for each in (MINE, OTHER, UNKNOWN_ID)]),
        ("READ topic mine", "id:? UNKNOWN_TOPIC_ID, id:mine ok, id:other NO_TOPIC, ok"),
    ),
    *rows(
        ApiKey.FETCH,
        12,
        make.fetch([make.fetched(topic="mine")], replica_id=1),
        ("READ topic mine", "mine NO_TOPIC, ok"),
    ),
    *rows(
        ApiKey.LIST_OFFSETS,
        7,
        {"replica_id": -1, "isolation_level": 0, "topics": make.topics("mine", "other", partition=make.LISTED)},
        ("", "mine NO_TOPIC, other NO_TOPIC"),
        ("DESCRIBE topic mine", "mine ok, other NO_TOPIC"),
        ("READ topic *", "mine ok, other ok"),
    ),
    *rows(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        make.EPOCHS,
        ("", "mine NO_TOPIC, other NO_TOPIC"),
        ("DESCRIBE topic mine", "mine ok, other NO_TOPIC"),
        ("CLUSTER_ACTION cluster", "mine ok, other ok"),
    ),
    *rows(
        ApiKey.DELETE_RECORDS,
        2,
        make.deleted_records(),
        ("READ topic *, WRITE topic *", "mine NO_TOPIC, other NO_TOPIC"),
        ("DELETE topic mine", "mine ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [*make.INDEXES, Message(name="not/valid", partition_indexes=[0])]},
        ("", "mine NO_TOPIC, not/valid INVALID_TOPIC_EXCEPTION, other NO_TOPIC"),
        ("READ topic mine", "mine ok, not/valid INVALID_TOPIC_EXCEPTION, other NO_TOPIC"),
    ),
]

_METADATA = [
    *rows(
        ApiKey.METADATA,
        12,
        make.metadata("mine", "other", "absent"),
        ("", "absent NO_TOPIC, mine NO_TOPIC, other NO_TOPIC"),
        ("DESCRIBE topic mine", "absent NO_TOPIC, mine ok, other NO_TOPIC"),
        ("WRITE topic *", "absent UNKNOWN_TOPIC_OR_PARTITION, mine ok, other ok"),
    ),
    *rows(
        ApiKey.METADATA,
        12,
        make.METADATA_BY_ID,
        ("", "id:? UNKNOWN_TOPIC_ID, id:mine NO_TOPIC, id:other NO_TOPIC"),
        ("DESCRIBE topic mine", "id:? UNKNOWN_TOPIC_ID, id:other NO_TOPIC, mine ok"),
    ),
    *rows(ApiKey.METADATA, 12, make.ALL_TOPICS, ("", ""), ("DESCRIBE topic mine", "mine ok")),
    *rows(ApiKey.METADATA, 1, make.ALL_TOPICS, ("DESCRIBE topic mine", "mine ok")),
    *rows(ApiKey.METADATA, 0, make.metadata(), ("READ topic mine", "mine ok")),
    *rows(ApiKey.METADATA, 0, make.metadata("other"), ("READ topic mine", "other NO_TOPIC")),
    *rows(
        ApiKey.METADATA,
        12,
        make.metadata("created", allow_auto_topic_creation=True),
        ("DESCRIBE topic created", "created NO_TOPIC"),
        ("WRITE topic *", "created NO_TOPIC"),
    ),
    *rows(
        ApiKey.METADATA,
        10,
        make.metadata(
            "mine", "other", include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        ),
        ("", "0, mine NO_TOPIC, other NO_TOPIC"),
        ("READ topic mine", "0, mine 100001000, mine ok, other NO_TOPIC"),
        ("ALL topic mine, -WRITE topic mine", "0, mine 110111101000, mine ok, other NO_TOPIC"),
        ("ALL topic *", f"0, mine {_TOPIC_BITS}, mine ok, other {_TOPIC_BITS}, other ok"),
        ("DESCRIBE cluster", "100000000, mine NO_TOPIC, other NO_TOPIC"),
        ("ALTER cluster, CREATE cluster", "110100000, mine NO_TOPIC, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        make.pages("mine", "other", "absent"),
        ("", "absent NO_TOPIC, mine NO_TOPIC, other NO_TOPIC"),
        ("READ topic mine", "absent NO_TOPIC, mine 100001000, mine ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        make.pages(),
        ("", ""),
        ("DESCRIBE topic other", "other 100000000, other ok"),
    ),
    *rows(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        make.cluster(),
        ("", "0, ok"),
        ("DESCRIBE cluster", "100000000, ok"),
        ("ALL cluster", "1111110100000, ok"),
    ),
    *rows(ApiKey.DESCRIBE_CLUSTER, 1, make.cluster(operations=False), ("", "ok")),
    *rows(ApiKey.API_VERSIONS, 0, {}, ("", "ok")),
]

_GROUPS = [
    *rows(
        ApiKey.OFFSET_COMMIT,
        8,
        make.commit(),
        ("READ topic *", "mine NO_GROUP, other NO_GROUP"),
        ("READ group g", "mine NO_TOPIC, other NO_TOPIC"),
        ("READ group g, READ topic mine", "mine ok, other NO_TOPIC"),
        ("DESCRIBE group g, READ topic mine", "mine NO_GROUP, other NO_GROUP"),
    ),
    *rows(
        ApiKey.OFFSET_COMMIT,
        10,
        make.commit_by_id(),
        ("READ group *, READ topic mine", "id:? UNKNOWN_TOPIC_ID, id:mine ok, id:other NO_TOPIC"),
    ),
    *rows(
        ApiKey.OFFSET_FETCH,
        1,
        {"group_id": "g", "topics": make.INDEXES},
        ("", "mine NO_GROUP, other NO_GROUP"),
        ("DESCRIBE group g, DESCRIBE topic mine", "mine ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.OFFSET_FETCH,
        7,
        {"group_id": "g", "topics": make.INDEXES, "require_stable": False},
        ("", "NO_GROUP"),
        ("READ group g", "mine NO_TOPIC, ok, other NO_TOPIC"),
        ("DESCRIBE group g, DESCRIBE topic mine", "mine ok, ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.OFFSET_FETCH,
        7,
        {"group_id": "g", "topics": None, "require_stable": False},
        ("DESCRIBE group g, DESCRIBE topic mine", "mine ok, ok"),
        ("DESCRIBE group g", "ok"),
    ),
    *rows(
        ApiKey.OFFSET_FETCH,
        8,
        make.fetch_offsets("g", "h", topics=make.INDEXES),
        ("", "g NO_GROUP, h NO_GROUP"),
        ("DESCRIBE group g, READ topic mine", "g ok, g/mine ok, g/other NO_TOPIC, h NO_GROUP"),
    ),
    *rows(
        ApiKey.OFFSET_FETCH,
        9,
        make.fetch_offsets("g", "h", topics=None),
        ("DESCRIBE group h, READ topic mine", "g NO_GROUP, h ok, h/mine ok"),
    ),
    *rows(
        ApiKey.OFFSET_FETCH,
        10,
        make.fetch_offsets("g", topics=make.INDEXES_BY_ID),
        (
            "DESCRIBE group g, READ topic mine",
            "g ok, g/id:? UNKNOWN_TOPIC_ID, g/id:mine ok, g/id:other NO_TOPIC",
        ),
    ),
    *rows(
        ApiKey.FIND_COORDINATOR,
        2,
        {"key": "g", "key_type": 0},
        ("", "NO_GROUP"),
        ("DESCRIBE group g", "ok"),
        ("READ group *", "ok"),
        ("WRITE transactional_id g", "NO_GROUP"),
    ),
    *rows(
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 1, "coordinator_keys": ["t", "u"]},
        ("", "t NO_TXN, u NO_TXN"),
        ("WRITE transactional_id t", "t ok, u NO_TXN"),
    ),
    *rows(
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 0, "coordinator_keys": ["g", "h"]},
        ("DESCRIBE group h", "g NO_GROUP, h ok"),
    ),
    *rows(
        ApiKey.JOIN_GROUP,
        7,
        make.JOIN,
        ("DESCRIBE group g", "NO_GROUP"),
        ("READ group g", "UNKNOWN_MEMBER_ID"),
    ),
    *rows(ApiKey.JOIN_GROUP, 0, make.JOIN, ("", "NO_GROUP")),
    *rows(ApiKey.HEARTBEAT, 4, make.BEAT, ("", "NO_GROUP"), ("READ group g", "UNKNOWN_MEMBER_ID")),
    *rows(
        ApiKey.LEAVE_GROUP,
        4,
        make.LEAVE,
        ("", "NO_GROUP"),
        ("READ group g", "UNKNOWN_MEMBER_ID, ok"),
    ),
    *rows(ApiKey.LEAVE_GROUP, 1, {"group_id": "g", "member_id": "unknown"}, ("", "NO_GROUP")),
    *rows(ApiKey.SYNC_GROUP, 5, make.SYNC, ("", "NO_GROUP"), ("READ group g", "UNKNOWN_MEMBER_ID")),
    *rows(
        ApiKey.SYNC_GROUP,
        5,
        {**make.SYNC, "protocol_type": None},
        ("", "INCONSISTENT_GROUP_PROTOCOL"),
    ),
    *rows(
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["g", "h"], "include_authorized_operations": True},
        ("", "g NO_GROUP, h NO_GROUP"),
        ("READ group g", "g 100001000, g ok, h NO_GROUP"),
        ("ALL group *, -DELETE group h", "g 110101001000, g ok, h 110100001000, h ok"),
    ),
    *rows(
        ApiKey.LIST_GROUPS,
        4,
        {"states_filter": []},
        ("", "ok"),
        ("READ group g", "g, ok"),
        ("DESCRIBE cluster", "g, h, ok"),
    ),
    *rows(
        ApiKey.DELETE_GROUPS,
        2,
        {"groups_names": ["g", "absent"]},
        ("READ group *", "absent NO_GROUP, g NO_GROUP"),
        ("DELETE group absent", "absent GROUP_ID_NOT_FOUND, g NO_GROUP"),
    ),
    *rows(
        ApiKey.OFFSET_DELETE,
        0,
        make.DELETED_OFFSETS,
        ("READ group g, READ topic *", "NO_GROUP"),
        ("DELETE group g", "absent NO_TOPIC, ok, other NO_TOPIC"),
        ("DELETE group g, READ topic absent", "absent UNKNOWN_TOPIC_OR_PARTITION, ok, other NO_TOPIC"),
    ),
    *rows(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        make.subscribed("mine", "other"),
        ("READ topic *", "NO_GROUP"),
        ("READ group new, READ topic mine", "NO_TOPIC"),
    ),
    *rows(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["g", "absent"], "include_authorized_operations": True},
        ("", "absent NO_GROUP, g NO_GROUP"),
        ("DESCRIBE group absent", "absent GROUP_ID_NOT_FOUND, g NO_GROUP"),
    ),
]

_TRANSACTIONS = [
    *rows(
        ApiKey.INIT_PRODUCER_ID,
        4,
        make.init(None),
        ("READ topic *", "NO_CLUSTER"),
        ("IDEMPOTENT_WRITE cluster", "ok"),
        ("WRITE topic mine", "ok"),
        ("WRITE topic m*", "ok"),
        ("WRITE topic mine, -WRITE topic m*", "NO_CLUSTER"),
        ("WRITE topic mine, -WRITE topic mine", "NO_CLUSTER"),
        ("WRITE topic m*, -WRITE topic mine", "ok"),
        ("WRITE topic mine, -ALL topic *", "NO_CLUSTER"),
        ("WRITE topic mine, -IDEMPOTENT_WRITE cluster", "ok"),
    ),
    *rows(
        ApiKey.INIT_PRODUCER_ID,
        4,
        make.init("t"),
        ("IDEMPOTENT_WRITE cluster, DESCRIBE transactional_id t", "NO_TXN"),
        ("WRITE transactional_id t", "ok"),
    ),
    *rows(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        make.added("mine", "other", "absent"),
        ("WRITE topic *", "absent NO_TXN, mine NO_TXN, other NO_TXN"),
        ("WRITE transactional_id t", "absent NO_TOPIC, mine NO_TOPIC, other NO_TOPIC"),
        (
            "WRITE transactional_id t, WRITE topic mine, WRITE topic absent",
            "absent UNKNOWN_TOPIC_OR_PARTITION, mine OPERATION_NOT_ATTEMPTED, other NO_TOPIC",
        ),
    ),
    *rows(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        make.added("mine"),
        ("WRITE transactional_id t, WRITE topic mine", "mine INVALID_PRODUCER_ID_MAPPING"),
    ),
    *rows(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        make.VERIFIED,
        ("WRITE transactional_id t, WRITE topic mine", "NO_CLUSTER"),
        ("CLUSTER_ACTION cluster", "ok, t/mine INVALID_PRODUCER_ID_MAPPING"),
    ),
    *rows(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        {"transactional_id": "t", "producer_id": 123_456, "producer_epoch": 0, "group_id": "g"},
        ("READ group g", "NO_TXN"),
        ("WRITE transactional_id t", "NO_GROUP"),
        ("WRITE transactional_id t, READ group g", "INVALID_PRODUCER_ID_MAPPING"),
    ),
    *rows(
        ApiKey.END_TXN,
        3,
        {"transactional_id": "t", "producer_id": 123_456, "producer_epoch": 0, "committed": True},
        ("DESCRIBE transactional_id t", "NO_TXN"),
        ("WRITE transactional_id t", "INVALID_PRODUCER_ID_MAPPING"),
    ),
    *rows(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        make.txn_commit(),
        ("READ group g, READ topic *", "absent NO_TXN, other NO_TXN"),
        ("WRITE transactional_id t, READ topic *", "absent NO_GROUP, other NO_GROUP"),
        ("WRITE transactional_id t, READ group g", "absent NO_TOPIC, other NO_TOPIC"),
        (
            "WRITE transactional_id t, READ group g, READ topic absent",
            "absent UNKNOWN_TOPIC_OR_PARTITION, other NO_TOPIC",
        ),
    ),
    *rows(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        make.MARKERS,
        ("WRITE topic *", "absent NO_CLUSTER"),
        ("ALTER cluster", "absent UNKNOWN_TOPIC_OR_PARTITION"),
        ("CLUSTER_ACTION cluster", "absent UNKNOWN_TOPIC_OR_PARTITION"),
    ),
    *rows(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["t", "absent"]},
        ("", "absent NO_TXN, t NO_TXN"),
        ("DESCRIBE transactional_id t", "absent NO_TXN, t ok"),
        ("WRITE transactional_id *", "absent TRANSACTIONAL_ID_NOT_FOUND, t ok"),
    ),
    *rows(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["open"]},
        ("DESCRIBE transactional_id open", "open ok"),
        ("DESCRIBE transactional_id open, READ topic mine", "open ok, open/mine"),
    ),
    *rows(
        ApiKey.LIST_TRANSACTIONS,
        0,
        {"state_filters": [], "producer_id_filters": []},
        ("", "ok"),
        ("DESCRIBE transactional_id u", "ok, u"),
        ("DESCRIBE cluster", "ok"),
    ),
]

CASES: Final = (*_RECORDS, *_METADATA, *_GROUPS, *_TRANSACTIONS, *ADMIN_CASES)
