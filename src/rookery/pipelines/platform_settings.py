"""Checks that the settings below `platform` are settings of the clients, with values that these accept. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from rookery.base.config_key import ConfigKey, parse_value
from rookery.base.errors import ConfigError
from rookery.client.settings.admin import ADMIN_KEYS, AdminSettings
from rookery.client.settings.consumer import CONSUMER_KEYS, ConsumerSettings
from rookery.client.settings.producer import PRODUCER_KEYS, ProducerSettings
from rookery.pipelines.explanations import with_file_keys
from rookery.pipelines.fields import suggestion
from rookery.pipelines.spec import Location, Pipeline, Problem, TopicSink, TopicSource
from rookery.serdes.settings import REGISTRY_KEYS, RegistrySettings
from rookery.spark.option_table import CLIENT_PREFIX, REFUSED_READ_KEYS, REFUSED_WRITE_KEYS, REGISTRY_PREFIX

_URL: Final = f"{REGISTRY_PREFIX}url"
_TABLES: Final[tuple[Mapping[str, ConfigKey], ...]] = (
    ADMIN_KEYS,
    CONSUMER_KEYS,
    PRODUCER_KEYS,
    {REGISTRY_PREFIX + name: key for name, key in REGISTRY_KEYS.items()},
)
_KNOWN: Final = frozenset({_URL, *(name for table in _TABLES for name in table)})


class _Client(NamedTuple):
    """A client that the pipeline needs. `options` are the client settings of its source or sink, with their prefix;
    `location` is where its problems are reported.
    """

    keys: Mapping[str, ConfigKey]
    parse: Callable[[Mapping[str, object]], object]
    options: Mapping[str, str]
    location: Location


def find_wrong_settings(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield the problems of single settings; if there are none, those of their combinations."""
    single = list(_check_single(pipeline))
    yield from single or _check_together(pipeline)


def _check_single(pipeline: Pipeline) -> Iterator[Problem]:
    reads = any(isinstance(source, TopicSource) for source in pipeline.sources.values())
    writes = any(isinstance(sink, TopicSink) for sink in pipeline.sinks)
    refused = {**(REFUSED_READ_KEYS if reads else {}), **(REFUSED_WRITE_KEYS if writes else {})}
    for name, text in pipeline.platform.items():
        location = pipeline.platform_locations[name]
        if name not in _KNOWN:
            yield Problem(location, f"platform has no key {name}{_similar(name)}")
        elif name in refused:
            yield Problem(location, f"platform cannot have {name}: {with_file_keys(refused[name])}")
        for message in dict.fromkeys(_value_problems(name, text)):
            yield Problem(location, message)


def _similar(name: str) -> str:
    hint = suggestion(name, _KNOWN)
    return hint if "did you mean" in hint else ": use settings of the clients, and schema.registry.*"


def _value_problems(name: str, text: str) -> Iterator[str]:
    for table in _TABLES:
        try:
            if name in table:
                parse_value(table[name], text)
        except ConfigError as error:
            yield str(error)


def _check_together(pipeline: Pipeline) -> Iterator[Problem]:
    """Parse the settings as each client of the pipeline will; sources and sinks may have their own settings."""
    problems: dict[str, Problem] = {}
    if pipeline.bootstrap_servers:
        for client in _clients(pipeline):
            own = {key.removeprefix(CLIENT_PREFIX): text for key, text in client.options.items()}
            config = {name: text for name, text in {**pipeline.platform, **own}.items() if name in client.keys}
            for message in _config_errors(client.parse, config):
                problems.setdefault(message, Problem(client.location, message))
    registry = {
        name.removeprefix(REGISTRY_PREFIX): text
        for name, text in pipeline.platform.items()
        if name.startswith(REGISTRY_PREFIX) and name != _URL
    }
    for message in _config_errors(RegistrySettings.parse, registry):
        problems[message] = Problem(pipeline.platform_location, f"{REGISTRY_PREFIX}{message}")
    yield from problems.values()


def _clients(pipeline: Pipeline) -> Iterator[_Client]:
    yield _Client(ADMIN_KEYS, AdminSettings.parse, {}, pipeline.platform_location)
    if pipeline.on_error == "dead-letter":
        yield _Client(PRODUCER_KEYS, ProducerSettings.parse, {}, pipeline.platform_location)
    for part in (*pipeline.sources.values(), *pipeline.sinks):
        if not isinstance(part, TopicSource | TopicSink):
            continue
        own = {name: text for name, text in part.options.items() if name.startswith(CLIENT_PREFIX)}
        location = part.location if own else pipeline.platform_location
        if isinstance(part, TopicSource):
            yield _Client(CONSUMER_KEYS, ConsumerSettings.parse, own, location)
        else:
            yield _Client(PRODUCER_KEYS, ProducerSettings.parse, own, location)


def _config_errors(parse: Callable[[Mapping[str, object]], object], config: Mapping[str, object]) -> list[str]:
    try:
        parse(config)
    except ConfigError as error:
        return str(error).splitlines()
    return []
