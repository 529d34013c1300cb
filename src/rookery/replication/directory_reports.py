"""Reports to the controller in which log directory each replica of this node is: AssignReplicasToDirs (KIP-858).

Only a broker with several log directories does: when one of them fails, the controller must know which partitions need
another leader. One request is in flight at a time; what arrives meanwhile goes into the next one together. A report is
repeated until the controller answers it; an error for a single partition is final, because its metadata has changed and
the new metadata leads to another report, or none.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

import structlog

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, TopicId
from rookery.metadata.controller_link import ControllerLink
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)

logger = structlog.get_logger(__name__)

_TIMEOUT_S = 30.0
_RETRY_PAUSE_S = 0.05


class ReportedReplica(NamedTuple):
    topic_id: TopicId
    partition: PartitionIndex


class DirectoryReports:
    """The reports of one node that are not answered yet."""

    def __init__(self, controller: ControllerLink, *, node_id: NodeId, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._waiting: dict[ReportedReplica, UUID] = {}
        self._task: asyncio.Task[None] | None = None

    def report(self, replica: ReportedReplica, directory: UUID) -> None:
        """Report soon that a replica is in a directory."""
        self._waiting[replica] = directory
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                sent = {replica: self._waiting.pop(replica) for replica in list(self._waiting)[:ITEMS_PER_SLICE]}
                if not await self._send(sent):
                    # A newer report of the same replica wins.
                    self._waiting = {**sent, **self._waiting}
                    await asyncio.sleep(_RETRY_PAUSE_S)
        finally:
            self._task = None

    async def _send(self, sent: Mapping[ReportedReplica, UUID]) -> bool:
        """Send a request; returns False if it must be sent again."""
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), directories=_directories(sent)
        )
        try:
            response = await self._controller.send(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request, timeout_s=_TIMEOUT_S)
            code = ErrorCode(response.error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code, "the controller refused to note log directories")
        except ApiError as error:
            logger.warning("cannot report log directories", partitions=len(sent), error=str(error))
            return False
        return True


def _directories(sent: Mapping[ReportedReplica, UUID]) -> list[AssignReplicasToDirsRequestDirectoryData]:
    found: dict[UUID, dict[TopicId, list[PartitionIndex]]] = {}
    for replica, directory in sent.items():
        found.setdefault(directory, {}).setdefault(replica.topic_id, []).append(replica.partition)
    return [
        AssignReplicasToDirsRequestDirectoryData(
            id_=directory,
            topics=[
                AssignReplicasToDirsRequestTopicData(
                    topic_id=topic_id,
                    partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=index) for index in indexes],
                )
                for topic_id, indexes in topics.items()
            ],
        )
        for directory, topics in found.items()
    ]
