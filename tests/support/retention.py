"""A setting for brokers whose tests write records with timestamps of years ago.

An embedded broker looks for what is too old every second: on a slow machine it removed such records before they were
read.
"""

from typing import Final

KEEPS_OLD_RECORDS: Final = {"log.retention.ms": "-1"}
