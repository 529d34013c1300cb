"""Selects the assignors that a member offers, by name."""

from collections.abc import Sequence

from rookery.base.errors import ConfigError
from rookery.client.membership.assignors.base import Assignor, RebalanceProtocol
from rookery.client.membership.assignors.range import RangeAssignor
from rookery.client.membership.assignors.round_robin import RoundRobinAssignor
from rookery.client.membership.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

_KEY = "partition.assignment.strategy"
_BUILT_IN = {each.name: each for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)}


def choose_assignors(names: Sequence[str], custom: Sequence[Assignor] = ()) -> list[Assignor]:
    """Return the assignors with these names; built-in ones are new instances, because some keep state of their member.

    Custom assignors that `names` does not contain come first. Raises ConfigError for unknown names, and for assignors
    without a common rebalance protocol.
    """
    by_name = {each.name: each for each in custom}
    unnamed = [each for each in custom if each.name not in names]
    chosen: list[Assignor] = [*unnamed]
    for name in names:
        if name in by_name:
            chosen.append(by_name[name])
        elif name in _BUILT_IN:
            chosen.append(_BUILT_IN[name]())
        else:
            known = ", ".join([*_BUILT_IN, *by_name])
            raise ConfigError(f"{_KEY}: there is no assignor {name!r}, only {known}")
    common_protocol(chosen)
    return chosen


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the newest protocol that all assignors support: the coordinator may choose any of them."""
    common = frozenset(RebalanceProtocol).intersection(*(each.protocols for each in assignors))
    if not assignors or not common:
        raise ConfigError(f"{_KEY}: {', '.join(each.name for each in assignors)} have no rebalance protocol in common")
    return max(common)
