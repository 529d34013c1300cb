"""UpdateFeatures (57): raise or lower the levels of the cluster's features (KIP-584, KIP-778).

All features of a request change together or none does, so there is one error, that of the whole request; it names the
feature that failed. INVALID_UPDATE_VERSION for a level or a direction that is not possible, INVALID_REQUEST for a
feature that is named twice.

Versions: v0 allows a downgrade by a flag, which means a safe one. v1 has the kind of change and `validate_only`. v0
and v1 also have a result for each feature; v2 has the overall result only.
"""

from collections.abc import Sequence

from rookery.base.codes import UpgradeType
from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.metadata.requests import FeatureUpdate, Outcome
from rookery.protocol.messages import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPE_SINCE = 1
_TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)


async def handle(context: ClusterContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [_update(row, context.api_version) for row in request.feature_updates]
    submitted = context.services.controller.update_features(updates, validate_only=request.get("validate_only", False))
    outcome = await within(request.timeout_ms, submitted) or _TIMED_OUT
    return UpdateFeaturesResponse(
        error_code=outcome.code,
        error_message=outcome.message,
        results=_results(updates) if outcome.code is ErrorCode.NONE else [],
    )


def _update(row: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version < _UPGRADE_TYPE_SINCE:
        kind = UpgradeType.SAFE_DOWNGRADE if row.get("allow_downgrade") else UpgradeType.UPGRADE
        return FeatureUpdate(row.feature, row.max_version_level, kind)
    return FeatureUpdate(row.feature, row.max_version_level, row.get("upgrade_type", UpgradeType.UPGRADE))


def _results(updates: Sequence[FeatureUpdate]) -> list[UpdatableFeatureResult]:
    return [
        UpdatableFeatureResult(feature=update.name, error_code=ErrorCode.NONE, error_message=None) for update in updates
    ]
