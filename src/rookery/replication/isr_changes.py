"""Sends the ISR changes that leaders on this node propose to the controller: AlterPartition.

One request is in flight at a time; proposals that arrive meanwhile go into the next one together. A request is repeated
until the controller answers. The answer for a partition decides:

    answer                                         the proposal
    no error                                       is the new ISR
    INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED    is withdrawn: the controller is sure that it was not applied
    a final error (see `_FINAL`)                   stays, with its maximal ISR, until new metadata replaces it: the
                                                   controller may have applied it, now or when it was sent before
    any other error                                is sent again
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from rookery.base.bounds import ISR_CHANGES_PER_SLICE, ITEMS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.codes import RecoveryState
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.slices import Slices
from rookery.base.types import NodeId, TopicId, TopicPartition
from rookery.metadata.controller_link import ControllerLink
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from rookery.replication.isr import AlteredIsr, IsrProposal
from rookery.replication.replica import Replica

logger = structlog.get_logger(__name__)

_TIMEOUT_S = 30.0
_RETRY_PAUSE_S = 0.05
_WITHDRAWN: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_FINAL: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class IsrCounts:
    """How often the in-sync replicas of a partition grew or shrank, and how often the controller did not agree."""

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failures = 0

    def add(self, proposal: IsrProposal) -> None:
        """Count an accepted proposal. The state may have it already: the metadata can be faster than the answer."""
        if proposal.growth > 0:
            self.expands += 1
        elif proposal.growth < 0:
            self.shrinks += 1


class IsrChanges:
    """The proposals of one node that are not answered yet."""

    def __init__(
        self,
        controller: ControllerLink,
        *,
        node_id: NodeId,
        broker_epoch: Callable[[], int],
        clock: Clock,
        slices: Slices,
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._slices = slices
        # Replicas whose proposal is to be sent, in order.
        self._waiting: dict[TopicPartition, Replica] = {}
        self._task: asyncio.Task[None] | None = None
        self.counts = IsrCounts()

    def propose(self, replica: Replica) -> None:
        """Send the replica's current proposal soon."""
        self._waiting[replica.state.topic_partition] = replica
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                sent = self._take()
                if sent:
                    await self._send(sent)
        finally:
            self._task = None

    def _take(self) -> list[tuple[Replica, IsrProposal]]:
        """Return the proposals of the next request."""
        taken: list[tuple[Replica, IsrProposal]] = []
        for partition in list(self._waiting)[:ITEMS_PER_SLICE]:
            replica = self._waiting.pop(partition)
            if replica.state.proposal is not None:
                taken.append((replica, replica.state.proposal))
        return taken

    async def _send(self, sent: list[tuple[Replica, IsrProposal]]) -> None:
        request = AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=self._topics(sent)
        )
        try:
            response = await self._controller.send(ApiKey.ALTER_PARTITION, request, timeout_s=_TIMEOUT_S)
            code = ErrorCode(response.error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code, "the controller refused to alter partitions")
        except ApiError as error:
            logger.warning("cannot change in-sync replicas", partitions=len(sent), error=str(error))
            self.counts.failures += len(sent)
            await self._retry(replica for replica, _ in sent)
            return
        await self._retry(await self._process(sent, response))

    async def _retry(self, replicas: Iterable[Replica]) -> None:
        """Put replicas back, after a pause if there are any."""
        again = {replica.state.topic_partition: replica for replica in replicas if replica.state.proposal is not None}
        if again:
            # Newer proposals of the same partitions are in the same place: a replica has at most one.
            self._waiting.update(again)
            await asyncio.sleep(_RETRY_PAUSE_S)

    def _topics(self, sent: Iterable[tuple[Replica, IsrProposal]]) -> list[AlterPartitionRequestTopicData]:
        topics: dict[TopicId, list[AlterPartitionRequestPartitionData]] = {}
        for replica, proposal in sent:
            members = [
                BrokerState(broker_id=node, broker_epoch=self._broker_epoch() if node == self._node_id else epoch)
                for node, epoch in proposal.isr
            ]
            topics.setdefault(replica.state.topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=replica.state.topic_partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.members),
                    new_isr_with_epochs=members,
                    leader_recovery_state=RecoveryState.RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return [AlterPartitionRequestTopicData(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()]

    async def _process(
        self, sent: Iterable[tuple[Replica, IsrProposal]], response: AlterPartitionResponse
    ) -> list[Replica]:
        """Apply the answers; returns the replicas whose proposals must be sent again."""
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        again: list[Replica] = []
        async for some in self._slices.of(sent, ISR_CHANGES_PER_SLICE):
            for replica, proposal in some:
                state = replica.state
                answer = answers.get((state.topic_id, state.topic_partition.partition))
                if answer is None or not self._settle(replica, proposal, answer):
                    again.append(replica)
        return again

    def _settle(self, replica: Replica, proposal: IsrProposal, answer: AlterPartitionResponsePartitionData) -> bool:
        """Apply one answer; returns False if the proposal must be sent again."""
        code, now_s = ErrorCode(answer.error_code), self._clock.monotonic()
        partition = str(replica.state.topic_partition)
        if code is ErrorCode.NONE:
            altered = AlteredIsr(
                answer.leader_epoch,
                answer.partition_epoch,
                tuple(answer.isr),
                answer.leader_recovery_state == RecoveryState.RECOVERING,
            )
            logger.info("in-sync replicas changed", partition=partition, isr=list(altered.isr))
            self.counts.add(proposal)
            moved = replica.state.accept(proposal, altered, now_s)
        elif code in _WITHDRAWN:
            logger.info("a change of in-sync replicas was refused", partition=partition, code=code.name)
            self.counts.failures += 1
            moved = replica.state.withdraw(proposal, now_s)
        else:
            if code not in _FINAL:
                return False
            logger.info("a change of in-sync replicas waits for new metadata", partition=partition, code=code.name)
            return True
        replica.isr_settled(moved)
        return True
