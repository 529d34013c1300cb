"""The cluster's features, against a scripted broker."""

import pytest

from rookery.base.codes import UpgradeType
from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import Feature
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.fake_broker import Responder


def updated(code: ErrorCode, *row_codes: ErrorCode) -> Responder:
    rows = [Message(feature="f", error_code=row_code, error_message="row") for row_code in row_codes]
    return lambda version, request: Message(throttle_time_ms=0, error_code=code, error_message="all", results=rows)


@pytest.mark.parametrize("version", range(3))
def test_update_features_in_every_version(version: int) -> None:
    answer = in_turn(updated(ErrorCode.NOT_CONTROLLER), updated(ErrorCode.NONE, ErrorCode.NONE))
    _, broker = run_with(
        {ApiKey.UPDATE_FEATURES: answer},
        lambda admin: admin.update_features({"f": 1}, UpgradeType.SAFE_DOWNGRADE),
        UPDATE_FEATURES=version,
    )
    _, request = broker.requests_of(ApiKey.UPDATE_FEATURES)
    (update,) = request.feature_updates
    assert (update.feature, update.max_version_level) == ("f", 1)
    assert update.get("allow_downgrade", True)
    assert update.get("upgrade_type", 2) == 2


@pytest.mark.parametrize(
    ("version", "answer", "message"),
    [
        (2, updated(ErrorCode.INVALID_UPDATE_VERSION), "all"),
        (1, updated(ErrorCode.INVALID_UPDATE_VERSION), "all"),
        (1, updated(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION), "row"),
    ],
)
def test_an_update_that_is_rejected(version: int, answer: Responder, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        run_with(
            {ApiKey.UPDATE_FEATURES: answer},
            lambda admin: admin.update_features({"f": 1}, UpgradeType.UPGRADE),
            UPDATE_FEATURES=version,
        )
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_describe_features() -> None:
    def answer(version: int, request: Message) -> Message:
        keys = (ApiKey.API_VERSIONS, ApiKey.METADATA)
        return Message(
            error_code=0,
            throttle_time_ms=0,
            api_keys=[Message(api_key=key, min_version=0, max_version=DEFINED[key].maximum) for key in keys],
            supported_features=[Message(name="a", min_version=0, max_version=2)],
            finalized_features=[Message(name="b", max_version_level=3, min_version_level=3)],
            finalized_features_epoch=12,
        )

    found, _ = run_with({ApiKey.API_VERSIONS: answer}, lambda admin: admin.describe_features())
    assert found.epoch == 12
    assert found.features == (
        Feature(name="a", supported_min=0, supported_max=2, level=0),
        Feature(name="b", supported_min=None, supported_max=None, level=3),
    )
    with pytest.raises(ApiError, match="too old"):
        run_with({}, lambda admin: admin.describe_features(), API_VERSIONS=2)
