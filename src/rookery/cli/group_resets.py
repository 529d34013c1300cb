"""The work of `rookery groups reset-offsets`: looks up offsets, plans the changes, commits them."""

from collections.abc import Iterable, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TimestampMs, TopicName, TopicPartition
from rookery.cli.errors import CommandError
from rookery.cli.resets import Change, PartitionFacts, Reset, ToGiven, TopicChoice, ToTimestamp, choose, plan
from rookery.client.admin import EARLIEST, LATEST, Admin, OffsetAndMetadata


class ResetRun:
    def __init__(self, admin: Admin, group_id: str) -> None:
        self._admin = admin
        self._group_id = group_id

    async def plan(self, reset: Reset, choices: Sequence[TopicChoice]) -> list[Change]:
        await self._require_no_members()
        committed = await self._admin.committed_offsets(self._group_id)
        if not choices and not isinstance(reset, ToGiven) and not committed:
            raise CommandError(f"group {self._group_id} has no committed offsets; name the topics with --topic")
        try:
            counts = await self._partition_counts({choice.topic for choice in choices})
            chosen = choose(choices, counts, committed)
            if isinstance(reset, ToGiven):
                chosen = sorted(tp for tp in reset.offsets if not choices or tp in chosen)
            return plan(reset, await self._facts(reset, chosen, committed))
        except ValueError as error:
            raise CommandError(str(error)) from None

    async def execute(self, changes: Sequence[Change]) -> None:
        offsets = {change.partition: OffsetAndMetadata(change.new) for change in changes}
        for tp, code in (await self._admin.commit_offsets(self._group_id, offsets)).items():
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                # The coordinator's reply to a commit from outside the group while the group has members.
                await self._require_no_members()
            if code != ErrorCode.NONE:
                raise ApiError(code, f"group {self._group_id}, partition {tp}")

    async def _require_no_members(self) -> None:
        (group,) = await self._admin.describe_groups([self._group_id])
        if group.error is ErrorCode.GROUP_ID_NOT_FOUND:
            # A reset may prepare a group that does not exist yet.
            return
        if group.check().members:
            count = f"{len(group.members)} active member{'s' if len(group.members) > 1 else ''}"
            raise CommandError(
                f"group {self._group_id} has {count} ({group.state}): stop them before resetting its offsets"
            )

    async def _partition_counts(self, topics: Iterable[TopicName]) -> dict[TopicName, int]:
        described = await self._admin.describe_topics(topics)
        for topic in described:
            if topic.error != ErrorCode.NONE:
                raise ApiError(topic.error, f"topic {topic.name}")
        return {topic.name: len(topic.partitions) for topic in described}

    async def _facts(
        self, reset: Reset, partitions: Sequence[TopicPartition], committed: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, PartitionFacts]:
        earliest = await self._offsets(partitions, EARLIEST)
        latest = await self._offsets(partitions, LATEST)
        at_time = await self._offsets(partitions, reset.timestamp_ms) if isinstance(reset, ToTimestamp) else {}
        return {
            tp: PartitionFacts(
                committed=committed[tp].offset if tp in committed else None,
                earliest=earliest[tp],
                latest=latest[tp],
                at_timestamp=at_time[tp] if at_time.get(tp, -1) >= 0 else None,
            )
            for tp in partitions
        }

    async def _offsets(
        self, partitions: Sequence[TopicPartition], timestamp_ms: TimestampMs
    ) -> dict[TopicPartition, Offset]:
        found = await self._admin.list_offsets(dict.fromkeys(partitions, timestamp_ms))
        for tp, result in found.items():
            if result.error != ErrorCode.NONE:
                raise ApiError(result.error, f"partition {tp}")
        return {tp: result.offset for tp, result in found.items()}
