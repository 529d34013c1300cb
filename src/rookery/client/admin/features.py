"""Describes and updates the cluster's features: supported and finalized levels (KIP-584)."""

from collections.abc import Mapping
from functools import partial

from rookery.base.codes import UpgradeType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart
from rookery.net.channel import software
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import FeatureUpdateKey, SupportedFeatureKey, UpdateFeaturesRequest

_FEATURES_SINCE = 3


@value_class(kw_only=True)
class Feature:
    """`level` is the finalized level, 0 if there is none. Brokers do not report all supported levels to old clients."""

    name: str
    supported_min: int | None
    supported_max: int | None
    level: int


@value_class
class Features:
    """`epoch` grows with the metadata; -1 if the broker does not report it."""

    epoch: int
    features: tuple[Feature, ...]


class FeatureAdmin(AdminPart):
    async def describe_features(self) -> Features:
        """Return the features according to one broker."""
        return await self._retry(self._describe_features)

    async def _describe_features(self) -> Features:
        await self._require(ApiKey.API_VERSIONS, _FEATURES_SINCE, "is too old to have features")
        response = await self._cluster.call(ApiKey.API_VERSIONS, software())
        supported = {row.name: row for row in response.get("supported_features", ())}
        levels = {row.name: row.max_version_level for row in response.get("finalized_features", ())}
        names = sorted(supported.keys() | levels.keys())
        return Features(
            response.get("finalized_features_epoch", -1),
            tuple(_feature(name, supported.get(name), levels.get(name, 0)) for name in names),
        )

    async def update_features(
        self, levels: Mapping[str, int], upgrade_type: UpgradeType, *, validate_only: bool = False
    ) -> None:
        """Set `levels`, all of them or none. Raises ApiError."""
        await self._retry(partial(self._update_features, levels, upgrade_type, validate_only))

    async def _update_features(self, levels: Mapping[str, int], upgrade_type: UpgradeType, validate_only: bool) -> None:
        allow_downgrade = upgrade_type is not UpgradeType.UPGRADE
        updates = [
            FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=upgrade_type, allow_downgrade=allow_downgrade
            )
            for name, level in levels.items()
        ]
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms, feature_updates=updates, validate_only=validate_only
        )
        response = await self._cluster.call_controller(ApiKey.UPDATE_FEATURES, request)
        # Before version 2, the error of a feature may be in its row only.
        for row in (response, *(response.get("results", ()))):
            if row.error_code != ErrorCode.NONE:
                raise ApiError(ErrorCode(row.error_code), row.error_message)


def _feature(name: str, supported: SupportedFeatureKey | None, level: int) -> Feature:
    return Feature(
        name=name,
        supported_min=None if supported is None else supported.min_version,
        supported_max=None if supported is None else supported.max_version,
        level=level,
    )
