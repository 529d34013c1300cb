"""The levels of the cluster's features: the first ones, and UpdateFeatures for all features of a request or none.

A new metadata log begins with the level of `metadata.version`, which determines the format of its records, and the
levels of the other features. A log that is older than a feature gets it from the next active controller, if the level
of `metadata.version` allows it.

A level must be supported by this controller and by every registered broker and controller. The request must name the
direction: raising a level needs UPGRADE, lowering it one of the two downgrade types, so that a level is not lowered by
accident. Both downgrade types are accepted for every downgrade, because none of them loses metadata: `metadata.version`
cannot be lowered past a level that changed the format of records. Setting a feature to its current level changes
nothing and is accepted with every type.
"""

from collections.abc import Iterator, Mapping, Sequence

from rookery.base.codes import ResourceType, UpgradeType
from rookery.base.errors import ErrorCode
from rookery.controller.decision import ControllerResult, duplicates
from rookery.metadata.features import (
    ELR_METADATA_VERSION,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    NODE_FEATURES,
    SUPPORTED_FEATURES,
)
from rookery.metadata.image import ClusterImage, TopicImage
from rookery.metadata.records import BrokerFeature, ClearElrRecord, ConfigRecord, FeatureLevelRecord, MetadataRecord
from rookery.metadata.requests import OK, FeatureUpdate, Outcome

_UPGRADE_TYPES = frozenset(UpgradeType)


# The levels of `metadata.version` from which on records have fields that a lower level cannot store.
_RECORD_CHANGES = (23, 30)


def first_levels(image: ClusterImage) -> Iterator[FeatureLevelRecord]:
    """Yield the levels of the features that the image does not have yet."""
    metadata_version = image.features.get(METADATA_VERSION, METADATA_VERSION_LEVEL)
    for feature in SUPPORTED_FEATURES:
        if feature.name not in image.features and (
            feature.name != ELR_VERSION or metadata_version >= ELR_METADATA_VERSION
        ):
            yield FeatureLevelRecord(feature.name, feature.max_supported_version)


def decide_bootstrap(
    image: ClusterImage, bootstrap: Sequence[MetadataRecord], static: Mapping[str, str]
) -> ControllerResult[None]:
    """Return the records with which a new active controller begins.

    `bootstrap` are the records that an empty log begins with. If `min.insync.replicas` is in the configuration file of
    this controller (`static`), it is set for all brokers: a leader that commits with fewer replicas than the controller
    assumes would have replicas in the ELR that lack committed records.
    """
    records = list(bootstrap) if METADATA_VERSION not in image.features else []
    records += first_levels(image.apply(records)[0])
    image, _ = image.apply(records)
    name = "min.insync.replicas"
    if has_elr(image) and name in static and name not in image.broker_default_config():
        records.append(ConfigRecord(ResourceType.BROKER, "", name, static[name]))
    return ControllerResult(tuple(records), None)


def has_elr(image: ClusterImage) -> bool:
    """Return whether the cluster keeps eligible leader replicas (KIP-966)."""
    return image.feature_level(ELR_VERSION) > 0


def decide_update_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], *, kraft_version: int = 0, validate_only: bool = False
) -> ControllerResult[Outcome]:
    """Decide about all features; `kraft.version`, whose level is `kraft_version`, has no record: see `quorum`."""
    named_twice = duplicates(update.name for update in updates)
    if named_twice:
        names = ", ".join(sorted(map(str, named_twice)))
        return ControllerResult((), Outcome(ErrorCode.INVALID_REQUEST, f"named more than once: {names}"))
    current = {**image.features, KRAFT_VERSION: kraft_version}
    levels = {**current, **{update.name: update.level for update in updates}}
    for update in updates:
        problem = _problem(image, update, current.get(update.name, 0)) or _dependency_problem(image, update, levels)
        if problem is not None:
            message = f"no feature was changed: {update.name} cannot be set to level {update.level}: {problem}"
            return ControllerResult((), Outcome(ErrorCode.INVALID_UPDATE_VERSION, message))
    changed = [
        update
        for update in updates
        if update.name != KRAFT_VERSION and update.level != image.feature_level(update.name)
    ]
    records: list[MetadataRecord] = [FeatureLevelRecord(update.name, update.level) for update in changed]
    if has_elr(image) and not levels[ELR_VERSION]:
        records.insert(0, ClearElrRecord(""))
    return ControllerResult(() if validate_only else tuple(records), OK)


def _dependency_problem(image: ClusterImage, update: FeatureUpdate, levels: Mapping[str, int]) -> str | None:
    """Return why the level contradicts the rest of the cluster's metadata; `levels` are those after the request."""
    if update.name == METADATA_VERSION:
        current = image.feature_level(METADATA_VERSION)
        for level in _RECORD_CHANGES:
            if update.level < level <= current:
                return f"it is at level {current}, and records of level {level} may be in the log"
    metadata_version = levels.get(METADATA_VERSION, METADATA_VERSION_LEVEL)
    is_concerned = update.name in (METADATA_VERSION, ELR_VERSION)
    if is_concerned and levels.get(ELR_VERSION) and metadata_version < ELR_METADATA_VERSION:
        return f"{ELR_VERSION} needs {METADATA_VERSION} {ELR_METADATA_VERSION} or higher, and it is {metadata_version}"
    if update.name == ELR_VERSION and not update.level:
        empty = next((topic.name for topic in image.topics.values() if _has_empty_isr(topic)), None)
        if empty is not None:
            return f"a partition of {empty} has no in-sync replica, and only this feature says which one may lead it"
    return None


def _has_empty_isr(topic: TopicImage) -> bool:
    return any(not partition.isr for partition in topic.partitions.values())


def _problem(image: ClusterImage, update: FeatureUpdate, current: int) -> str | None:
    if update.upgrade_type not in _UPGRADE_TYPES:
        return f"there is no upgrade type {update.upgrade_type}"
    for owner, features in _supporters(image):
        problem = _unsupported(features, update)
        if problem is not None:
            return f"{owner} {problem}"
    if update.level < current and update.name == KRAFT_VERSION:
        return "the voters are in the metadata log, and cannot be moved back to the configuration"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return f"it is at level {current}, and lowering it needs a safe or unsafe downgrade"
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"it is at level {current}, so this is not a downgrade"
    return None


def _supporters(image: ClusterImage) -> Iterator[tuple[str, Sequence[BrokerFeature]]]:
    yield "the controller", NODE_FEATURES
    for node_id, broker in image.brokers.items():
        yield f"broker {node_id}", broker.features
    for node_id, controller in image.controllers.items():
        yield f"controller {node_id}", controller.features


def _unsupported(features: Sequence[BrokerFeature], update: FeatureUpdate) -> str | None:
    for feature in features:
        if feature.name == update.name:
            lowest, highest = feature.min_supported_version, feature.max_supported_version
            return None if lowest <= update.level <= highest else f"supports levels {lowest} to {highest}"
    return "does not know this feature"
