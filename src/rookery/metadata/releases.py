"""The releases of Kafka by their level of `metadata.version`, and the features that a new cluster has at each. Pure.

`rookery format --release-version` uses them: the names and the levels are those of `kafka-storage`.
"""

import re
from collections.abc import Mapping
from typing import Final

from rookery.base.errors import ConfigError
from rookery.metadata.features import GROUP_VERSION, METADATA_VERSION, SUPPORTED_FEATURES, TRANSACTION_VERSION

_FIRST_LEVEL: Final = 22
_RELEASES: Final = (
    "4.0-IV0",
    "4.0-IV1",
    "4.0-IV2",
    "4.0-IV3",
    "4.1-IV0",
    "4.1-IV1",
    "4.2-IV0",
    "4.2-IV1",
    "4.3-IV0",
)
LEVELS: Final = {release: level for level, release in enumerate(_RELEASES, _FIRST_LEVEL)}
# The level of metadata.version from which on a new cluster has a feature, and the feature's level.
_SINCE: Final = {
    GROUP_VERSION: (LEVELS["4.0-IV0"], 1),
    TRANSACTION_VERSION: (LEVELS["4.0-IV2"], 2),
    "eligible.leader.replicas.version": (LEVELS["4.1-IV0"], 1),
}


def release_name(level: int) -> str:
    """Return the name of a level of `metadata.version`, such as 4.0-IV0; the number if it has none."""
    return next((release for release, known in LEVELS.items() if known == level), str(level))


def initial_features(release: str | None, chosen: Mapping[str, int]) -> dict[str, int]:
    """Return the levels of a new cluster's features: of the release, or the highest, except for the `chosen` ones.

    A release without `-IVn` stands for its last level. ConfigError if this version of Rookery does not support it.
    """
    if release is not None and METADATA_VERSION in chosen:
        raise ConfigError(f"--release-version already sets {METADATA_VERSION}. Leave out one of the two.")
    known = {feature.name: feature for feature in SUPPORTED_FEATURES}
    for name, level in chosen.items():
        if name not in known:
            raise ConfigError(f"there is no feature {name}; there are: {', '.join(sorted(known))}")
        feature = known[name]
        if not feature.min_supported_version <= level <= feature.max_supported_version:
            lowest, highest = feature.min_supported_version, feature.max_supported_version
            raise ConfigError(f"{name}={level} is not supported, only levels {lowest} to {highest}")
    if release is None:
        defaults = {name: feature.max_supported_version for name, feature in known.items()}
    else:
        level = _level(release)
        defaults = {name: _level_of(name, level) for name in known if name != METADATA_VERSION}
        defaults[METADATA_VERSION] = level
    return defaults | dict(chosen)


def _level(release: str) -> int:
    supported = next(feature for feature in SUPPORTED_FEATURES if feature.name == METADATA_VERSION)
    names = {
        name: level
        for name, level in LEVELS.items()
        if supported.min_supported_version <= level <= supported.max_supported_version
    }
    # The last one of a release comes last.
    short = {name.partition("-")[0]: level for name, level in names.items()}
    found = names.get(release, short.get(re.sub(r"^(\d+\.\d+)\.\d+$", r"\1", release)))
    if found is None:
        raise ConfigError(f"--release-version {release} is not supported; use one of: {', '.join(names)}")
    return found


def _level_of(feature: str, metadata_level: int) -> int:
    since, level = _SINCE.get(feature, (metadata_level + 1, 0))
    return level if metadata_level >= since else 0
