"""Finds the first record at or after an offset that a consumer would get, with its timestamp.

Opening batches needs modules of the consumer, which are imported when the method is first called.
"""

from collections.abc import Mapping

from rookery.base.types import Offset, TopicPartition
from rookery.client.admin.base import AdminPart, is_transient
from rookery.client.first_record import FirstRecord


class FirstRecordAdmin(AdminPart):
    async def first_records(
        self, positions: Mapping[TopicPartition, Offset], *, read_committed: bool = False
    ) -> dict[TopicPartition, FirstRecord]:
        """Return for each partition the first record at or after its offset that a consumer would get.

        With `read_committed`, records of aborted and of open transactions do not count.
        """
        from rookery.client.consume.first_records import FirstRecordSearch

        search = FirstRecordSearch(self._cluster, read_committed=read_committed, retriable=is_transient)
        return await search.run(positions)
