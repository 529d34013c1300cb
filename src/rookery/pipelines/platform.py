"""Checks a pipeline against its platform: topics exist, the registry responds. Creates missing topics.

`check_platform` needs no Spark: it returns in well under the seconds that the start of a JVM takes.
"""

from collections.abc import Iterable, Iterator

from rookery.base.errors import ApiError, ErrorCode, RookeryError
from rookery.client.errors import AuthenticationError
from rookery.client.settings.admin import ADMIN_KEYS
from rookery.client.sync import Admin, NewTopic
from rookery.dead_letters.standard import dead_letter_topic
from rookery.pipelines.databases import check_databases
from rookery.pipelines.fields import suggestion
from rookery.pipelines.origins import dead_letter_sinks, dead_letter_sources, sink_dead_letter_topic
from rookery.pipelines.spec import Pipeline, PipelineError, Problem, TopicSink, TopicSource
from rookery.serdes import RegistryClient
from rookery.spark.option_table import REGISTRY_PREFIX

_URL = f"{REGISTRY_PREFIX}url"


def check_platform(pipeline: Pipeline) -> None:
    """Raise PipelineError with all problems of the platform and of databases, if there are any."""
    problems = [*check_topics(pipeline), *check_registry(pipeline), *check_databases(pipeline)]
    if problems:
        raise PipelineError(problems)


def check_topics(pipeline: Pipeline) -> list[Problem]:
    """Check that the topics that the pipeline reads exist."""
    sources = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    if not sources and not written_topics(pipeline):
        return []
    try:
        with _admin(pipeline) as admin:
            existing = {topic.name for topic in admin.list_topics()}
    except AuthenticationError as error:
        return [Problem(pipeline.platform_location, str(error))]
    except RookeryError as error:
        address = pipeline.bootstrap_servers
        return [Problem(pipeline.platform_location, f"no broker answers at bootstrap.servers {address}: {error}")]
    return [
        Problem(source.location, f"there is no topic {topic}{_similar(topic, existing)}")
        for source in sources
        for topic in source.topics
        if topic not in existing
    ]


def _similar(topic: str, existing: Iterable[str]) -> str:
    hint = suggestion(topic, existing)
    return hint if "did you mean" in hint else f": rookery topics create {topic}"


def written_topics(pipeline: Pipeline) -> dict[str, int | None]:
    """Return the topics that the pipeline writes to, with their partition counts in case they are created; None leaves
    the count to the broker.
    """
    written: dict[str, int | None] = {
        sink.topic: sink.partitions for sink in pipeline.sinks if isinstance(sink, TopicSink)
    }
    for name in dead_letter_sources(pipeline):
        source = pipeline.sources[name]
        if isinstance(source, TopicSource):
            named = pipeline.dead_letter_topic
            written |= {named or dead_letter_topic(topic): None for topic in source.topics}
    topics = (sink_dead_letter_topic(pipeline, sink) for sink in dead_letter_sinks(pipeline))
    written |= {topic: None for topic in topics if topic is not None}
    return written


def create_topics(pipeline: Pipeline) -> list[str]:
    """Create the missing topics that the pipeline writes to; return their names. Raises ApiError."""
    wanted = written_topics(pipeline)
    if not wanted:
        return []
    with _admin(pipeline) as admin:
        existing = {topic.name for topic in admin.list_topics()}
        missing = [
            NewTopic(name) if partitions is None else NewTopic(name, partitions=partitions)
            for name, partitions in wanted.items()
            if name not in existing
        ]
        outcomes = admin.create_topics(missing) if missing else []
    for outcome in outcomes:
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(outcome.error, f"topic {outcome.name}: {outcome.message or 'it cannot be created'}")
    return [topic.name for topic in missing]


def check_registry(pipeline: Pipeline) -> Iterator[Problem]:
    if pipeline.registry_url is None:
        return
    try:
        with registry_client(pipeline) as client:
            client.list_types()
    except RookeryError as error:
        yield Problem(pipeline.platform_location, str(error))


def registry_client(pipeline: Pipeline) -> RegistryClient:
    settings = {
        key.removeprefix(REGISTRY_PREFIX): value
        for key, value in pipeline.platform.items()
        if key.startswith(REGISTRY_PREFIX) and key != _URL
    }
    return RegistryClient(pipeline.platform[_URL], {"max.retries": "0", **settings})


def _admin(pipeline: Pipeline) -> Admin:
    return Admin({name: text for name, text in pipeline.platform.items() if name in ADMIN_KEYS})
