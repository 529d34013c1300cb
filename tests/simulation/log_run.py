"""Runs with producers, readers, members of consumer groups and an operator, which check the log and the assignments.

There is a group of bare members for each protocol, and a group whose members are Rookery's consumers.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from rookery.base.errors import ApiError
from tests.simulation.checkers import (
    History,
    ReadRecord,
    check_confirmed_topics,
    check_exactly_once_in_order,
    check_read_before_commit,
    check_stable_log,
)
from tests.simulation.classic_members import ClassicMember
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.groups import Group, NewMember
from tests.simulation.own_members import KINDS, OwnMember
from tests.simulation.run import Counts, Run, Scenario
from tests.simulation.users import (
    OperatorUser,
    ProducerUser,
    ReaderUser,
    choose_names,
    list_topics,
    read_everything,
)
from tests.simulation.world import World

_PEACE_S = 3.0


class LogRun(Run):
    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._history = History(
            world.violations, unsynced_topics=scenario.unsynced_topics, loses_power=scenario.loses_power
        )
        self._site.on_power_loss(self._history.on_power_loss)
        self._readers = self._new_group("packing", partial(OwnMember, kind=self._random.choice(KINDS)), reads=True)
        self._groups = [
            self._new_group("billing", ClassicMember),
            self._new_group("shipping", ConsumerMember),
            self._readers,
        ]
        self._producers: dict[str, asyncio.Task[None]] = {}

    @property
    def counts(self) -> Counts:
        return Counts(
            acknowledged=self._history.acknowledged_count,
            read=self._history.read_count,
            commits=sum(group.history.commit_count for group in self._groups),
            generations=sum(group.history.generation for group in self._groups),
        )

    def _new_group(self, name: str, new_member: NewMember, *, reads: bool = False) -> Group:
        """Create a group. If its members read records, they do not subscribe to unsynced topics.

        A power loss may remove the records of these topics, and with them the position of a reader.
        """
        lost_topics = self._scenario.unsynced_topics if reads and self._scenario.loses_power else frozenset()
        return Group(
            self._world,
            self._world.violations,
            name=name,
            new_member=new_member,
            bootstrap=self._site.bootstrap,
            partitions=[partition for partition in self._partitions if partition.topic not in lost_topics],
            hosts=self._hosts,
        )

    def _start_users(self) -> None:
        self._start_producers()
        self._start_readers()
        operator = self._new_operator()
        self._start(operator.name, operator.run())

    def _new_operator(self) -> OperatorUser:
        return OperatorUser(self._world, self._history, bootstrap=self._site.bootstrap)

    def _churn(self, duration_s: float) -> list[Coroutine[Any, Any, None]]:
        return [group.churn(duration_s) for group in self._groups]

    async def _settle(self) -> None:
        for group in self._groups:
            group.calm_down()
        await self._await_users(self._producers)
        for group in self._groups:
            await group.check_convergence()
        await asyncio.sleep(_PEACE_S)

    def _start_producers(self) -> None:
        for name in choose_names(self._random, "producer", 3):
            user = ProducerUser(
                self._world, self._history, name=name, bootstrap=self._site.bootstrap, partitions=self._partitions
            )
            self._start_producer(name, user)

    def _start_producer(self, name: str, user: ProducerUser) -> None:
        pause_s = self._random.choice((0.05, 0.2, 0.5))
        count = round(1.5 * self._scenario.faults_s / pause_s)
        self._producers[name] = self._start(name, user.run(count, pause_s))

    def _start_readers(self) -> None:
        for name in choose_names(self._random, "reader", 2):
            user = ReaderUser(
                self._world, self._history, name=name, bootstrap=self._site.bootstrap, partitions=self._partitions
            )
            self._start(name, user.run())

    async def _audit(self) -> None:
        try:
            log = await self._start("auditor", read_everything(self._world, self._site.bootstrap, self._partitions))
            committed = {group: await self._start("auditor", group.check_offsets()) for group in self._groups}
            topics = await self._start("auditor", list_topics(self._site.bootstrap))
        except ApiError as error:
            self._violate("exactly-once-in-order", f"the log cannot be read at the end: {error}")
            return
        self._check_log(log)
        check_read_before_commit(self._readers.history, log, committed[self._readers])
        check_stable_log(self._history, log)
        check_confirmed_topics(self._history, topics)

    def _check_log(self, log: list[ReadRecord]) -> None:
        check_exactly_once_in_order(self._history, log)
