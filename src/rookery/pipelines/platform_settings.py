"""Whether the settings below `platform` are some that the clients know, with values that they take. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from rookery.base.config_key import ConfigKey, parse_value
from rookery.base.errors import ConfigError
from rookery.client.settings.admin import ADMIN_KEYS, AdminSettings
from rookery.client.settings.consumer import CONSUMER_KEYS, ConsumerSettings
from rookery.client.settings.producer import PRODUCER_KEYS, ProducerSettings
from rookery.pipelines.explanations import in_words_of_the_file
from rookery.pipelines.fields import nearest
from rookery.pipelines.spec import Pipeline, Place, Problem, TopicSink, TopicSource
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
    """`options` are those of a source or a sink, with their prefix; `place` is where to complain."""

    keys: Mapping[str, ConfigKey]
    parse: Callable[[Mapping[str, object]], object]
    options: Mapping[str, str]
    place: Place


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
    """As each client will see it that the pipeline needs: sources and sinks may have settings of their own."""
    problems: dict[str, Problem] = {}
    if pipeline.bootstrap_servers:
        for client in _clients(pipeline):
            own = {key.removeprefix(CLIENT_PREFIX): text for key, text in client.options.items()}
            config = {name: text for name, text in {**pipeline.platform, **own}.items() if name in client.keys}
            for message in _refusals(client.parse, config):
                problems.setdefault(message, Problem(client.place, message))
    registry = {
        name.removeprefix(REGISTRY_PREFIX): text
        for name, text in pipeline.platform.items()
        if name.startswith(REGISTRY_PREFIX) and name != _URL
    }
    for message in _refusals(RegistrySettings.parse, registry):
        problems[message] = Problem(pipeline.platform_place, f"{REGISTRY_PREFIX}{message}")
    yield from problems.values()


def _clients(pipeline: Pipeline) -> Iterator[_Client]:
    yield _Client(ADMIN_KEYS, AdminSettings.parse, {}, pipeline.platform_place)
    if pipeline.on_error == "dead-letter":
        yield _Client(PRODUCER_KEYS, ProducerSettings.parse, {}, pipeline.platform_place)
    for part in (*pipeline.sources.values(), *pipeline.sinks):
        if not isinstance(part, TopicSource | TopicSink):
            continue
        own = {name: text for name, text in part.options.items() if name.startswith(CLIENT_PREFIX)}
        place = part.place if own else pipeline.platform_place
        if isinstance(part, TopicSource):
            yield _Client(CONSUMER_KEYS, ConsumerSettings.parse, own, place)
        else:
            yield _Client(PRODUCER_KEYS, ProducerSettings.parse, own, place)


def _refusals(parse: Callable[[Mapping[str, object]], object], config: Mapping[str, object]) -> list[str]:
    try:
        parse(config)
    except ConfigError as error:
        return str(error).splitlines()
    return []
