"""An embedded broker for the tests of transactions, once for each protocol."""

import asyncio
from collections.abc import Iterator

import pytest

from rookery.client.cluster import Cluster
from rookery.testing import EmbeddedBroker
from tests.client.produce.transaction_stage import CLASSIC, V2, Stage, set_transaction_version

_SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture(scope="module", params=[CLASSIC, V2], ids=["classic", "v2"])
def transaction_broker(request: pytest.FixtureRequest) -> Iterator[tuple[int, EmbeddedBroker]]:
    """A broker and the level of its feature transaction.version."""

    async def downgrade(broker: EmbeddedBroker) -> None:
        async with Cluster.at(broker.bootstrap_servers) as cluster:
            await set_transaction_version(cluster, request.param)

    with EmbeddedBroker(settings=_SETTINGS) as broker:
        if request.param != V2:
            asyncio.run(downgrade(broker))
        yield request.param, broker


@pytest.fixture
def stage(transaction_broker: tuple[int, EmbeddedBroker], request: pytest.FixtureRequest) -> Iterator[Stage]:
    level, broker = transaction_broker
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    broker.create_topic(name, partitions=2)
    yield Stage(broker, level, name)
    broker.faults.clear()
