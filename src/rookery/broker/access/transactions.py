"""Guards of requests about transactions and producers."""

from typing import Any, Final

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.access.groups import READ_GROUP, on_names
from rookery.broker.access.guards import Asked, Guard, Restricted, Verdict, on_cluster, on_fields, refuse, with_fields
from rookery.broker.access.topics import on_topics
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.message import Struct
from rookery.protocol.messages import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_ID: Final = AclResourceType.TRANSACTIONAL_ID
_TOPIC: Final = AclResourceType.TOPIC
_WRITE: Final = AclOperation.WRITE
_BETWEEN_BROKERS_SINCE = 4

_WRITE_ID: Final = Asked(_WRITE, _ID, "transactional_id")

end_txn: Final[Guard] = on_fields(_WRITE_ID)
add_offsets_to_txn: Final[Guard] = on_fields(_WRITE_ID, READ_GROUP)
txn_offset_commit: Final[Guard] = on_topics(AclOperation.READ, _WRITE_ID, READ_GROUP)
write_txn_markers: Final[Guard] = on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
_describe_ids: Final[Guard] = on_names(AclOperation.DESCRIBE, _ID)


def init_producer_id(client: Client, context: ClusterContext, request: InitProducerIdRequest) -> Verdict:
    transactional_id = request.transactional_id
    if transactional_id is None:
        # A producer that may write to any topic needs no other permission to be idempotent (KIP-679).
        is_allowed = client.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE, is_logged=False)
        if is_allowed or client.allows_on_any(_WRITE, _TOPIC):
            return None
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wants_two_phases = request.get("enable2_pc", False)
    for operation in (_WRITE, AclOperation.TWO_PHASE_COMMIT) if wants_two_phases else (_WRITE,):
        if not client.allows(operation, _ID, transactional_id):
            return refuse(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return None


_add_between_brokers: Final[Guard] = on_cluster(AclOperation.CLUSTER_ACTION)


def add_partitions_to_txn(client: Client, context: ClusterContext, request: AddPartitionsToTxnRequest) -> Verdict:
    """Versions of clients need WRITE on the id and on every topic: one that is denied fails all."""
    if context.api_version >= _BETWEEN_BROKERS_SINCE:
        return _add_between_brokers(client, context, request)
    topics = request.get("v3_and_below_topics") or []
    if not client.allows(_WRITE, _ID, request.get("v3_and_below_transactional_id", "")):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _added([_result(topic, dict.fromkeys(topic.partitions, code)) for topic in topics])
    denied = client.denied(_WRITE, _TOPIC, (topic.name for topic in topics if topic.name not in INTERNAL_TOPICS))
    if not denied:
        return None
    return _added([_result(topic, _add_errors(context, topic, denied)) for topic in topics])


def _add_errors(context: ClusterContext, topic: AddPartitionsToTxnTopic, denied: set[str]) -> dict[int, ErrorCode]:
    if topic.name in denied or topic.name in INTERNAL_TOPICS:
        return dict.fromkeys(topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = context.services.image.topics.get(topic.name)
    known = found.partitions if found is not None else {}
    return {
        index: ErrorCode.OPERATION_NOT_ATTEMPTED if index in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in topic.partitions
    }


def _added(results: list[AddPartitionsToTxnTopicResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _result(topic: AddPartitionsToTxnTopic, codes: dict[int, ErrorCode]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in codes.items()
        ],
    )


def describe_transactions(client: Client, context: ClusterContext, request: DescribeTransactionsRequest) -> Verdict:
    """Topics that the client may not describe are left out of the transactions that it may describe."""
    verdict = _describe_ids(client, context, request)
    if not isinstance(verdict, Restricted):
        return Restricted(request, lambda response: _hide_topics(client, response))
    return verdict._replace(finish=lambda response: verdict.finish(_hide_topics(client, response)))


def _hide_topics(client: Client, response: DescribeTransactionsResponse) -> Struct:
    return with_fields(response, transaction_states=[_visible(client, each) for each in response.transaction_states])


def _visible(client: Client, state: DescribeTransactionsResponseTransactionState) -> Any:
    denied = client.denied(AclOperation.DESCRIBE, _TOPIC, (topic.topic for topic in state.topics))
    return with_fields(state, topics=[topic for topic in state.topics if topic.topic not in denied])


def list_transactions(client: Client, _: ClusterContext, request: ListTransactionsRequest) -> Verdict:
    visible = client.sees(AclOperation.DESCRIBE, _ID)

    def finish(response: ListTransactionsResponse) -> Struct:
        states = [each for each in response.transaction_states if visible[each.transactional_id].allowed]
        return with_fields(response, transaction_states=states)

    return Restricted(request, finish)
