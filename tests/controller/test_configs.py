"""AlterConfigs and IncrementalAlterConfigs: the operations, every error code, all changes of a resource or none."""

from uuid import UUID

import pytest

from rookery.base.codes import ConfigOperation, ResourceType
from rookery.base.errors import ErrorCode
from rookery.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from rookery.controller.topics import decide_create_topics
from rookery.metadata.features import ELR_VERSION
from rookery.metadata.image import ConfigResource
from rookery.metadata.records import ClearElrRecord, ConfigRecord, FeatureLevelRecord, TopicRecord
from rookery.metadata.requests import ConfigChange, NewTopic, ResourceChange
from tests.controller.cluster import ONE, broker, carry_out, context, image_of

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
IMAGE = carry_out(
    ONE,
    decide_create_topics(
        ONE, [NewTopic(name="t", configs=(("retention.ms", "5"), ("cleanup.policy", "delete")))], context()
    ),
)


def change(resource: ConfigResource, name: str, value: str | None, operation: int = 0) -> ResourceChange:
    return ResourceChange(resource, (ConfigChange(name, value, operation),))


@pytest.mark.parametrize(
    ("item", "record"),
    [
        (change(TOPIC, "retention.ms", "6"), ConfigRecord(2, "t", "retention.ms", "6")),
        (change(TOPIC, "retention.ms", None, ConfigOperation.DELETE), ConfigRecord(2, "t", "retention.ms", None)),
        (
            change(TOPIC, "cleanup.policy", "compact", ConfigOperation.APPEND),
            ConfigRecord(2, "t", "cleanup.policy", "delete,compact"),
        ),
        (
            change(TOPIC, "cleanup.policy", "delete", ConfigOperation.SUBTRACT),
            ConfigRecord(2, "t", "cleanup.policy", ""),
        ),
        (
            change(TOPIC, "leader.replication.throttled.replicas", "0:1,1:1", ConfigOperation.APPEND),
            ConfigRecord(2, "t", "leader.replication.throttled.replicas", "0:1,1:1"),
        ),
        (change(BROKER, "log.retention.ms", "9"), ConfigRecord(4, "1", "log.retention.ms", "9")),
        (change(ALL_BROKERS, "log.cleaner.backoff.ms", "9"), ConfigRecord(4, "", "log.cleaner.backoff.ms", "9")),
        (
            change(ALL_BROKERS, "log.cleanup.policy", "compact", ConfigOperation.APPEND),
            ConfigRecord(4, "", "log.cleanup.policy", "delete,compact"),
        ),
    ],
)
def test_incremental_operations(item: ResourceChange, record: ConfigRecord) -> None:
    decision = decide_incremental_alter_configs(IMAGE, [item], context())
    assert [result.outcome.code for result in decision.results] == [ErrorCode.NONE]
    assert decision.records == (record,)
    assert decide_incremental_alter_configs(IMAGE, [item], context(), validate_only=True).records == ()


@pytest.mark.parametrize(
    "item",
    [
        change(TOPIC, "retention.ms", "5"),
        change(TOPIC, "segment.ms", None, ConfigOperation.DELETE),
        change(TOPIC, "cleanup.policy", "delete", ConfigOperation.APPEND),
        change(TOPIC, "cleanup.policy", "compact", ConfigOperation.SUBTRACT),
        change(BROKER, "node.id", None, ConfigOperation.DELETE),
    ],
)
def test_a_request_without_a_change_writes_nothing(item: ResourceChange) -> None:
    decision = decide_incremental_alter_configs(IMAGE, [item], context())
    assert [result.outcome.code for result in decision.results] == [ErrorCode.NONE]
    assert decision.records == ()


def test_alter_replaces_everything() -> None:
    item = ResourceChange(TOPIC, (ConfigChange("retention.ms", "7"), ConfigChange("segment.ms", "8")))
    decision = decide_alter_configs(IMAGE, [item], context())
    assert decision.records == (
        ConfigRecord(2, "t", "cleanup.policy", None),
        ConfigRecord(2, "t", "retention.ms", "7"),
        ConfigRecord(2, "t", "segment.ms", "8"),
    )
    after = carry_out(IMAGE, decision)
    assert after.topic_config("t") == {"retention.ms": "7", "segment.ms": "8"}
    assert carry_out(after, decide_alter_configs(after, [ResourceChange(TOPIC, ())], context())).configs == {}


REFUSED = [
    (change(TOPIC, "nope", "1"), ErrorCode.INVALID_CONFIG),
    (change(TOPIC, "retention.ms", "x"), ErrorCode.INVALID_CONFIG),
    (change(TOPIC, "retention.ms", None), ErrorCode.INVALID_REQUEST),
    (change(TOPIC, "remote.storage.enable", "true"), ErrorCode.INVALID_CONFIG),
    (change(ConfigResource(2, ""), "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(2, "a/b"), "retention.ms", "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (change(ConfigResource(2, "u"), "retention.ms", "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (change(BROKER, "nope", "1"), ErrorCode.INVALID_CONFIG),
    (change(BROKER, "node.id", "2"), ErrorCode.INVALID_REQUEST),
    (change(BROKER, "num.io.threads", "2"), ErrorCode.INVALID_REQUEST),
    (change(BROKER, "log.retention.ms", "x"), ErrorCode.INVALID_REQUEST),
    (change(BROKER, "log.cleaner.max.compaction.lag.ms", "4"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(4, "x"), "log.retention.ms", "1"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(4, "-1"), "log.retention.ms", "1"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(4, "2"), "log.retention.ms", "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
    (change(ConfigResource(ResourceType.UNKNOWN, "x"), "a", "1"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(ResourceType.BROKER_LOGGER, "1"), "a", "1"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(ResourceType.CLIENT_METRICS, "m"), "a", "1"), ErrorCode.INVALID_REQUEST),
    (change(ConfigResource(ResourceType.GROUP, "g"), "a", "1"), ErrorCode.INVALID_REQUEST),
    (
        ResourceChange(TOPIC, (ConfigChange("retention.ms", "1"), ConfigChange("retention.ms", "2"))),
        ErrorCode.INVALID_REQUEST,
    ),
    (
        ResourceChange(TOPIC, (ConfigChange("min.compaction.lag.ms", "2"), ConfigChange("max.compaction.lag.ms", "1"))),
        ErrorCode.INVALID_CONFIG,
    ),
]


@pytest.mark.parametrize(("item", "code"), REFUSED)
@pytest.mark.parametrize("decide", [decide_alter_configs, decide_incremental_alter_configs])
def test_invalid_requests(decide: object, item: ResourceChange, code: ErrorCode) -> None:
    function = decide_alter_configs if decide is decide_alter_configs else decide_incremental_alter_configs
    other = change(ALL_BROKERS, "log.cleaner.backoff.ms", "9")
    static = {"log.cleaner.min.compaction.lag.ms": "5"} if item.resource == BROKER else {}
    decision = function(IMAGE, [item, other], context(static))
    assert [result.outcome.code for result in decision.results] == [code, ErrorCode.NONE]
    assert decision.results[0].outcome.message
    assert decision.records == (ConfigRecord(4, "", "log.cleaner.backoff.ms", "9"),)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (change(TOPIC, "retention.ms", "1", ConfigOperation.APPEND), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "cleanup.policy", None, ConfigOperation.APPEND), ErrorCode.INVALID_REQUEST),
        (change(TOPIC, "nope", "1", ConfigOperation.SUBTRACT), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "retention.ms", "1", 9), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_operations(item: ResourceChange, code: ErrorCode) -> None:
    decision = decide_incremental_alter_configs(IMAGE, [item], context())
    assert decision.records == ()
    assert [result.outcome.code for result in decision.results] == [code]


def test_a_resource_named_twice_does_not_change() -> None:
    items = [change(TOPIC, "retention.ms", "6"), change(TOPIC, "segment.ms", "7")]
    decision = decide_incremental_alter_configs(IMAGE, items, context())
    assert decision.records == ()
    assert [result.outcome.code for result in decision.results] == [ErrorCode.INVALID_REQUEST] * 2


def test_an_invalid_key_rejects_only_its_resource() -> None:
    bad = ResourceChange(TOPIC, (ConfigChange("retention.ms", "6"), ConfigChange("nope", "1")))
    decision = decide_incremental_alter_configs(IMAGE, [bad], context())
    assert decision.records == ()


def test_a_new_minimum_of_in_sync_replicas_forgets_the_eligible_leaders() -> None:
    """They were computed with the old minimum."""
    image = image_of(broker(1), FeatureLevelRecord(ELR_VERSION, 1), TopicRecord("a", UUID(int=7)))
    minimum = ConfigChange("min.insync.replicas", "2")
    topic, everywhere = ConfigResource(ResourceType.TOPIC, "a"), ConfigResource(ResourceType.BROKER, "")
    for resource, name in ((topic, "a"), (everywhere, "")):
        change = ResourceChange(
            resource, (minimum, ConfigChange("log.retention.ms" if not name else "retention.ms", "5"))
        )
        decision = decide_incremental_alter_configs(image, [change], context())
        assert decision.records[-1] == ClearElrRecord(resource.name)
        after = carry_out(image, decision)
        assert decide_incremental_alter_configs(after, [change], context()).records == (), "nothing changes"
    single = ResourceChange(ConfigResource(ResourceType.BROKER, "1"), (minimum,))
    (refused,) = decide_incremental_alter_configs(image, [single], context()).results
    assert "only for topics or for all brokers" in str(refused.outcome.message)
    without, _ = image.apply([FeatureLevelRecord(ELR_VERSION, 0)])
    (accepted,) = decide_incremental_alter_configs(without, [single], context()).results
    assert accepted.outcome.code is ErrorCode.NONE
