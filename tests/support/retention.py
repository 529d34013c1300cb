"""A setting for brokers whose tests write records with timestamps that are years old.

An embedded broker applies retention every second: on a slow machine it would remove such records before they are read.
"""

from typing import Final

KEEPS_OLD_RECORDS: Final = {"log.retention.ms": "-1"}
