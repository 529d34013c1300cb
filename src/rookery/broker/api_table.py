"""One row per API that nodes serve: its handlers, and everything else that depends on the API alone.

`broker.dispatch` reads the handlers, the guards (`broker.access`), the splits, the quotas, and which requests a broker
forwards to the controller; `broker.request_metering` reads the names. docs/apis.md shows the table
(`python -m rookery.broker.api_docs`).
"""

from collections.abc import Mapping
from typing import Final

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE
from rookery.base.codes import AclOperation, AclResourceType
from rookery.broker import auditing
from rookery.broker.access import cluster, fetch, groups, metadata, produce, security, topics, transactions
from rookery.broker.access.guards import Guard, Unguarded
from rookery.broker.api_row import Api, ControllerHandler, Permission, Quota
from rookery.broker.auditing import DescribeChanges
from rookery.broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k17_sasl_handshake,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k36_sasl_authenticate,
    k37_create_partitions,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k48_describe_client_quotas,
    k49_alter_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k55_describe_quorum,
    k56_alter_partition,
    k57_update_features,
    k58_envelope,
    k59_fetch_snapshot,
    k60_describe_cluster,
    k61_describe_producers,
    k62_broker_registration,
    k63_broker_heartbeat,
    k64_unregister_broker,
    k65_describe_transactions,
    k66_list_transactions,
    k67_allocate_producer_ids,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k70_controller_registration,
    k73_assign_replicas_to_dirs,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k82_update_raft_voter,
)
from rookery.broker.request_pieces import Split
from rookery.protocol.api import ApiKey

_READ_TOPIC: Final = Permission(AclOperation.READ, AclResourceType.TOPIC)
_WRITE_TOPIC: Final = Permission(AclOperation.WRITE, AclResourceType.TOPIC)
_CREATE_TOPIC: Final = Permission(AclOperation.CREATE, AclResourceType.TOPIC)
_DELETE_TOPIC: Final = Permission(AclOperation.DELETE, AclResourceType.TOPIC)
_ALTER_TOPIC: Final = Permission(AclOperation.ALTER, AclResourceType.TOPIC)
_DESCRIBE_TOPIC: Final = Permission(AclOperation.DESCRIBE, AclResourceType.TOPIC)
_READ_GROUP: Final = Permission(AclOperation.READ, AclResourceType.GROUP)
_DELETE_GROUP: Final = Permission(AclOperation.DELETE, AclResourceType.GROUP)
_DESCRIBE_GROUP: Final = Permission(AclOperation.DESCRIBE, AclResourceType.GROUP)
_CREATE_CLUSTER: Final = Permission(AclOperation.CREATE, AclResourceType.CLUSTER)
_ALTER_CLUSTER: Final = Permission(AclOperation.ALTER, AclResourceType.CLUSTER)
_DESCRIBE_CLUSTER: Final = Permission(AclOperation.DESCRIBE, AclResourceType.CLUSTER)
_CLUSTER_ACTION: Final = Permission(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
_IDEMPOTENT_WRITE: Final = Permission(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)
_WRITE_TRANSACTIONS: Final = Permission(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)
_DESCRIBE_TRANSACTIONS: Final = Permission(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)
_CONFIGURED: Final = (AclResourceType.CLUSTER, AclResourceType.TOPIC, AclResourceType.GROUP)
_DESCRIBE_CONFIGS: Final = tuple(Permission(AclOperation.DESCRIBE_CONFIGS, each) for each in _CONFIGURED)
_ALTER_CONFIGS: Final = tuple(Permission(AclOperation.ALTER_CONFIGS, each) for each in _CONFIGURED)

_CREATE_TOKENS: Final = Permission(AclOperation.CREATE_TOKENS, AclResourceType.USER)
_DESCRIBE_TOKENS: Final = (
    Permission(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN),
    Permission(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER),
)

_PARTITIONS: Final = Split(("topics", "partitions"), ("topics", "partitions"))
_INDEXES: Final = Split(("topics", "partition_indexes"), ("topics", "partitions"))
_GROUP_INDEXES: Final = Split(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"))


def _forwarded(
    key: ApiKey,
    handle: ControllerHandler,
    guard: Guard | Unguarded,
    permissions: tuple[Permission, ...],
    quota: Quota = Quota.REQUEST,
    *,
    changes: DescribeChanges | None = None,
) -> Api:
    """A request of clients to the controller: brokers forward it, and its node has the same handler everywhere."""
    return Api(
        key=key,
        handle=handle,
        handle_on_controller=handle,
        is_forwarded=True,
        permissions=permissions,
        guard=guard,
        quota=quota,
        describe_changes=changes,
    )


def _on_every_node(key: ApiKey, handle: ControllerHandler, guard: Guard, permissions: tuple[Permission, ...]) -> Api:
    """A request that every node, broker or controller, answers from its own image."""
    return Api(key=key, handle=handle, handle_on_controller=handle, guard=guard, permissions=permissions)


def _between_nodes(key: ApiKey, handle: ControllerHandler, quota: Quota = Quota.EXEMPT) -> Api:
    return Api(key=key, handle_on_controller=handle, permissions=(_CLUSTER_ACTION,), guard=cluster.action, quota=quota)


_ROWS: Final = (
    Api(
        key=ApiKey.PRODUCE,
        handle_frame=k00_produce.handle,
        handle_frame_guarded=produce.handle,
        permissions=(_WRITE_TRANSACTIONS, _WRITE_TOPIC),
        quota=Quota.PRODUCE,
    ),
    Api(
        key=ApiKey.FETCH,
        handle_frame=k01_fetch.handle,
        handle_frame_guarded=fetch.handle,
        handle_on_controller=k01_fetch.handle_on_controller,
        guard_on_controller=cluster.action,
        permissions=(_CLUSTER_ACTION, _READ_TOPIC),
        quota=Quota.FETCH,
        more_metric_names=("FetchConsumer", "FetchFollower"),
    ),
    Api(
        key=ApiKey.LIST_OFFSETS,
        handle=k02_list_offsets.handle,
        splits={0: _PARTITIONS._replace(prepare=k02_list_offsets.note_repeated)},
        guard=topics.on_topics(AclOperation.DESCRIBE),
        permissions=(_DESCRIBE_TOPIC,),
    ),
    Api(
        key=ApiKey.METADATA,
        handle=k03_metadata.handle,
        splits={0: Split(("topics",), ("topics",), DESCRIPTIONS_PER_SLICE, k03_metadata.remove_repeated)},
        guard=metadata.metadata,
        permissions=(_DESCRIBE_TOPIC, _CREATE_CLUSTER, _CREATE_TOPIC, _DESCRIBE_CLUSTER),
    ),
    Api(
        key=ApiKey.OFFSET_COMMIT,
        handle=k08_offset_commit.handle,
        splits={0: _PARTITIONS},
        guard=groups.offset_commit,
        permissions=(_READ_GROUP, _READ_TOPIC),
    ),
    Api(
        key=ApiKey.OFFSET_FETCH,
        handle=k09_offset_fetch.handle,
        splits={0: _INDEXES, k09_offset_fetch.GROUPS_SINCE: _GROUP_INDEXES},
        guard=groups.offset_fetch,
        permissions=(_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Api(
        key=ApiKey.FIND_COORDINATOR,
        handle=k10_find_coordinator.handle,
        splits={k10_find_coordinator.KEYS_SINCE: Split(("coordinator_keys",), ("coordinators",))},
        guard=groups.find_coordinator,
        permissions=(_DESCRIBE_GROUP, _DESCRIBE_TRANSACTIONS),
    ),
    Api(key=ApiKey.JOIN_GROUP, handle=k11_join_group.handle, guard=groups.join_group, permissions=(_READ_GROUP,)),
    Api(key=ApiKey.HEARTBEAT, handle=k12_heartbeat.handle, guard=groups.member, permissions=(_READ_GROUP,)),
    Api(
        key=ApiKey.LEAVE_GROUP,
        handle=k13_leave_group.handle,
        splits={k13_leave_group.MEMBERS_SINCE: Split(("members",), ("members",))},
        guard=groups.member,
        permissions=(_READ_GROUP,),
    ),
    Api(key=ApiKey.SYNC_GROUP, handle=k14_sync_group.handle, guard=groups.sync_group, permissions=(_READ_GROUP,)),
    Api(
        key=ApiKey.DESCRIBE_GROUPS,
        handle=k15_describe_groups.handle,
        splits={0: Split(("groups",), ("groups",), DESCRIPTIONS_PER_SLICE)},
        guard=groups.describe_groups,
        permissions=(_DESCRIBE_GROUP,),
    ),
    Api(
        key=ApiKey.LIST_GROUPS,
        handle=k16_list_groups.handle,
        guard=groups.list_groups,
        permissions=(_DESCRIBE_CLUSTER, _DESCRIBE_GROUP),
    ),
    Api(
        key=ApiKey.SASL_HANDSHAKE,
        handle=k17_sasl_handshake.handle,
        handle_on_controller=k17_sasl_handshake.handle,
        guard=cluster.before_login,
        quota=Quota.NONE,
    ),
    Api(
        key=ApiKey.API_VERSIONS,
        handle=k18_api_versions.handle,
        guard=cluster.before_login,
        handle_on_controller=k18_api_versions.handle_on_controller,
    ),
    _forwarded(
        ApiKey.CREATE_TOPICS,
        k19_create_topics.handle,
        topics.create_topics,
        (_CREATE_CLUSTER, _CREATE_TOPIC, Permission(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)),
        Quota.CONTROLLER_MUTATION,
    ),
    _forwarded(
        ApiKey.DELETE_TOPICS,
        k20_delete_topics.handle,
        topics.delete_topics,
        (Permission(AclOperation.DELETE, AclResourceType.CLUSTER), _DELETE_TOPIC, _DESCRIBE_TOPIC),
        Quota.CONTROLLER_MUTATION,
    ),
    Api(
        key=ApiKey.DELETE_RECORDS,
        handle=k21_delete_records.handle,
        splits={0: _PARTITIONS},
        guard=topics.on_topics(AclOperation.DELETE),
        permissions=(_DELETE_TOPIC,),
    ),
    Api(
        key=ApiKey.INIT_PRODUCER_ID,
        handle=k22_init_producer_id.handle,
        guard=transactions.init_producer_id,
        permissions=(
            _WRITE_TRANSACTIONS,
            Permission(AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID),
            _IDEMPOTENT_WRITE,
            _WRITE_TOPIC,
        ),
    ),
    Api(
        key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
        handle=k23_offset_for_leader_epoch.handle,
        splits={0: _PARTITIONS},
        guard=topics.offset_for_leader_epoch,
        permissions=(_CLUSTER_ACTION, _DESCRIBE_TOPIC),
    ),
    Api(
        key=ApiKey.ADD_PARTITIONS_TO_TXN,
        handle=k24_add_partitions_to_txn.handle,
        guard=transactions.add_partitions_to_txn,
        permissions=(_WRITE_TRANSACTIONS, _WRITE_TOPIC, _CLUSTER_ACTION),
        more_metric_names=("AddPartitionsToTxnVerification",),
    ),
    Api(
        key=ApiKey.ADD_OFFSETS_TO_TXN,
        handle=k25_add_offsets_to_txn.handle,
        guard=transactions.add_offsets_to_txn,
        permissions=(_WRITE_TRANSACTIONS, _READ_GROUP),
    ),
    Api(key=ApiKey.END_TXN, handle=k26_end_txn.handle, guard=transactions.end_txn, permissions=(_WRITE_TRANSACTIONS,)),
    Api(
        key=ApiKey.WRITE_TXN_MARKERS,
        handle=k27_write_txn_markers.handle,
        guard=transactions.write_txn_markers,
        permissions=(_ALTER_CLUSTER, _CLUSTER_ACTION),
        quota=Quota.NONE,
    ),
    Api(
        key=ApiKey.TXN_OFFSET_COMMIT,
        handle=k28_txn_offset_commit.handle,
        splits={0: _PARTITIONS},
        guard=transactions.txn_offset_commit,
        permissions=(_WRITE_TRANSACTIONS, _READ_GROUP, _READ_TOPIC),
    ),
    _on_every_node(ApiKey.DESCRIBE_ACLS, k29_describe_acls.handle, cluster.describe, (_DESCRIBE_CLUSTER,)),
    _forwarded(
        ApiKey.CREATE_ACLS,
        k30_create_acls.handle,
        security.create_acls,
        (_ALTER_CLUSTER,),
        changes=auditing.created_acls,
    ),
    _forwarded(
        ApiKey.DELETE_ACLS,
        k31_delete_acls.handle,
        security.delete_acls,
        (_ALTER_CLUSTER,),
        changes=auditing.deleted_acls,
    ),
    Api(
        key=ApiKey.DESCRIBE_CONFIGS,
        handle=k32_describe_configs.handle,
        splits={0: Split(("resources",), ("results",), DESCRIPTIONS_PER_SLICE, k32_describe_configs.remove_repeated)},
        handle_on_controller=k32_describe_configs.handle,
        guard=cluster.describe_configs,
        permissions=_DESCRIBE_CONFIGS,
    ),
    _forwarded(
        ApiKey.ALTER_CONFIGS,
        k33_alter_configs.handle,
        cluster.alter_configs,
        _ALTER_CONFIGS,
        changes=auditing.altered_configs,
    ),
    Api(
        key=ApiKey.DESCRIBE_LOG_DIRS,
        handle=k35_describe_log_dirs.handle,
        guard=cluster.describe_log_dirs,
        permissions=(_DESCRIBE_CLUSTER,),
    ),
    Api(
        key=ApiKey.SASL_AUTHENTICATE,
        handle=k36_sasl_authenticate.handle,
        handle_on_controller=k36_sasl_authenticate.handle,
        guard=cluster.before_login,
        quota=Quota.NONE,
    ),
    _forwarded(
        ApiKey.CREATE_PARTITIONS,
        k37_create_partitions.handle,
        topics.create_partitions,
        (_ALTER_TOPIC,),
        Quota.CONTROLLER_MUTATION,
    ),
    _forwarded(
        ApiKey.CREATE_DELEGATION_TOKEN,
        k38_create_delegation_token.handle,
        security.create_token,
        (_CREATE_TOKENS,),
        changes=auditing.created_token,
    ),
    _forwarded(
        ApiKey.RENEW_DELEGATION_TOKEN,
        k39_renew_delegation_token.handle,
        security.of_owners,
        (),
        changes=auditing.renewed_token,
    ),
    _forwarded(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        k40_expire_delegation_token.handle,
        security.of_owners,
        (),
        changes=auditing.expired_token,
    ),
    _on_every_node(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        k41_describe_delegation_token.handle,
        security.describe_tokens,
        _DESCRIBE_TOKENS,
    ),
    Api(
        key=ApiKey.DELETE_GROUPS,
        handle=k42_delete_groups.handle,
        splits={0: Split(("groups_names",), ("results",), prepare=k42_delete_groups.remove_repeated)},
        guard=groups.delete_groups,
        permissions=(_DELETE_GROUP,),
    ),
    _forwarded(ApiKey.ELECT_LEADERS, k43_elect_leaders.handle, cluster.alter_partitions, (_ALTER_CLUSTER,)),
    _forwarded(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        k44_incremental_alter_configs.handle,
        cluster.alter_configs,
        _ALTER_CONFIGS,
        changes=auditing.altered_configs,
    ),
    _forwarded(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        k45_alter_partition_reassignments.handle,
        cluster.alter_partitions,
        (_ALTER_CLUSTER,),
    ),
    _forwarded(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        k46_list_partition_reassignments.handle,
        cluster.describe,
        (_DESCRIBE_CLUSTER,),
    ),
    Api(
        key=ApiKey.OFFSET_DELETE,
        handle=k47_offset_delete.handle,
        splits={0: _PARTITIONS},
        guard=groups.offset_delete,
        permissions=(_DELETE_GROUP, _READ_TOPIC),
    ),
    Api(
        key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
        handle=k48_describe_client_quotas.handle,
        guard=cluster.describe_configs_of_cluster,
        permissions=(_DESCRIBE_CONFIGS[0],),
    ),
    _forwarded(
        ApiKey.ALTER_CLIENT_QUOTAS,
        k49_alter_client_quotas.handle,
        security.alter_client_quotas,
        (_ALTER_CONFIGS[0],),
        changes=auditing.altered_quotas,
    ),
    _on_every_node(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        k50_describe_user_scram_credentials.handle,
        cluster.describe,
        (_DESCRIBE_CLUSTER,),
    ),
    _forwarded(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        k51_alter_user_scram_credentials.handle,
        security.alter_users,
        (_ALTER_CLUSTER,),
        changes=auditing.altered_users,
    ),
    _between_nodes(ApiKey.VOTE, k52_vote.handle, Quota.NONE),
    _between_nodes(ApiKey.BEGIN_QUORUM_EPOCH, k53_begin_quorum_epoch.handle, Quota.NONE),
    _between_nodes(ApiKey.END_QUORUM_EPOCH, k54_end_quorum_epoch.handle, Quota.NONE),
    _forwarded(ApiKey.DESCRIBE_QUORUM, k55_describe_quorum.handle, cluster.describe, (_DESCRIBE_CLUSTER,), Quota.NONE),
    _between_nodes(ApiKey.ALTER_PARTITION, k56_alter_partition.handle),
    _forwarded(ApiKey.UPDATE_FEATURES, k57_update_features.handle, cluster.alter, (_ALTER_CLUSTER,)),
    Api(
        key=ApiKey.ENVELOPE,
        handle_envelope=k58_envelope.handle,
        guard=cluster.action,
        permissions=(_CLUSTER_ACTION,),
        quota=Quota.NONE,
    ),
    _between_nodes(ApiKey.FETCH_SNAPSHOT, k59_fetch_snapshot.handle),
    Api(
        key=ApiKey.DESCRIBE_CLUSTER,
        handle=k60_describe_cluster.handle,
        handle_on_controller=k60_describe_cluster.handle_on_controller,
        guard_on_controller=cluster.alter,
        guard=cluster.cluster_nodes,
        permissions=(_DESCRIBE_CLUSTER, _ALTER_CLUSTER),
    ),
    Api(
        key=ApiKey.DESCRIBE_PRODUCERS,
        handle=k61_describe_producers.handle,
        splits={0: _INDEXES},
        guard=topics.describe_producers,
        permissions=(_READ_TOPIC,),
    ),
    _between_nodes(ApiKey.BROKER_REGISTRATION, k62_broker_registration.handle),
    _between_nodes(ApiKey.BROKER_HEARTBEAT, k63_broker_heartbeat.handle),
    _forwarded(ApiKey.UNREGISTER_BROKER, k64_unregister_broker.handle, cluster.alter, (_ALTER_CLUSTER,)),
    Api(
        key=ApiKey.DESCRIBE_TRANSACTIONS,
        handle=k65_describe_transactions.handle,
        splits={0: Split(("transactional_ids",), ("transaction_states",), DESCRIPTIONS_PER_SLICE)},
        guard=transactions.describe_transactions,
        permissions=(_DESCRIBE_TRANSACTIONS, _DESCRIBE_TOPIC),
    ),
    Api(
        key=ApiKey.LIST_TRANSACTIONS,
        handle=k66_list_transactions.handle,
        guard=transactions.list_transactions,
        permissions=(_DESCRIBE_TRANSACTIONS,),
    ),
    _between_nodes(ApiKey.ALLOCATE_PRODUCER_IDS, k67_allocate_producer_ids.handle),
    Api(
        key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        handle=k68_consumer_group_heartbeat.handle,
        guard=groups.consumer_group_heartbeat,
        permissions=(_READ_GROUP, _DESCRIBE_TOPIC),
    ),
    Api(
        key=ApiKey.CONSUMER_GROUP_DESCRIBE,
        handle=k69_consumer_group_describe.handle,
        splits={0: Split(("group_ids",), ("groups",), DESCRIPTIONS_PER_SLICE)},
        guard=groups.consumer_group_describe,
        permissions=(_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    _between_nodes(ApiKey.CONTROLLER_REGISTRATION, k70_controller_registration.handle),
    _between_nodes(ApiKey.ASSIGN_REPLICAS_TO_DIRS, k73_assign_replicas_to_dirs.handle),
    Api(
        key=ApiKey.LIST_CONFIG_RESOURCES,
        handle=k74_list_config_resources.handle,
        guard=cluster.describe_configs_of_cluster,
        permissions=(Permission(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER),),
    ),
    Api(
        key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        handle=k75_describe_topic_partitions.handle,
        guard=topics.describe_topic_partitions,
        permissions=(_DESCRIBE_TOPIC,),
    ),
    _forwarded(ApiKey.ADD_RAFT_VOTER, k80_add_raft_voter.handle, cluster.alter, (_ALTER_CLUSTER,)),
    _forwarded(ApiKey.REMOVE_RAFT_VOTER, k81_remove_raft_voter.handle, cluster.alter, (_ALTER_CLUSTER,)),
    _between_nodes(ApiKey.UPDATE_RAFT_VOTER, k82_update_raft_voter.handle),
)

APIS: Final[Mapping[ApiKey, Api]] = {api.key: api for api in _ROWS}
