import pytest

from rookery.base.errors import ConfigError
from rookery.serdes.subjects import (
    Field,
    SerializationContext,
    SubjectNameStrategy,
    find_strategy,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)


@pytest.mark.parametrize(
    ("strategy", "field", "subject"),
    [
        (topic_subject_name_strategy, "value", "orders-value"),
        (topic_subject_name_strategy, "key", "orders-key"),
        (record_subject_name_strategy, "value", "shop.Order"),
        (topic_record_subject_name_strategy, "key", "orders-shop.Order"),
    ],
)
def test_strategies(strategy: SubjectNameStrategy, field: Field, subject: str) -> None:
    assert strategy(SerializationContext("orders", field), "shop.Order") == subject


@pytest.mark.parametrize("strategy", [record_subject_name_strategy, topic_record_subject_name_strategy])
def test_a_record_without_a_name(strategy: SubjectNameStrategy) -> None:
    with pytest.raises(ConfigError, match="name of the record"):
        strategy(SerializationContext("orders", "value"), None)


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ("TopicNameStrategy", topic_subject_name_strategy),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", record_subject_name_strategy),
        ("TopicRecordNameStrategy", topic_record_subject_name_strategy),
        (record_subject_name_strategy, record_subject_name_strategy),
    ],
)
def test_strategies_are_found_by_name(given: object, strategy: SubjectNameStrategy) -> None:
    assert find_strategy(given) is strategy


@pytest.mark.parametrize("given", ["NoStrategy", 5, None])
def test_other_strategies_are_rejected(given: object) -> None:
    with pytest.raises(ConfigError, match=r"subject\.name\.strategy.*TopicNameStrategy"):
        find_strategy(given)
