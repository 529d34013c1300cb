"""Feature levels change only in the requested direction, only to levels that every broker supports, and together."""

from dataclasses import replace

import pytest

from rookery.base.codes import UpgradeType
from rookery.base.errors import ErrorCode
from rookery.controller.features import decide_update_features
from rookery.metadata.features import (
    GROUP_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
)
from rookery.metadata.records import BrokerFeature, FeatureLevelRecord
from rookery.metadata.requests import OK, FeatureUpdate
from tests.controller.cluster import broker, carry_out, image_of

UP, SAFE, UNSAFE = UpgradeType
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
        (FeatureUpdate(METADATA_VERSION, METADATA_VERSION_LEVEL - 1, UNSAFE), "levels 22 to 22"),
        (FeatureUpdate(METADATA_VERSION, 0, SAFE), "levels 22 to 22"),
        (FeatureUpdate("kraft.version", 1, UP), "the controller does not know this feature"),
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
    image, _ = LOWERED.apply([broker(4)])
    rejected = decide_update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 1)]).results
    assert "broker 4 does not know" in str(rejected.message)


def test_a_request_names_a_feature_only_once() -> None:
    update = FeatureUpdate(TRANSACTION_VERSION, 1, SAFE)
    decision = decide_update_features(CLUSTER, [update, update])
    assert (decision.records, decision.results.code) == ((), ErrorCode.INVALID_REQUEST)


def test_an_empty_request() -> None:
    assert decide_update_features(CLUSTER, []).results is OK
