"""A transactional producer's requests, as frames to the broker of the harness."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.replication.replica import Replica
from tests.broker import harness
from tests.broker.harness import NODE_ID, Broker, batch, settle

TRANSACTIONS_TOPIC = "__transaction_state"
# One partition, so that a test can delay the coordinator of all ids.
CONFIG = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "5"}
FOLLOWER = 2
_STATE_TIMEOUT_S = 60.0


class Producer(NamedTuple):
    producer_id: int
    epoch: int
    transactional_id: str = "t"

    def batch(self, *values: bytes, sequence: int = 0, **changes: Any) -> bytes:
        fields: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "transactional": True,
        }
        return batch(*values, **(fields | changes))


def play(path: Path, scene: Callable[[Broker], Coroutine[Any, Any, None]], **config: str) -> None:
    """Run `scene` with a broker, a transaction coordinator, and the topic "orders" with two partitions."""

    async def main(broker: Broker) -> None:
        await broker.create_topic("orders", partitions=2)
        await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=["t"])
        await scene(broker)

    harness.play(path, main, CONFIG, **config)


async def init(broker: Broker, version: int = 5, **fields: Any) -> Message:
    request = {"transactional_id": "t", "transaction_timeout_ms": 60_000} | fields
    return await broker.call(ApiKey.INIT_PRODUCER_ID, version, **request)


async def begin(broker: Broker, transactional_id: str = "t") -> Producer:
    response = await init(broker, transactional_id=transactional_id)
    assert response.error_code == ErrorCode.NONE
    return Producer(response.producer_id, response.producer_epoch, transactional_id)


def adding(producer: Producer, partitions: Sequence[int] = (0,), topic: str = "orders") -> dict[str, Any]:
    """Return the fields of AddPartitionsToTxn v0 to v3."""
    return {
        "v3_and_below_transactional_id": producer.transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [Message(name=topic, partitions=list(partitions))],
    }


async def add(broker: Broker, producer: Producer, partitions: Sequence[int] = (0,), version: int = 3) -> ErrorCode:
    response = await broker.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, **adding(producer, partitions))
    (topic,) = response.results_by_topic_v3_and_below
    (code,) = {partition.partition_error_code for partition in topic.results_by_partition}
    return ErrorCode(code)


async def end(broker: Broker, producer: Producer, version: int = 4, *, commit: bool = True) -> Message:
    return await broker.call(ApiKey.END_TXN, version, **ending(producer, commit=commit))


def ending(producer: Producer, *, commit: bool) -> dict[str, Any]:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "committed": commit,
    }


async def describe(broker: Broker, transactional_id: str = "t") -> Message:
    response = await broker.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id])
    (state,) = response.transaction_states
    assert isinstance(state, Message)
    return state


async def await_state(broker: Broker, expected: str) -> None:
    """Wait until the coordinator has the results of its markers."""
    deadline_s = time.monotonic() + _STATE_TIMEOUT_S
    while (found := (await describe(broker)).transaction_state) != expected:
        assert time.monotonic() < deadline_s, f"the transaction is {found} instead of {expected}"
        await asyncio.sleep(0.001)


def lead_with_follower(replica: Replica) -> None:
    """Add a follower: records are committed when it has read them."""
    replicas = (NODE_ID, FOLLOWER)
    replica.state.set_leader(NODE_ID, leader_epoch=0, partition_epoch=1, replicas=replicas, isr=replicas)


class SlowCoordinator:
    """Adds a follower to the log of transactions: responses of the coordinator wait until `catch_up` is called."""

    def __init__(self, broker: Broker) -> None:
        self._replica: Replica = broker.replica(TRANSACTIONS_TOPIC)
        lead_with_follower(self._replica)

    async def catch_up(self) -> None:
        self._replica.read(self._replica.log.end_offset, 1000, node_id=FOLLOWER)
        await settle()
