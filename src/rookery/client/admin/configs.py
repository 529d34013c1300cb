"""Lists, describes and alters the configs of topics, brokers, groups and client metrics.

Only the broker itself knows its own configs: requests for them go there. All others go to any broker.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, Self

from rookery.base.codes import ConfigOperation, ConfigSource, ResourceType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list, is_transient
from rookery.client.admin.outcomes import Outcome, check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)

_TYPES_SINCE = 1


@value_class
class ConfigResource:
    """A resource with configs, such as a topic, or a broker by its id; an empty broker name means all brokers."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name or '(all)'}"


@value_class
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@value_class(kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@value_class(kw_only=True)
class ResourceConfigs:
    """The configs of one resource, sorted by name, or the error of describing it."""

    resource: ConfigResource
    entries: tuple[ConfigEntry, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this value, or raise its error as ApiError."""
        check(self.error, self.message or str(self.resource))
        return self

    def values(self) -> dict[str, str | None]:
        return {entry.name: entry.value for entry in self.entries}


@value_class
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None = None


class _Result(Protocol):
    """A row of the responses of both APIs."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class ConfigAdmin(AdminPart):
    async def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """Return the resources with configs, of `types` or of all types."""
        kinds = as_list(types, "types")

        async def send() -> list[ConfigResource]:
            if set(kinds) != {ResourceType.CLIENT_METRICS}:
                await self._require(ApiKey.LIST_CONFIG_RESOURCES, _TYPES_SINCE, "lists client metrics only")
            response = await self._cluster.call(
                ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds])
            )
            check(response.error_code, "config resources")
            found = [
                ConfigResource(_kind(row.get("resource_type", ResourceType.CLIENT_METRICS)), row.resource_name)
                for row in response.config_resources
            ]
            return sorted(found, key=lambda resource: (resource.kind, resource.name))

        return await self._retry(send)

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, names: Sequence[str] | None = None, documentation: bool = False
    ) -> list[ResourceConfigs]:
        """Return all configs of `resources`, or those in `names`; in the order of `resources`."""
        wanted = list(dict.fromkeys(as_list(resources, "resources")))
        keys = None if names is None else as_list(names, "names")

        async def send(node: NodeId | None, theirs: Sequence[ConfigResource]) -> list[ResourceConfigs]:
            rows = [
                DescribeConfigsResource(resource_type=r.kind, resource_name=r.name, configuration_keys=keys)
                for r in theirs
            ]
            request = DescribeConfigsRequest(resources=rows, include_synonyms=True, include_documentation=documentation)
            response = await self._call(ApiKey.DESCRIBE_CONFIGS, request, node=node)
            _check_transient(response.results)
            return [_described(row) for row in response.results]

        found: dict[ConfigResource, ResourceConfigs] = {}
        for node, theirs in _by_node(wanted).items():
            found |= {described.resource: described for described in await self._retry(partial(send, node, theirs))}
        return [found[resource] for resource in wanted]

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Change some configs of resources and keep the others. For one resource, all changes are made or none."""
        wanted = {resource: list(theirs) for resource, theirs in changes.items()}

        async def send(node: NodeId | None, theirs: Sequence[ConfigResource]) -> list[Outcome]:
            request = IncrementalAlterConfigsRequest(
                resources=[_altered(r, wanted[r]) for r in theirs], validate_only=validate_only
            )
            response = await self._call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, node=node)
            _check_transient(response.responses)
            return [
                Outcome.of(str(_resource(row.resource_type, row.resource_name)), row.error_code, row.error_message)
                for row in response.responses
            ]

        outcomes: list[Outcome] = []
        for node, theirs in _by_node(wanted).items():
            outcomes += await self._retry(partial(send, node, theirs))
        return outcomes


def _by_node(resources: Iterable[ConfigResource]) -> dict[NodeId | None, list[ConfigResource]]:
    nodes: dict[NodeId | None, list[ConfigResource]] = {}
    for resource in resources:
        of_broker = resource.kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        nodes.setdefault(int(resource.name) if of_broker else None, []).append(resource)
    return nodes


def _check_transient(rows: Iterable[_Result]) -> None:
    """Raise transient errors, so that the whole request is retried: both APIs are idempotent."""
    for row in rows:
        if is_transient(ErrorCode(row.error_code)):
            raise ApiError(ErrorCode(row.error_code), row.error_message)


def _kind(resource_type: int) -> ResourceType:
    return ResourceType(resource_type) if resource_type in ResourceType.__members__.values() else ResourceType.UNKNOWN


def _resource(resource_type: int, name: str) -> ConfigResource:
    return ConfigResource(_kind(resource_type), name)


def _altered(
    resource: ConfigResource, changes: Iterable[ConfigChange]
) -> IncrementalAlterConfigsRequestAlterConfigsResource:
    configs = [
        IncrementalAlterConfigsRequestAlterableConfig(name=c.name, config_operation=c.operation, value=c.value)
        for c in changes
    ]
    return IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configs=configs
    )


def _described(row: DescribeConfigsResult) -> ResourceConfigs:
    return ResourceConfigs(
        resource=_resource(row.resource_type, row.resource_name),
        entries=tuple(sorted((_entry(entry) for entry in row.configs), key=lambda entry: entry.name)),
        error=ErrorCode(row.error_code),
        message=row.error_message,
    )


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = (ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in row.synonyms)
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=ConfigSource(row.config_source),
        read_only=row.read_only,
        sensitive=row.is_sensitive,
        synonyms=tuple(synonyms),
        documentation=row.get("documentation"),
    )
