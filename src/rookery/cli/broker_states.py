"""The brokers of a cluster with their shares of leaders and replicas, for `rookery brokers` and `rookery cluster`."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.cli.output import Cell, Styled, print_table
from rookery.cli.partition_states import PartitionState, TopicState, load_partitions, partitions_of
from rookery.client.admin import Admin, Broker, ClusterDescription

_COLUMNS = ("ID", "ADDRESS", "RACK", "STATE", "LEADERS", "PREFERRED", "REPLICAS", "NOT IN SYNC")


class ClusterState(NamedTuple):
    description: ClusterDescription
    topics: list[TopicState]

    @property
    def partitions(self) -> list[PartitionState]:
        return partitions_of(self.topics)

    def broker_rows(self) -> list[dict[str, Any]]:
        return [self.broker_row(broker) for broker in self.description.brokers]

    def broker_row(self, broker: Broker) -> dict[str, Any]:
        node = broker.node_id
        partitions = self.partitions
        return {
            "id": node,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "fenced": node in self.description.fenced,
            "leaders": sum(each.details.leader == node for each in partitions),
            "preferred_leaders": sum(each.details.replicas[:1] == (node,) for each in partitions),
            "replicas": sum(node in each.details.replicas for each in partitions),
            "out_of_sync_replicas": len(out_of_sync(partitions, node)),
        }


async def load_cluster(admin: Admin) -> ClusterState:
    """Request the brokers, the fenced ones as well if the cluster reports them, and all partitions."""
    return ClusterState(await describe_brokers(admin), await load_partitions(admin))


async def describe_brokers(admin: Admin) -> ClusterDescription:
    try:
        return await admin.describe_cluster(include_fenced=True)
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return await admin.describe_cluster()


def out_of_sync(partitions: Iterable[PartitionState], node: NodeId) -> list[PartitionState]:
    """Return the partitions with a replica on `node` that is not in sync."""
    return [each for each in partitions if node in each.details.replicas and node not in each.details.in_sync_replicas]


def print_brokers(rows: Sequence[dict[str, Any]], *, title: str | None = None) -> None:
    print_table(_COLUMNS, [_cells(row) for row in rows], title=title)


def _cells(row: dict[str, Any]) -> tuple[Cell, ...]:
    behind = row["out_of_sync_replicas"]
    return (
        row["id"],
        f"{row['host']}:{row['port']}",
        row["rack"],
        state_cell(is_fenced=row["fenced"]),
        row["leaders"],
        row["preferred_leaders"],
        row["replicas"],
        Styled(str(behind), "yellow" if behind else ""),
    )


def state_cell(*, is_fenced: bool) -> Cell:
    return Styled("fenced", "bold red") if is_fenced else Styled("active", "green")
