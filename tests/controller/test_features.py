"""Feature levels change only in the requested direction, only to levels that every broker supports, and together."""

from dataclasses import replace
from uuid import UUID

import pytest

from rookery.base.codes import UpgradeType
from rookery.base.errors import ErrorCode
from rookery.controller.features import decide_bootstrap, decide_update_features, first_levels
from rookery.metadata.features import (
    ELR_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
)
from rookery.metadata.image import EMPTY_IMAGE
from rookery.metadata.records import (
    BrokerFeature,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from rookery.metadata.requests import OK, FeatureUpdate
from tests.controller.cluster import broker, carry_out, image_of

UP, SAFE, UNSAFE = UpgradeType
TOPIC = UUID(int=9)
CLUSTER = image_of(
    *(FeatureLevelRecord(feature.name, feature.max_supported_version) for feature in SUPPORTED_FEATURES),
    replace(broker(1), features=SUPPORTED_FEATURES),
    replace(broker(2), features=SUPPORTED_FEATURES),
)
LOWERED = image_of(FeatureLevelRecord(TRANSACTION_VERSION, 0), replace(broker(1), features=SUPPORTED_FEATURES))


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_down_and_up_again(kind: UpgradeType) -> None:
    down = decide_update_features(CLUSTER, [FeatureUpdate(TRANSACTION_VERSION, 0, kind)])
    assert (down.results, down.records) == (OK, (FeatureLevelRecord(TRANSACTION_VERSION, 0),))
    lowered = carry_out(CLUSTER, down)
    up = decide_update_features(lowered, [FeatureUpdate(TRANSACTION_VERSION, 2)])
    assert carry_out(lowered, up) == CLUSTER


def test_validating_changes_nothing() -> None:
    decision = decide_update_features(CLUSTER, [FeatureUpdate(TRANSACTION_VERSION, 1, SAFE)], validate_only=True)
    assert (decision.results, decision.records) == (OK, ())


@pytest.mark.parametrize("kind", [UP, SAFE, UNSAFE])
def test_the_current_level_is_no_change(kind: UpgradeType) -> None:
    update = FeatureUpdate(METADATA_VERSION, METADATA_VERSION_LEVEL, kind)
    decision = decide_update_features(CLUSTER, [update])
    assert (decision.results, decision.records) == (OK, ())


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(TRANSACTION_VERSION, 1, UP), "lowering it needs a safe or unsafe downgrade"),
        (FeatureUpdate(TRANSACTION_VERSION, 3, UP), "the controller supports levels 0 to 2"),
        (FeatureUpdate(TRANSACTION_VERSION, -1, SAFE), "the controller supports levels 0 to 2"),
        (FeatureUpdate(TRANSACTION_VERSION, 2, 0), "no upgrade type 0"),
        (FeatureUpdate(TRANSACTION_VERSION, 2, 4), "no upgrade type 4"),
        (FeatureUpdate(METADATA_VERSION, METADATA_VERSION_LEVEL - 1, UNSAFE), "records of level 30 may be in the log"),
        (FeatureUpdate(METADATA_VERSION, 22, SAFE), "records of level 23 may be in the log"),
        (FeatureUpdate(METADATA_VERSION, 0, SAFE), "levels 22 to 30"),
        (FeatureUpdate("kraft.version", 1, UP), "broker 1 does not know this feature"),
        (FeatureUpdate("kraft.version", 2, UP), "the controller supports levels 0 to 1"),
        (FeatureUpdate("no.version", 1, UP), "the controller does not know this feature"),
    ],
)
def test_rejected_updates(update: FeatureUpdate, reason: str) -> None:
    decision = decide_update_features(CLUSTER, [FeatureUpdate(GROUP_VERSION, 0, SAFE), update])
    assert decision.records == (), "not even the valid update"
    assert decision.results.code is ErrorCode.INVALID_UPDATE_VERSION
    assert update.name in str(decision.results.message)
    assert reason in str(decision.results.message)


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_downgrade_does_not_raise(kind: UpgradeType) -> None:
    decision = decide_update_features(LOWERED, [FeatureUpdate(TRANSACTION_VERSION, 1, kind)])
    assert decision.results.code is ErrorCode.INVALID_UPDATE_VERSION


def test_every_broker_must_support_the_level() -> None:
    older = replace(broker(3), features=(BrokerFeature(TRANSACTION_VERSION, 0, 1),))
    image, _ = LOWERED.apply([older])
    assert decide_update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 1)]).results is OK
    rejected = decide_update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 2)]).results
    assert "broker 3 supports levels 0 to 1" in str(rejected.message)
    image, _ = LOWERED.apply([RegisterControllerRecord(controller_id=9, incarnation_id=TOPIC, endpoints=())])
    rejected = decide_update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 1)]).results
    assert "controller 9 does not know" in str(rejected.message)
    image, _ = LOWERED.apply([broker(4)])
    rejected = decide_update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 1)]).results
    assert "broker 4 does not know" in str(rejected.message)


AT_LEVEL_22 = image_of(
    FeatureLevelRecord(METADATA_VERSION, 22), replace(broker(1), features=SUPPORTED_FEATURES), TopicRecord("a", TOPIC)
)


def test_a_new_log_gets_all_features() -> None:
    assert list(first_levels(EMPTY_IMAGE)) == [
        FeatureLevelRecord(feature.name, feature.max_supported_version) for feature in SUPPORTED_FEATURES
    ]
    assert list(first_levels(CLUSTER)) == []


def test_an_old_log_gets_the_features_that_its_level_allows() -> None:
    assert [record.name for record in first_levels(AT_LEVEL_22)] == [GROUP_VERSION, TRANSACTION_VERSION]


def test_the_first_records_of_a_log() -> None:
    given = (FeatureLevelRecord(METADATA_VERSION, 22), FeatureLevelRecord(GROUP_VERSION, 0))
    decision = decide_bootstrap(EMPTY_IMAGE, given, {"min.insync.replicas": "2"})
    assert decision.records == (*given, FeatureLevelRecord(TRANSACTION_VERSION, 2)), "the level has no ELR"
    assert decide_bootstrap(carry_out(EMPTY_IMAGE, decision), given, {}).records == (), "the log has begun"


def test_controllers_and_leaders_agree_on_the_minimum_of_in_sync_replicas() -> None:
    decision = decide_bootstrap(EMPTY_IMAGE, (), {"min.insync.replicas": "2"})
    assert decision.records[-1] == ConfigRecord(4, "", "min.insync.replicas", "2")
    assert decide_bootstrap(carry_out(EMPTY_IMAGE, decision), (), {"min.insync.replicas": "3"}).records == ()


def test_eligible_leaders_need_their_records() -> None:
    elr, metadata_version = FeatureUpdate(ELR_VERSION, 1), FeatureUpdate(METADATA_VERSION, 30)
    rejected = decide_update_features(AT_LEVEL_22, [elr]).results
    assert "needs metadata.version 23 or higher, and it is 22" in str(rejected.message)
    assert decide_update_features(AT_LEVEL_22, [metadata_version, elr]).results is OK


def test_eligible_leaders_are_forgotten_when_the_feature_is_switched_off() -> None:
    image = image_of(
        *(FeatureLevelRecord(feature.name, feature.max_supported_version) for feature in SUPPORTED_FEATURES),
        TopicRecord("a", TOPIC),
        PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=(1,), elr=(2,), leader=1),
    )
    off = FeatureUpdate(ELR_VERSION, 0, SAFE)
    decision = decide_update_features(image, [off])
    assert decision.records == (ClearElrRecord(""), FeatureLevelRecord(ELR_VERSION, 0))
    assert carry_out(image, decision).topics["a"].partitions[0].elr == ()
    leaderless, _ = image.apply([PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(), leader=-1)])
    rejected = decide_update_features(leaderless, [off]).results
    assert "a partition of a has no in-sync replica" in str(rejected.message)


def test_a_request_names_a_feature_only_once() -> None:
    update = FeatureUpdate(TRANSACTION_VERSION, 1, SAFE)
    decision = decide_update_features(CLUSTER, [update, update])
    assert (decision.records, decision.results.code) == ((), ErrorCode.INVALID_REQUEST)


def test_an_empty_request() -> None:
    assert decide_update_features(CLUSTER, []).results is OK
