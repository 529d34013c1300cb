"""UpdateFeatures: raise or lower the feature levels of the cluster, for all features of a request or none.

A level must be supported by this controller and by every registered broker. The request must name the direction:
raising a level needs UPGRADE, lowering it one of the two downgrade types, so that a level is not lowered by accident.
Both downgrade types are accepted for every downgrade, because none of them loses metadata: `metadata.version`, the only
feature where that could happen, has one level. Setting a feature to its current level changes nothing and is accepted
with every type.
"""

from collections.abc import Iterator, Sequence

from rookery.base.codes import UpgradeType
from rookery.base.errors import ErrorCode
from rookery.controller.decision import ControllerResult, duplicates
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.image import ClusterImage
from rookery.metadata.records import BrokerFeature, FeatureLevelRecord
from rookery.metadata.requests import OK, FeatureUpdate, Outcome

_UPGRADE_TYPES = frozenset(UpgradeType)


def decide_update_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> ControllerResult[Outcome]:
    named_twice = duplicates(update.name for update in updates)
    if named_twice:
        names = ", ".join(sorted(map(str, named_twice)))
        return ControllerResult((), Outcome(ErrorCode.INVALID_REQUEST, f"named more than once: {names}"))
    for update in updates:
        problem = _problem(image, update)
        if problem is not None:
            message = f"no feature was changed: {update.name} cannot be set to level {update.level}: {problem}"
            return ControllerResult((), Outcome(ErrorCode.INVALID_UPDATE_VERSION, message))
    changed = [update for update in updates if update.level != image.feature_level(update.name)]
    records = tuple(FeatureLevelRecord(update.name, update.level) for update in changed)
    return ControllerResult(() if validate_only else records, OK)


def _problem(image: ClusterImage, update: FeatureUpdate) -> str | None:
    if update.upgrade_type not in _UPGRADE_TYPES:
        return f"there is no upgrade type {update.upgrade_type}"
    current = image.feature_level(update.name)
    for owner, features in _supporters(image):
        problem = _unsupported(features, update)
        if problem is not None:
            return f"{owner} {problem}"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return f"it is at level {current}, and lowering it needs a safe or unsafe downgrade"
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"it is at level {current}, so this is not a downgrade"
    return None


def _supporters(image: ClusterImage) -> Iterator[tuple[str, Sequence[BrokerFeature]]]:
    yield "the controller", SUPPORTED_FEATURES
    for node_id, broker in image.brokers.items():
        yield f"broker {node_id}", broker.features


def _unsupported(features: Sequence[BrokerFeature], update: FeatureUpdate) -> str | None:
    for feature in features:
        if feature.name == update.name:
            lowest, highest = feature.min_supported_version, feature.max_supported_version
            return None if lowest <= update.level <= highest else f"supports levels {lowest} to {highest}"
    return "does not know this feature"
