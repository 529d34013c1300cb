"""Whether a flow that failed is started again, and when. Pure.

Whatever may be gone a moment later (a broker that restarts, an executor that was lost) is tried again, with longer
pauses; a batch that succeeds makes up for earlier failures. What will fail again in the same way is not.
"""

from typing import Final

from rookery.client.backoff import Backoff
from rookery.spark.query_error import QueryError

BACKOFF: Final = Backoff(first_s=1.0, last_s=60.0)


def restart_pause_s(error: QueryError, failures: int, *, failures_max: int) -> float | None:
    """`failures` counts those since the last batch that succeeded, this one included. None: give up."""
    if failures > failures_max or error.is_lasting:
        return None
    return BACKOFF.pause_s(failures - 1)
