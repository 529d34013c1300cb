"""The dynamic configs of an image: those that were set for topics and brokers at run time."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from rookery.metadata.records import ConfigRecord


class ConfigResource(NamedTuple):
    """A resource with configs. `name` is a topic's name, a broker's id as text, or empty for all brokers."""

    type: int
    name: str


ConfigImages: TypeAlias = Mapping[ConfigResource, Mapping[str, str]]


class ConfigChanges:
    """Applies records to the configs of an image."""

    def __init__(self, before: ConfigImages) -> None:
        self._before = before
        self._changed: dict[ConfigResource, dict[str, str]] = {}

    def change(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        if resource not in self._changed:
            self._changed[resource] = dict(self._before.get(resource, {}))
        if record.value is None:
            self._changed[resource].pop(record.name, None)
        else:
            self._changed[resource][record.name] = record.value

    def remove_all(self, resource: ConfigResource) -> None:
        if resource in self._changed or resource in self._before:
            self._changed[resource] = {}

    def build(self) -> ConfigImages:
        if not self._changed:
            return self._before
        return {resource: values for resource, values in {**self._before, **self._changed}.items() if values}

    def differences(self, after: ConfigImages) -> frozenset[ConfigResource]:
        return frozenset(key for key in self._changed if self._before.get(key) != after.get(key))
