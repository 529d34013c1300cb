"""Whether the settings below `platform` are some that the clients know, with values that they take. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rookery.base.config_key import ConfigKey, parse_value
from rookery.base.errors import ConfigError
from rookery.client.settings.admin import ADMIN_KEYS, AdminSettings
from rookery.client.settings.consumer import CONSUMER_KEYS, ConsumerSettings
from rookery.client.settings.producer import PRODUCER_KEYS, ProducerSettings
from rookery.serdes.settings import REGISTRY_KEYS, RegistrySettings
from rookery.spark.option_table import REFUSED_READ_KEYS, REFUSED_WRITE_KEYS, REGISTRY_PREFIX
from rookery.spark.pipelines.explaining import in_words_of_the_file
from rookery.spark.pipelines.fields import nearest
from rookery.spark.pipelines.spec import Pipeline, Problem, TopicSink, TopicSource

_URL: Final = f"{REGISTRY_PREFIX}url"
_TABLES: Final[tuple[Mapping[str, ConfigKey], ...]] = (
    ADMIN_KEYS,
    CONSUMER_KEYS,
    PRODUCER_KEYS,
    {REGISTRY_PREFIX + name: key for name, key in REGISTRY_KEYS.items()},
)
_KNOWN: Final = frozenset({_URL, *(name for table in _TABLES for name in table)})


def find_wrong_settings(pipeline: Pipeline) -> Iterator[Problem]:
    """What is wrong with single settings; if nothing is, what does not go together."""
    single = list(_check_single(pipeline))
    yield from single or _check_together(pipeline)


def _check_single(pipeline: Pipeline) -> Iterator[Problem]:
    reads = any(isinstance(source, TopicSource) for source in pipeline.sources.values())
    writes = any(isinstance(sink, TopicSink) for sink in pipeline.sinks)
    refused = {**(REFUSED_READ_KEYS if reads else {}), **(REFUSED_WRITE_KEYS if writes else {})}
    for name, text in pipeline.platform.items():
        place = pipeline.platform_places[name]
        if name not in _KNOWN:
            yield Problem(place, f"platform has no {name}{_similar(name)}")
        elif name in refused:
            yield Problem(place, f"platform cannot have {name}: {in_words_of_the_file(refused[name])}")
        for message in dict.fromkeys(_value_problems(name, text)):
            yield Problem(place, message)


def _similar(name: str) -> str:
    hint = nearest(name, _KNOWN)
    return hint if "did you mean" in hint else ": its keys are those of the clients, and schema.registry.*"


def _value_problems(name: str, text: str) -> Iterator[str]:
    for table in _TABLES:
        try:
            if name in table:
                parse_value(table[name], text)
        except ConfigError as error:
            yield str(error)


def _check_together(pipeline: Pipeline) -> Iterator[Problem]:
    """As each client will see it that the pipeline needs."""
    clients: list[tuple[Mapping[str, ConfigKey], Callable[[Mapping[str, object]], object]]] = []
    if pipeline.bootstrap_servers:
        clients.append((ADMIN_KEYS, AdminSettings.parse))
        if any(isinstance(source, TopicSource) for source in pipeline.sources.values()):
            clients.append((CONSUMER_KEYS, ConsumerSettings.parse))
        if pipeline.on_error == "dead-letter" or any(isinstance(sink, TopicSink) for sink in pipeline.sinks):
            clients.append((PRODUCER_KEYS, ProducerSettings.parse))
    messages: list[str] = []
    for keys, parse in clients:
        messages += _refusals(parse, {name: text for name, text in pipeline.platform.items() if name in keys})
    registry = {
        name.removeprefix(REGISTRY_PREFIX): text
        for name, text in pipeline.platform.items()
        if name.startswith(REGISTRY_PREFIX) and name != _URL
    }
    messages += (f"{REGISTRY_PREFIX}{message}" for message in _refusals(RegistrySettings.parse, registry))
    yield from (Problem(pipeline.platform_place, message) for message in dict.fromkeys(messages))


def _refusals(parse: Callable[[Mapping[str, object]], object], config: Mapping[str, object]) -> list[str]:
    try:
        parse(config)
    except ConfigError as error:
        return str(error).splitlines()
    return []
