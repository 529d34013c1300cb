"""The operations of groups and of transactions, which a coordinator serves."""

import itertools
import time

from bench import wire
from bench.cost.client import Client, RunOnce, require_success
from bench.payload import event_text
from rookery.base.types import Offset, TimestampMs
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch

TOPIC = "coordinated"
_BEATING_GROUP, _COMMITTING_GROUP, _LARGE_GROUP, _TRANSACTIONAL_ID = "beating", "committing", "large", "producer"
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_MEMBERS = 100
_RECORDS = 100
_RECORD_BYTES = 100
_ACKS_ALL = -1
_TIMEOUT_MS = 30_000
# No member sends heartbeats while other operations are counted.
_SESSION_TIMEOUT_MS = 1_800_000
_PROTOCOL_TYPE, _PROTOCOL = "consumer", "range"
# A version that gives new members their ids at once: later ones make them ask twice.
_FIRST_JOIN_VERSION = 3
_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION, _COMMIT_VERSION = 9, 5, 4, 9
_INIT_VERSION, _ADD_VERSION, _END_VERSION = 4, 3, 4


def find_coordinators(client: Client) -> None:
    """Let the broker create the topics in which the coordinators keep their state."""
    for key_type, key in ((_GROUP_KEY, _BEATING_GROUP), (_TRANSACTION_KEY, _TRANSACTIONAL_ID)):
        found = client.call(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=[key])
        require_success(coordinator.error_code for coordinator in found.coordinators)


def _join_frame(version: int, group: str, member_id: str, metadata: bytes) -> bytes:
    body = Message(
        group_id=group,
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
        member_id=member_id,
        group_instance_id=None,
        protocol_type=_PROTOCOL_TYPE,
        protocols=[Message(name=_PROTOCOL, metadata=metadata)],
        reason=None,
    )
    return wire.request_frame(ApiKey.JOIN_GROUP, version, body)


def _join_alone(client: Client, group: str) -> Message:
    """Make `client` the only member of `group`, with an assignment."""
    reply = client.exchange(_join_frame(_FIRST_JOIN_VERSION, group, "", b"metadata"))
    joined = wire.decode_reply(ApiKey.JOIN_GROUP, _FIRST_JOIN_VERSION, reply)
    synced = client.call(
        ApiKey.SYNC_GROUP,
        _SYNC_VERSION,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type=_PROTOCOL_TYPE,
        protocol_name=_PROTOCOL,
        assignments=[Message(member_id=joined.member_id, assignment=b"assignment")],
    )
    require_success([joined.error_code, synced.error_code])
    return joined


def prepare_heartbeat(port: int) -> RunOnce:
    client = Client(port)
    joined = _join_alone(client, _BEATING_GROUP)
    body = Message(
        group_id=_BEATING_GROUP, generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id=None
    )
    frame = wire.request_frame(ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, body)

    def run() -> None:
        response = wire.decode_reply(ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, client.exchange(frame))
        require_success([response.error_code])

    return run


def prepare_offset_commit(port: int) -> RunOnce:
    client = Client(port)
    joined = _join_alone(client, _COMMITTING_GROUP)
    offsets = itertools.count()

    def run() -> None:
        partition = Message(
            partition_index=0, committed_offset=next(offsets), committed_leader_epoch=0, committed_metadata=""
        )
        response = client.call(
            ApiKey.OFFSET_COMMIT,
            _COMMIT_VERSION,
            group_id=_COMMITTING_GROUP,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=None,
            topics=[Message(name=TOPIC, partitions=[partition])],
        )
        require_success(part.error_code for topic in response.topics for part in topic.partitions)

    return run


def prepare_rebalance(port: int) -> RunOnce:
    """Each run is one generation of the group: all its members join again, one of them with other metadata."""
    clients = [Client(port) for _ in range(_MEMBERS)]
    members = [""] * _MEMBERS

    def join_all(version: int, generation: bytes) -> None:
        for client, member_id in zip(clients, members, strict=True):
            client.send(_join_frame(version, _LARGE_GROUP, member_id, generation))
        for index, client in enumerate(clients):
            response = wire.decode_reply(ApiKey.JOIN_GROUP, version, client.receive())
            require_success([response.error_code])
            members[index] = response.member_id

    join_all(_FIRST_JOIN_VERSION, b"0" * 50)
    generations = itertools.count(1)
    return lambda: join_all(_JOIN_VERSION, b"%050d" % next(generations))


def prepare_transaction(port: int) -> RunOnce:
    client = Client(port)
    producer = client.call(
        ApiKey.INIT_PRODUCER_ID,
        _INIT_VERSION,
        transactional_id=_TRANSACTIONAL_ID,
        transaction_timeout_ms=_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    require_success([producer.error_code])
    text = event_text(_RECORDS * _RECORD_BYTES)
    now_ms = TimestampMs(int(time.time() * 1000))
    records = [
        Record(Offset(index), now_ms, None, text[index * _RECORD_BYTES :][:_RECORD_BYTES]) for index in range(_RECORDS)
    ]
    sequences = itertools.count(0, _RECORDS)

    def run() -> None:
        batch = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=next(sequences),
            transactional=True,
        )
        _run_transaction(client, producer, bytes(batch))

    return run


def _run_transaction(client: Client, producer: Message, batch: bytes) -> None:
    added = client.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        _ADD_VERSION,
        v3_and_below_transactional_id=_TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[Message(name=TOPIC, partitions=[0])],
    )
    require_success(
        part.partition_error_code
        for topic in added.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    )
    topic_data = [Message(name=TOPIC, partition_data=[Message(index=0, records=batch)])]
    produced = client.call(
        ApiKey.PRODUCE,
        wire.PRODUCE_VERSION,
        transactional_id=_TRANSACTIONAL_ID,
        acks=_ACKS_ALL,
        timeout_ms=_TIMEOUT_MS,
        topic_data=topic_data,
    )
    require_success(part.error_code for topic in produced.responses for part in topic.partition_responses)
    ended = client.call(
        ApiKey.END_TXN,
        _END_VERSION,
        transactional_id=_TRANSACTIONAL_ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    require_success([ended.error_code])
