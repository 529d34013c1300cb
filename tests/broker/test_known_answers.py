from uuid import UUID

from rookery.broker.known_answers import KnownAnswers, TopicAnswer
from rookery.metadata.image import ClusterImage, TopicImage
from rookery.protocol.messages import ApiVersionsResponse, MetadataResponseTopic

TOPIC_ID = UUID(int=7)
ANSWER = MetadataResponseTopic(error_code=0, name="a", partitions=[])


def test_a_response_is_cached_until_the_image_changes() -> None:
    known, image = KnownAnswers().api_versions, ClusterImage()
    assert known.find(image, "kind") is None
    kept = known.keep(image, "kind", ApiVersionsResponse(error_code=1, api_keys=[]))
    assert known.find(image, "kind") is kept
    assert known.find(image, "other kind") is None
    assert known.find(ClusterImage(), "kind") is None
    assert known.find(image, "kind") is None, "the cache holds the responses of one image"


def test_the_number_of_cached_responses_is_bounded() -> None:
    known, image = KnownAnswers().api_versions, ClusterImage()
    for kind in range(1000):
        assert known.find(image, kind) is None
        known.keep(image, kind, ApiVersionsResponse(error_code=kind, api_keys=[]))
    assert len(known._answers) <= 256


def test_topics_are_cached_until_the_brokers_change() -> None:
    known = KnownAnswers()
    topic = TopicImage("a", TOPIC_ID)
    image = ClusterImage(topics={"a": topic})
    known.topics(image, "kind")["a"] = TopicAnswer(topic, ANSWER)
    after = ClusterImage(topics={"a": topic, "b": topic}, brokers=image.brokers)
    assert "a" in known.topics(after, "kind")
    assert "a" not in known.topics(after, "other kind")
    assert known.topics(ClusterImage(topics={"a": topic}, brokers={}), "kind") == {}


def test_deleted_topics_are_removed_from_the_cache() -> None:
    known, image = KnownAnswers(), ClusterImage()
    answers = known.topics(image, "kind")
    for number in range(200):
        answers[f"topic-{number}"] = TopicAnswer(TopicImage("x", TOPIC_ID), ANSWER)
    assert known.topics(image, "kind") == {}
