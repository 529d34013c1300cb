"""Commits the offsets of finished micro-batches to a consumer group, so that any Kafka tool shows the query's lag.

The query itself never reads them. A failed commit is logged and not retried for a while, so that a query does not wait
for an unavailable coordinator.
"""

import logging
from collections.abc import Mapping
from typing import Final

from rookery.base.clock import Clock
from rookery.base.errors import ApiError, ErrorCode
from rookery.client.consume.records import OffsetAndMetadata
from rookery.spark.clients import admin_for
from rookery.spark.failures import SourceError
from rookery.spark.offsets import Offsets

_LOG: Final = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 5000
_PAUSE_S: Final = 30.0


class GroupOffsets:
    def __init__(self, config: Mapping[str, str], group_id: str, *, clock: Clock) -> None:
        limit_ms = str(_TIMEOUT_MS)
        self._config = {**config, "default.api.timeout.ms": limit_ms, "request.timeout.ms": limit_ms}
        self._group_id = group_id
        self._clock = clock
        self._committed: Offsets = {}
        self._paused_until_s = 0.0

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets that changed since the last commit."""
        changed = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if not changed or self._clock.monotonic() < self._paused_until_s:
            return
        wanted = {tp: OffsetAndMetadata(offset) for tp, offset in changed.items()}
        try:
            codes = admin_for(self._config).commit_offsets(self._group_id, wanted)
        except (ApiError, SourceError) as error:
            self._pause(str(error))
            return
        self._committed |= {tp: changed[tp] for tp, code in codes.items() if code is ErrorCode.NONE}
        failed = {code.name for code in codes.values() if code is not ErrorCode.NONE}
        if failed:
            self._pause(", ".join(sorted(failed)))

    def _pause(self, reason: str) -> None:
        self._paused_until_s = self._clock.monotonic() + _PAUSE_S
        _LOG.warning("offsets are not committed to group %s (option groupId): %s", self._group_id, reason)
