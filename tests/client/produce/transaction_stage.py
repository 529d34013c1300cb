"""Helpers for tests of transactions without a producer: a scripted coordinator, a minimal writer and reader."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from rookery.base.clock import SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicPartition
from rookery.client.cluster import Cluster, plain_settings
from rookery.client.produce.sequences import ProducerIdentity
from rookery.client.produce.transaction_calls import FEATURE, Transactions
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import iterate_headers
from rookery.records.record import Record, build_batch, decode_records
from rookery.testing import EmbeddedBroker
from tests.client.fake_broker import HANG_UP, NODE_ID, FakeBroker
from tests.support.aborted import aborted_batches

Result = TypeVar("Result")
Step = ErrorCode | Message | None
# LOST closes the connection instead of a response; SILENT sends no response.
LOST: Final = HANG_UP
SILENT: Final = None
OK: Final = ErrorCode.NONE

CLASSIC, V2 = 1, 2


class Group(NamedTuple):
    """Like a consumer's `group_metadata()`."""

    group_id: str = "g"
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Position(NamedTuple):
    offset: Offset
    leader_epoch: int | None = None
    metadata: str = ""


class ScriptedCoordinator(FakeBroker):
    """Answers each API with the next step of its script, and with success when the script has ended."""

    def __init__(self, *, level: int = V2) -> None:
        self.level = level
        self.script: dict[ApiKey, list[Step]] = {}
        self.identity = ProducerIdentity(7, -1)
        answers = {
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end,
        }
        super().__init__(answers, topics={"t": 3})

    def transaction_requests(self) -> list[str]:
        """Return the names of the requests about transactions, in order."""
        others = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
        return [key.name for key, _, _ in self.requests if key not in others]

    def versions_of(self, api_key: ApiKey) -> set[int]:
        return {version for key, version, _ in self.requests if key is api_key}

    def next_step(self, api_key: ApiKey) -> Step:
        steps = self.script.get(api_key)
        return steps.pop(0) if steps else OK

    def _api_versions(self, version: int, request: Message, error: ErrorCode = ErrorCode.NONE) -> Message:
        response = super()._api_versions(version, request, error)
        if self.level and version >= 3:
            response.finalized_features_epoch = 1
            response.finalized_features = [
                Message(name=FEATURE, max_version_level=self.level, min_version_level=self.level)
            ]
        return response

    def _find(self, version: int, request: Message) -> Message | None:
        step = self.next_step(ApiKey.FIND_COORDINATOR)
        if not isinstance(step, ErrorCode):
            return step
        (key,) = request.coordinator_keys
        row = Message(key=key, node_id=NODE_ID, host="127.0.0.1", port=1, error_code=step, error_message=None)
        return Message(throttle_time_ms=0, coordinators=[row])

    def _init(self, version: int, request: Message) -> Message | None:
        step = self.next_step(ApiKey.INIT_PRODUCER_ID)
        if not isinstance(step, ErrorCode):
            return step
        return self._identified(step)

    def _identified(self, code: ErrorCode) -> Message:
        if code is OK:
            self.identity = ProducerIdentity(self.identity.producer_id, self.identity.producer_epoch + 1)
        return Message(
            throttle_time_ms=0,
            error_code=code,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
        )

    def _add_partitions(self, version: int, request: Message) -> Message | None:
        step = self.next_step(ApiKey.ADD_PARTITIONS_TO_TXN)
        if not isinstance(step, ErrorCode):
            return step
        topics = [
            Message(
                name=topic.name,
                results_by_partition=[
                    Message(partition_index=index, partition_error_code=step) for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return Message(throttle_time_ms=0, results_by_topic_v3_and_below=topics)

    def _add_offsets(self, version: int, request: Message) -> Message | None:
        step = self.next_step(ApiKey.ADD_OFFSETS_TO_TXN)
        return Message(throttle_time_ms=0, error_code=step) if isinstance(step, ErrorCode) else step

    def _commit_offsets(self, version: int, request: Message) -> Message | None:
        step = self.next_step(ApiKey.TXN_OFFSET_COMMIT)
        if not isinstance(step, ErrorCode):
            return step
        topics = [
            Message(
                name=topic.name,
                partitions=[Message(partition_index=row.partition_index, error_code=step) for row in topic.partitions],
            )
            for topic in request.topics
        ]
        return Message(throttle_time_ms=0, topics=topics)

    def _end(self, version: int, request: Message) -> Message | None:
        step = self.next_step(ApiKey.END_TXN)
        if not isinstance(step, ErrorCode):
            return step
        return self._identified(step) if version >= 5 else Message(throttle_time_ms=0, error_code=step)


def run_scripted(
    work: Callable[[Transactions, ScriptedCoordinator], Awaitable[Result]],
    *,
    level: int = V2,
    max_block_ms: int = 10_000,
) -> Result:
    async def run() -> Result:
        broker = ScriptedCoordinator(level=level)
        async with broker:
            settings = plain_settings(str(broker.address), client_id="test", timeout_s=10)
            async with Cluster(replace(settings, retry_backoff_ms=1, reconnect_backoff_ms=1)) as cluster:
                transactions = Transactions(cluster, "mine", max_block_ms=max_block_ms, delivery_timeout_ms=10_000)
                return await work(transactions, broker)

    return asyncio.run(run())


class Writer:
    """Writes batches of one transactional producer, one at a time, instead of accumulator and sender."""

    def __init__(self, cluster: Cluster, transactions: Transactions) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._next: dict[TopicPartition, int] = {}
        transactions.on_identity_changed = lambda identity: self._next.clear()

    async def write(self, partition: TopicPartition, *values: bytes) -> None:
        self._transactions.check_may_send()
        self._transactions.add(partition)
        await self._transactions.ensure_added([partition])
        try:
            await self._cluster.retry(lambda: self._produce(partition, values))
        except ApiError as error:
            raise self._transactions.on_batch_failed(partition, error) from error
        self._next[partition] = self._next.get(partition, 0) + len(values)

    async def _produce(self, partition: TopicPartition, values: Iterable[bytes]) -> None:
        identity = self._transactions.identity
        batch = build_batch(
            [Record(index, SystemClock().now_ms(), None, value, ()) for index, value in enumerate(values)],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self._next.get(partition, 0),
            transactional=True,
        )
        row = Message(index=partition.partition, records=batch)
        request = Message(
            transactional_id=self._transactions.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[Message(name=partition.topic, partition_data=[row])],
        )
        response = await self._cluster.call(
            ApiKey.PRODUCE,
            request,
            node=await self._cluster.leader(partition),
            version_max=12 if self._transactions.is_v2 else 11,
        )
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            raise ApiError(code, f"partition {partition}")


async def read_values(cluster: Cluster, partition: TopicPartition, *, committed: bool) -> list[bytes | None]:
    """Return all values of a partition."""
    row = Message(partition=partition.partition, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20)
    request = Message(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=partition.topic, partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
    )
    node = await cluster.leader(partition)
    response = await cluster.call(ApiKey.FETCH, request, node=node, version_max=12)
    answer = response.responses[0].partitions[0]
    data = memoryview(bytes(answer.records or b""))
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    dropped = {offset for offsets in aborted_batches(data, aborted) for offset in offsets}
    return [
        record.value
        for start, header in iterate_headers(data)
        if not header.is_control
        for record in decode_records(data[start : start + header.size_bytes])
        if record.offset not in dropped
    ]


async def set_transaction_version(cluster: Cluster, level: int) -> None:
    update = Message(feature=FEATURE, max_version_level=level, upgrade_type=2, allow_downgrade=True)
    request = Message(timeout_ms=10_000, feature_updates=[update], validate_only=False)
    response = await cluster.call_controller(ApiKey.UPDATE_FEATURES, request)
    assert response.error_code == ErrorCode.NONE, response


async def committed_offset(cluster: Cluster, group_id: str, partition: TopicPartition) -> Offset:
    """Return a group's committed offset, after waiting for open transactions."""

    async def fetch() -> Offset:
        topics = [Message(name=partition.topic, partition_indexes=[partition.partition])]
        group = Message(group_id=group_id, member_id=None, member_epoch=-1, topics=topics)
        request = Message(groups=[group], require_stable=True)
        response = await cluster.call(ApiKey.OFFSET_FETCH, request, version_max=9)
        (answer,) = response.groups
        row = answer.topics[0].partitions[0] if answer.topics else answer
        if row.error_code:
            raise ApiError(ErrorCode(row.error_code))
        return Offset(row.committed_offset)

    return await cluster.retry(fetch)


async def until_done(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call until it does not time out; on a busy machine that may take several calls."""
    while True:
        try:
            return await call()
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise


class Stage(NamedTuple):
    """A broker, its level of transaction.version, and a topic of two partitions that only one test uses."""

    broker: EmbeddedBroker
    level: int
    topic: str

    @property
    def is_classic(self) -> bool:
        return self.level == CLASSIC

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def run(self, work: Callable[[Cluster], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Cluster.at(self.broker.bootstrap_servers, timeout_s=20) as cluster:
                await work(cluster)

        asyncio.run(main())

    def transactions(self, cluster: Cluster) -> tuple[Transactions, Writer]:
        transactions = Transactions(cluster, self.topic, max_block_ms=20_000, delivery_timeout_ms=20_000)
        return transactions, Writer(cluster, transactions)

    async def sees(self, cluster: Cluster, committed: list[bytes], everything: list[bytes]) -> None:
        """Wait until the visible records are the expected ones: markers are written soon after EndTxn."""
        async with asyncio.timeout(20):
            while await read_values(cluster, self.partition, committed=True) != committed:
                await asyncio.sleep(0.01)
        assert await read_values(cluster, self.partition, committed=False) == everything
