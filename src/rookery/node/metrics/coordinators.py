"""Metrics of consumer groups and transactions that this broker coordinates."""

from collections import Counter
from collections.abc import Iterator

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.service import GroupCoordinator
from rookery.coordinators.txn.results import ListFilters
from rookery.coordinators.txn.service import TransactionCoordinator
from rookery.telemetry import names
from rookery.telemetry.measurements import Family, single

_CLASSIC_STATES = {
    "Stable": names.GROUPS_STABLE,
    "PreparingRebalance": names.GROUPS_PREPARING,
    "CompletingRebalance": names.GROUPS_COMPLETING,
    "Empty": names.GROUPS_EMPTY,
    "Dead": names.GROUPS_DEAD,
}


def group_families(groups: GroupCoordinator) -> Iterator[Family]:
    """Return nothing while a coordinator loads its groups: half of them would look like a loss."""
    shards = groups.runtime.read_all()
    if isinstance(shards, ErrorCode):
        return
    listed = [(shard.list(), shard.offsets) for shard in shards]
    states = Counter((group.type, group.state) for found, _ in listed for group in found)
    types = Counter(group.type for found, _ in listed for group in found)
    yield single(names.GROUPS, types.total())
    for state, definition in _CLASSIC_STATES.items():
        yield single(definition, states["classic", state])
    yield single(names.GROUP_OFFSETS, sum(len(offsets) for _, offsets in listed))
    yield Family(names.GROUP_COUNT, [((("protocol", kind),), types[kind]) for kind in ("classic", "consumer")])
    consumer = [((("state", state.lower()),), count) for (kind, state), count in states.items() if kind == "consumer"]
    yield Family(names.CONSUMER_GROUPS, consumer)


def transaction_families(transactions: TransactionCoordinator) -> Iterator[Family]:
    listed = transactions.list(ListFilters())
    if isinstance(listed, ErrorCode):
        return
    states = Counter(each.state.name for each in listed)
    yield Family(names.TRANSACTIONAL_IDS, [((("state", state),), count) for state, count in states.items()])
