"""From a frame to its reply: the one function that every connection calls for every request.

Stage 1 (`handle` itself) runs synchronously and in the order of a connection's requests: header, version, decoding,
and the handler's work on the log. A handler that can answer at once returns the response, and so does `handle`. One
that must wait returns an awaitable (stage 2); the connection keeps the replies in order. The frame may be reused as
soon as `handle` returns, so nothing may keep a view of it.

Handlers are of two kinds: those in `_HANDLERS` take a decoded message and return one; those in `_HOT_HANDLERS`
(Produce and Fetch) read the frame and make the whole reply themselves. When those wait, it is for a plain future, which
the connection cancels if it is lost; a coroutine would hold on until its deadline. (A Produce that waits for its
transaction's coordinator, or for schemas, is one: its records are still to be written.)

What takes long is done in slices, and the connection looks at no further request meanwhile (`Held`): a request with
many items is answered in pieces (`broker.request_pieces`), and one of many bytes is decoded in a worker thread, one
such request of the broker at a time, because decoded it takes a multiple of its bytes.

What cannot be answered raises ProtocolError, on which the connection is closed with one log line: an unknown API, a
version that is not served, bytes that do not decode. Only ApiVersions answers an unknown version (KIP-511).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from rookery.base.bounds import REQUEST_BYTES_ON_LOOP, REQUEST_ITEMS_MAX, UNSPLIT_REQUEST_BYTES, WHOLE_REQUEST_ITEMS_MAX
from rookery.base.errors import ErrorCode, UnsupportedVersionError
from rookery.broker.context import RequestContext, Services
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
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k47_offset_delete,
    k57_update_features,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from rookery.broker.large_requests import in_worker
from rookery.broker.request_pieces import SPLITS, Split, exceeds, join, pieces
from rookery.net.connection import ConnectionInfo, HandlerResult, Held
from rookery.net.send import Reply
from rookery.protocol.api import SERVED, ApiKey, is_served
from rookery.protocol.codec import decode_request, decode_request_in_worker, encode_response
from rookery.protocol.framing import RequestHeader, parse_request_header
from rookery.protocol.message import Struct

# Each handler takes the type of its API's request, which one type for all of them cannot say.
Handler: TypeAlias = Callable[[RequestContext, Any], Struct | Awaitable[Struct]]
HotHandler: TypeAlias = Callable[[RequestContext, memoryview, int], HandlerResult]

_HOT_HANDLERS: Final[Mapping[int, HotHandler]] = {
    ApiKey.PRODUCE: k00_produce.handle,
    ApiKey.FETCH: k01_fetch.handle,
}

_HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.LIST_OFFSETS: k02_list_offsets.handle,
    ApiKey.METADATA: k03_metadata.handle,
    ApiKey.OFFSET_COMMIT: k08_offset_commit.handle,
    ApiKey.OFFSET_FETCH: k09_offset_fetch.handle,
    ApiKey.FIND_COORDINATOR: k10_find_coordinator.handle,
    ApiKey.JOIN_GROUP: k11_join_group.handle,
    ApiKey.HEARTBEAT: k12_heartbeat.handle,
    ApiKey.LEAVE_GROUP: k13_leave_group.handle,
    ApiKey.SYNC_GROUP: k14_sync_group.handle,
    ApiKey.DESCRIBE_GROUPS: k15_describe_groups.handle,
    ApiKey.LIST_GROUPS: k16_list_groups.handle,
    ApiKey.API_VERSIONS: k18_api_versions.handle,
    ApiKey.CREATE_TOPICS: k19_create_topics.handle,
    ApiKey.DELETE_TOPICS: k20_delete_topics.handle,
    ApiKey.DELETE_RECORDS: k21_delete_records.handle,
    ApiKey.INIT_PRODUCER_ID: k22_init_producer_id.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: k23_offset_for_leader_epoch.handle,
    ApiKey.ADD_PARTITIONS_TO_TXN: k24_add_partitions_to_txn.handle,
    ApiKey.ADD_OFFSETS_TO_TXN: k25_add_offsets_to_txn.handle,
    ApiKey.END_TXN: k26_end_txn.handle,
    ApiKey.WRITE_TXN_MARKERS: k27_write_txn_markers.handle,
    ApiKey.TXN_OFFSET_COMMIT: k28_txn_offset_commit.handle,
    ApiKey.DESCRIBE_CONFIGS: k32_describe_configs.handle,
    ApiKey.ALTER_CONFIGS: k33_alter_configs.handle,
    ApiKey.DESCRIBE_LOG_DIRS: k35_describe_log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: k37_create_partitions.handle,
    ApiKey.DELETE_GROUPS: k42_delete_groups.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: k44_incremental_alter_configs.handle,
    ApiKey.OFFSET_DELETE: k47_offset_delete.handle,
    ApiKey.UPDATE_FEATURES: k57_update_features.handle,
    ApiKey.DESCRIBE_CLUSTER: k60_describe_cluster.handle,
    ApiKey.DESCRIBE_PRODUCERS: k61_describe_producers.handle,
    ApiKey.DESCRIBE_TRANSACTIONS: k65_describe_transactions.handle,
    ApiKey.LIST_TRANSACTIONS: k66_list_transactions.handle,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: k68_consumer_group_heartbeat.handle,
    ApiKey.CONSUMER_GROUP_DESCRIBE: k69_consumer_group_describe.handle,
    ApiKey.LIST_CONFIG_RESOURCES: k74_list_config_resources.handle,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: k75_describe_topic_partitions.handle,
}

assert _HANDLERS.keys() | _HOT_HANDLERS.keys() == SERVED.keys()


class Dispatcher:
    """Answers the requests of all connections of a broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def handle(self, frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
        header, position = parse_request_header(frame)
        api_key, api_version = header[:2]
        if not is_served(api_key, api_version):
            return self._handle_unserved(header, frame, position, connection)
        context = RequestContext(self._services, header, connection)
        hot_handler = _HOT_HANDLERS.get(api_key)
        if hot_handler is not None:
            return hot_handler(context, frame, position)
        if len(frame) > UNSPLIT_REQUEST_BYTES:
            return self._handle_long(context, frame, position)
        response = _HANDLERS[api_key](context, decode_request(api_key, api_version, frame, position))
        return _encode(context, response) if isinstance(response, Struct) else _encode_later(context, response)

    def _handle_long(self, context: RequestContext, frame: memoryview, position: int) -> HandlerResult:
        """A request that may have more items, or bytes, than are worked on at once."""
        if len(frame) > REQUEST_BYTES_ON_LOOP:
            return Held(self._answer_large(context, self._services.large_requests.admit(frame), position))
        api_key, version = context.api_key, context.api_version
        split = SPLITS.get((api_key, version))
        items_max = WHOLE_REQUEST_ITEMS_MAX if split is None else REQUEST_ITEMS_MAX
        request = decode_request(api_key, version, frame, position, items_max)
        if split is not None and exceeds(split, request):
            return Held(self._answer_split(context, request, split))
        response = _HANDLERS[api_key](context, request)
        return _encode(context, response) if isinstance(response, Struct) else _encode_later(context, response)

    async def _answer_large(self, context: RequestContext, frame: bytes, position: int) -> Reply:
        api_key, version = context.api_key, context.api_version
        split = SPLITS.get((api_key, version))
        items_max = WHOLE_REQUEST_ITEMS_MAX if split is None else REQUEST_ITEMS_MAX
        large_requests = self._services.large_requests
        async with large_requests.turn:
            request = await large_requests.decode(
                frame, lambda data: decode_request_in_worker(api_key, version, data, position, items_max)
            )
            if split is not None and exceeds(split, request):
                return await self._answer_split(context, request, split)
            answer = _HANDLERS[api_key](context, request)
        # A request that waits, for other members of a group for example, does not keep others waiting.
        return await _encode_in_worker(context, await _result(answer))

    async def _answer_split(self, context: RequestContext, request: Struct, split: Split) -> Reply:
        handler, whole = _HANDLERS[context.api_key], None
        if (prepare := split.prepare) is not None:
            await in_worker(lambda: prepare(request))
        for piece in pieces(request, split.request, split.size):
            if whole is not None:
                await self._services.slices.pause()
            answer = handler(context, piece.message)
            whole = join(whole, await _result(answer), split.response, piece.continued)
        assert whole is not None, "a request has at least one piece"
        return await _encode_in_worker(context, whole)

    def _handle_unserved(
        self, header: RequestHeader, frame: memoryview, position: int, connection: ConnectionInfo
    ) -> Reply:
        if header.api_key == ApiKey.API_VERSIONS:
            context = RequestContext(self._services, header._replace(api_version=0), connection)
            return _encode(context, k18_api_versions.refuse(ErrorCode.UNSUPPORTED_VERSION))
        if header.api_key == ApiKey.PRODUCE and header.api_version in k00_produce.OLD_VERSIONS:
            context = RequestContext(self._services, header, connection)
            return context.reply(k00_produce.refuse_old_version(header.api_version, frame, position))
        raise UnsupportedVersionError(f"API key {header.api_key} version {header.api_version} is not served")


def _encode(context: RequestContext, response: Struct) -> Reply:
    return context.reply([encode_response(context.api_key, context.api_version, response)])


async def _encode_later(context: RequestContext, response: Awaitable[Struct]) -> Reply:
    return _encode(context, await response)


async def _result(answer: Struct | Awaitable[Struct]) -> Struct:
    if isinstance(answer, Struct):
        return answer
    return await answer


async def _encode_in_worker(context: RequestContext, response: Struct) -> Reply:
    return context.reply([await in_worker(lambda: encode_response(context.api_key, context.api_version, response))])
