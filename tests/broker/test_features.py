"""UpdateFeatures, and what clients see of the features."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker.harness import Broker, running

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


async def update(broker: Broker, *changes: tuple[str, int, int], version: int = 2, **fields: Any) -> Message:
    rows = [
        Message(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE)
        for name, level, kind in changes
    ]
    return await broker.call(
        ApiKey.UPDATE_FEATURES, version, **{"timeout_ms": 60_000, "validate_only": False} | fields, feature_updates=rows
    )


def finalized(broker: Broker) -> tuple[int, dict[str, int]]:
    response = broker.call_now(ApiKey.API_VERSIONS, 4, client_software_name="librdkafka", client_software_version="2.0")
    return response.finalized_features_epoch, {
        feature.name: feature.max_version_level for feature in response.finalized_features
    }


def test_clients_see_the_change_in_a_newer_epoch(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            before, levels = finalized(broker)
            assert levels == {
                "metadata.version": 30,
                "eligible.leader.replicas.version": 1,
                GROUP_VERSION: 1,
                TRANSACTION_VERSION: 2,
            }
            assert (await update(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == ErrorCode.NONE
            between, levels = finalized(broker)
            assert (between > before, levels[TRANSACTION_VERSION]) == (True, 1)
            assert (await update(broker, (TRANSACTION_VERSION, 0, UNSAFE))).error_code == ErrorCode.NONE
            after, levels = finalized(broker)
            assert (after > between, TRANSACTION_VERSION in levels) == (True, False), "level 0 is not listed"
        async with running(tmp_path) as broker:
            assert TRANSACTION_VERSION not in finalized(broker)[1], "a restart does not raise the level"
            assert (await update(broker, (TRANSACTION_VERSION, 2, UPGRADE))).error_code == ErrorCode.NONE
            assert finalized(broker)[1][TRANSACTION_VERSION] == 2

    asyncio.run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((TRANSACTION_VERSION, 0, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        ((TRANSACTION_VERSION, 3, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        (("metadata.version", 21, SAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (("unheard.of", 1, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        ((GROUP_VERSION, 0, SAFE), ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_error_for_all(tmp_path: Path, version: int, change: tuple[str, int, int], code: ErrorCode) -> None:
    """A request with an error changes nothing, and its response has no results per feature."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            image = broker.services.image
            response = await update(broker, (GROUP_VERSION, 0, SAFE), change, version=version)
            assert response.error_code == code
            assert change[0] in response.error_message
            assert response.get("results", []) == []
            assert broker.services.image is image

    asyncio.run(main())


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            image = broker.services.image
            response = await update(broker, (TRANSACTION_VERSION, 0, SAFE), validate_only=True)
            assert response.error_code == ErrorCode.NONE
            assert broker.services.image is image

    asyncio.run(main())


def test_groups_of_the_new_protocol_can_be_switched_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await update(broker, (GROUP_VERSION, 0, SAFE))
            beat = broker.call_now(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                1,
                group_id="g",
                member_id="m",
                member_epoch=0,
                instance_id=None,
                rack_id=None,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                subscribed_topic_regex=None,
                server_assignor=None,
                topic_partitions=[],
            )
            assert beat.error_code == ErrorCode.UNSUPPORTED_VERSION
            described = broker.call_now(
                ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False
            )
            assert [group.error_code for group in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]

    asyncio.run(main())
