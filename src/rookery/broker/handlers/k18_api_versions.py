"""ApiVersions (18): the APIs and versions that this listener serves, and the cluster's features (KIP-35, KIP-584).

The first request of most clients. An unknown version gets a v0 response with UNSUPPORTED_VERSION and the table,
from which the client takes the versions of ApiVersions that it may use (KIP-511); the response header is always v0.

Versions: v0 to v2 are empty requests. v3 is flexible and names the client's software, which must be a valid name
(else INVALID_REQUEST). v4 may have supported features whose lowest version is 0; for older versions those are
left out, since their clients do not expect them.
"""

import re
from collections.abc import Mapping

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.metadata.features import KRAFT_VERSION, NODE_FEATURES
from rookery.protocol.api import SERVED, SERVED_BY_CONTROLLERS, ApiKey, VersionRange
from rookery.protocol.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMES_SOFTWARE_SINCE = 3
_ZERO_FEATURE_VERSIONS_SINCE = 4


def handle(context: ClusterContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return _answer(context, request, SERVED)


def handle_on_controller(context: ClusterContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return _answer(context, request, SERVED_BY_CONTROLLERS)


def _answer(
    context: ClusterContext, request: ApiVersionsRequest, served: Mapping[ApiKey, VersionRange]
) -> ApiVersionsResponse:
    if context.api_version >= _NAMES_SOFTWARE_SINCE:
        name, version = request.get("client_software_name", ""), request.get("client_software_version", "")
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return refuse(ErrorCode.INVALID_REQUEST, served)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    known, image = context.services.known_answers.api_versions, context.services.image
    kind = (context.api_version, served is SERVED, context.services.quorum.kraft_version)
    return known.find(image, kind) or known.keep(image, kind, _describe(context, served))


def _describe(context: ClusterContext, served: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    image = context.services.image
    levels = {**image.features, KRAFT_VERSION: context.services.quorum.kraft_version}
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[_row(*each) for each in served.items()],
        supported_features=[
            SupportedFeatureKey(
                name=feature.name, min_version=feature.min_supported_version, max_version=feature.max_supported_version
            )
            for feature in NODE_FEATURES
            if feature.min_supported_version > 0 or context.api_version >= _ZERO_FEATURE_VERSIONS_SINCE
        ],
        # The epoch grows with every change of the metadata: clients use the response with the highest one that they
        # have seen.
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level > 0
        ],
    )


def refuse(error_code: ErrorCode, served: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """Return an error response, without features; after a wrong version with the table, to choose another version."""
    rows = served.items() if error_code is ErrorCode.UNSUPPORTED_VERSION else ()
    return ApiVersionsResponse(error_code=error_code, api_keys=[_row(*each) for each in rows])


def _row(key: ApiKey, versions: VersionRange) -> ApiVersion:
    return ApiVersion(api_key=int(key), min_version=versions.minimum, max_version=versions.maximum)
