"""Builds the group parts of a consumer with a group.id: one `Committer`, and the `Membership` that fits its settings.

`consume.consumer` calls `make_membership` after `subscribe`, `make_manual_membership` after `assign`.
"""

import asyncio
from collections.abc import Sequence
from random import Random

from rookery.client.cluster import Cluster
from rookery.client.membership.assignors.base import Assignor
from rookery.client.membership.assignors.catalogue import choose_assignors
from rookery.client.membership.classic_shell import ClassicMembership
from rookery.client.membership.committer import Committer
from rookery.client.membership.consumer_shell import ConsumerMembership
from rookery.client.membership.interfaces import AssignmentHost, ConsumerGroupMetadata, GroupMetrics, Membership
from rookery.client.membership.settings import GroupSettings, group_settings
from rookery.client.settings.consumer import ConsumerSettings


def make_committer(settings: ConsumerSettings, cluster: Cluster, *, metrics: GroupMetrics | None = None) -> Committer:
    """Build the committer of a consumer. There is one per consumer, and it outlives memberships."""
    return Committer(cluster, group_settings(settings), metrics=metrics)


def make_membership(
    settings: ConsumerSettings,
    cluster: Cluster,
    *,
    host: AssignmentHost,
    committer: Committer,
    assignors: Sequence[Assignor] = (),
    metrics: GroupMetrics | None = None,
    randomness: Random | None = None,
) -> Membership:
    """Build the membership for group.protocol. `assignors` are custom ones, in addition to the built-in ones.

    Raises ConfigError if partition.assignment.strategy names an unknown assignor, or assignors without a common
    rebalance protocol.
    """
    group = group_settings(settings)
    if settings.group_protocol == "consumer":
        return ConsumerMembership(
            cluster, group, host=host, committer=committer, metrics=metrics, randomness=randomness or Random()
        )
    chosen = choose_assignors(group.strategies, assignors)
    return ClassicMembership(cluster, group, host=host, committer=committer, assignors=chosen, metrics=metrics)


def make_manual_membership(settings: ConsumerSettings, *, host: AssignmentHost, committer: Committer) -> Membership:
    return ManualMembership(group_settings(settings), host=host, committer=committer)


class ManualMembership:
    """The membership of a consumer that assigns its own partitions: it does not join the group, and only commits."""

    def __init__(self, settings: GroupSettings, *, host: AssignmentHost, committer: Committer) -> None:
        self.wake = asyncio.Event()
        self.group_metadata = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        self._host = host
        self._committer = committer

    async def poll(self) -> None:
        self.wake.clear()
        self._committer.auto_commit_when_due(self._host.positions_to_commit)

    def note_poll(self) -> None:
        return

    def request_rejoin(self, reason: str) -> None:
        return

    async def close(self, *, timeout_s: float) -> None:
        await self._committer.auto_commit_now(self._host.positions_to_commit(), timeout_s=timeout_s)
        self._host.replace_assignment(())
