"""Runs over a cluster: the users of `log_run`, with a guarantee for each topic, and a watcher of the logs' ends.

orders   acks=all with idempotence: every acknowledged record is in the log once and in order
clicks   acks=all without idempotence: every acknowledged record is in the log at least once
metrics  acks=1: a new leader may not have what the old one acknowledged; but what a consumer has read stays
"""

import asyncio
from collections.abc import Mapping

from rookery.base.errors import ApiError
from rookery.base.types import TopicName
from rookery.client.admin import NewTopic
from tests.simulation.checkers import ReadRecord, check_at_least_once, check_exactly_once_in_order
from tests.simulation.cluster_checkers import LatestOffsets
from tests.simulation.log_run import LogRun
from tests.simulation.users import OperatorUser, ProducerUser, RenewingUser, choose_names, new_consumer

_SMALL_SEGMENTS = {"segment.ms": "4000", "index.interval.bytes": "500"}
CLUSTER_TOPICS = (
    NewTopic(name="orders", partitions=3, configs=_SMALL_SEGMENTS),
    NewTopic(name="clicks", partitions=2, configs=_SMALL_SEGMENTS),
    NewTopic(name="metrics", partitions=2, configs=_SMALL_SEGMENTS),
)
_PRODUCER_SETTINGS: Mapping[TopicName, Mapping[str, object]] = {
    "orders": {},
    "clicks": {"enable.idempotence": False, "acks": "all"},
    "metrics": {"enable.idempotence": False, "acks": "1"},
}
_DELETE_CHANCE = 0.3


class ClusterRun(LogRun):
    def _new_operator(self) -> OperatorUser:
        return OperatorUser(self._world, self._history, bootstrap=self._site.bootstrap, delete_chance=_DELETE_CHANCE)

    def _start_users(self) -> None:
        super()._start_users()
        renewer = RenewingUser(self._world, bootstrap=self._site.bootstrap)
        self._start(renewer.name, renewer.run())
        self._start("watcher", self._watch())

    def _start_producers(self) -> None:
        for topic, settings in _PRODUCER_SETTINGS.items():
            for name in choose_names(self._random, f"{topic}-producer", 2):
                user = ProducerUser(
                    self._world,
                    self._history,
                    name=name,
                    bootstrap=self._site.bootstrap,
                    partitions=[partition for partition in self._partitions if partition.topic == topic],
                    settings=settings,
                    may_lose=topic == "metrics",
                )
                self._start_producer(name, user)

    async def _watch(self) -> None:
        """Look at the ends of all partitions continuously."""
        random, latest = self._world.new_random(), LatestOffsets(self._world.violations)
        while True:
            try:
                async with new_consumer(self._world, name="watcher", bootstrap=self._site.bootstrap) as consumer:
                    while True:
                        await asyncio.sleep(random.uniform(0.05, 1))
                        for partition, offset in (await consumer.end_offsets(self._partitions)).items():
                            latest.observe("watcher", partition, offset)
            except ApiError as error:
                self._world.note(f"cannot look at the ends: {error}")

    def _check_log(self, log: list[ReadRecord]) -> None:
        for topic in _PRODUCER_SETTINGS:
            history = self._history.only({topic})
            records = [record for record in log if record.partition.topic == topic]
            (check_exactly_once_in_order if topic == "orders" else check_at_least_once)(history, records)
