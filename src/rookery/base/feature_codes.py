"""What UpdateFeatures says by numbers (KIP-778); both sides of the protocol use it."""

from enum import IntEnum


class UpgradeType(IntEnum):
    """Which way a level may go; a safe downgrade is one that loses nothing."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
