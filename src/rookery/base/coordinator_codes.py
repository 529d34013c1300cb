"""What FindCoordinator says by numbers; both sides of the protocol use it."""

from enum import IntEnum


class KeyType(IntEnum):
    """What a coordinator looks after."""

    GROUP = 0
    TRANSACTION = 1
