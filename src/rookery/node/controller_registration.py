"""Registers a controller of a cluster with the active one, at each start of its process (KIP-919).

The registrations tell operators and brokers the endpoints and features of all controllers, also of those that are not
voters: `rookery quorum add ID` finds the new voter's address there.
"""

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import structlog

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.metadata.controller_link import ControllerLink
from rookery.metadata.features import NODE_FEATURES
from rookery.metadata.records import BrokerEndpoint
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    ControllerRegistrationRequest,
    ControllerRegistrationRequestFeature,
    ControllerRegistrationRequestListener,
)

logger = structlog.get_logger(__name__)

_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 1.0


class ControllerRegistration:
    """The task that registers; it ends when it has succeeded, or with `close`."""

    def __init__(
        self, link: ControllerLink, *, node_id: NodeId, incarnation_id: UUID, listeners: Iterable[BrokerEndpoint]
    ) -> None:
        self._link = link
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation_id,
            zk_migration_ready=False,
            listeners=[
                ControllerRegistrationRequestListener(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in listeners
            ],
            features=[
                ControllerRegistrationRequestFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in NODE_FEATURES
            ],
        )
        self._task = asyncio.get_running_loop().create_task(self._register())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _register(self) -> None:
        while True:
            try:
                response = await self._link.send(ApiKey.CONTROLLER_REGISTRATION, self._request, timeout_s=_TIMEOUT_S)
                if response.error_code == ErrorCode.NONE:
                    return
                reason = f"{ErrorCode(response.error_code).name}: {response.error_message}"
            except ApiError as error:
                reason = str(error)
            logger.warning("this controller could not register", reason=reason)
            await asyncio.sleep(_RETRY_S)
