"""Builds what a consumer with a group.id needs: one `Committer`, and a `Membership` for how it gets its partitions.

`consume.consumer` calls this: `make_membership` after `subscribe`, `make_manual_membership` after `assign`.
"""

from collections.abc import Sequence
from random import Random

from rookery.client.cluster import Cluster
from rookery.client.membership.assignors.base import Assignor
from rookery.client.membership.assignors.catalogue import choose_assignors
from rookery.client.membership.classic_shell import ClassicMembership
from rookery.client.membership.committer import Committer
from rookery.client.membership.consumer_shell import ConsumerMembership
from rookery.client.membership.interfaces import AssignmentHost, GroupMetrics, Membership
from rookery.client.membership.manual import ManualMembership
from rookery.client.membership.settings import group_settings
from rookery.client.settings.consumer import ConsumerSettings


def make_committer(settings: ConsumerSettings, cluster: Cluster, *, metrics: GroupMetrics | None = None) -> Committer:
    """The one committer of a consumer. It outlives memberships."""
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
    """By group.protocol. `assignors` are custom ones, known by their names beside the built-in ones.

    Raises ConfigError where partition.assignment.strategy names nobody, or assignors that cannot work together.
    """
    group = group_settings(settings)
    if settings.group_protocol == "consumer":
        return ConsumerMembership(
            cluster, group, host=host, committer=committer, metrics=metrics, randomness=randomness or Random()
        )
    chosen = choose_assignors(group.strategies, assignors)
    return ClassicMembership(cluster, group, host=host, committer=committer, assignors=chosen, metrics=metrics)


def make_manual_membership(settings: ConsumerSettings, *, host: AssignmentHost, committer: Committer) -> Membership:
    """For partitions that the user assigned: nothing but commits."""
    return ManualMembership(group_settings(settings), host=host, committer=committer)
