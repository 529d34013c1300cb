"""Looks up the topics, groups and users of a cluster and the subjects of a registry, for suggestions and completion.

`parameters` are those of the command: its `bootstrap_server` or its `registry`, if they were given.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from rookery.cli.platform import BROKER, REGISTRY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rookery.client.admin import Admin

Found = TypeVar("Found")

# The user waits for the names, which are only a help.
_TIMEOUT_S = 2.0


def topic_names(parameters: Mapping[str, object]) -> list[str]:
    return _list_names(parameters, lambda admin: admin.list_topics(), lambda topic: topic.name)


def group_names(parameters: Mapping[str, object]) -> list[str]:
    return _list_names(parameters, lambda admin: admin.list_groups(), lambda group: group.group_id)


def user_names(parameters: Mapping[str, object]) -> list[str]:
    return _list_names(parameters, lambda admin: admin.describe_scram_users(), lambda user: user.name)


def subject_names(parameters: Mapping[str, object]) -> list[str]:
    from rookery.cli.registry_access import connect_registry

    url = parameters.get("registry") or REGISTRY
    quick = [f"request.timeout.ms={round(_TIMEOUT_S * 1000)}", "max.retries=0"]
    with connect_registry(str(url), quick) as registry:
        return registry.list_subjects()


def _list_names(
    parameters: Mapping[str, object],
    list_all: "Callable[[Admin], Awaitable[list[Found]]]",
    name_of: "Callable[[Found], str]",
) -> list[str]:
    from rookery.cli.client_configs import admin_config
    from rookery.client.admin import Admin

    config = admin_config(str(parameters.get("bootstrap_server") or BROKER), _TIMEOUT_S)

    async def list_names() -> list[str]:
        async with asyncio.timeout(_TIMEOUT_S), Admin(config) as admin:
            return sorted(name_of(each) for each in await list_all(admin))

    return asyncio.run(list_names())
