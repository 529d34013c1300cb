"""WriteTxnMarkers (27): write the end of transactions to partitions that this broker leads.

Sent by the coordinators of other brokers, and by administrators who end a hanging transaction. Each partition has its
own error code, when its marker is committed; the response waits for all of them. An error about the coordinator of a
partition of `__consumer_offsets` becomes NOT_LEADER_OR_FOLLOWER, after which the sender retries.

Versions: v1 flexible. v2 the version of the transaction's protocol (KIP-1228); 2 has stricter rules for epochs.
"""

from collections.abc import Awaitable, Iterator

from rookery.base.errors import ErrorCode
from rookery.base.types import ProducerId, TopicName, TopicPartition
from rookery.broker.answers import COORDINATOR_ERRORS, respond_to_all
from rookery.broker.context import RequestContext
from rookery.protocol.messages import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from rookery.records.control import Marker

_Results = dict[ProducerId, dict[TopicName, list[WritableTxnMarkerPartitionResult]]]


def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    asked = list(_markers(request))
    answers = [context.services.markers.write(partition, marker) for partition, marker in asked]

    def convert(codes: list[ErrorCode]) -> WriteTxnMarkersResponse:
        results: _Results = {marker.producer_id: {} for marker in request.markers}
        for (partition, marker), code in zip(asked, codes, strict=True):
            result = WritableTxnMarkerPartitionResult(partition_index=partition.partition, error_code=_translate(code))
            results[marker.producer_id].setdefault(partition.topic, []).append(result)
        return _respond(results)

    return respond_to_all(answers, convert)


def _markers(request: WriteTxnMarkersRequest) -> Iterator[tuple[TopicPartition, Marker]]:
    for item in request.markers:
        marker = Marker(
            item.producer_id,
            item.producer_epoch,
            item.transaction_result,
            item.coordinator_epoch,
            item.get("transaction_version", 0),
        )
        for topic in item.topics:
            for index in topic.partition_indexes:
                yield TopicPartition(topic.name, index), marker


def _translate(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_ERRORS else code


def _respond(results: _Results) -> WriteTxnMarkersResponse:
    """Return the response, with one item per producer, also if it has several markers."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )
