from uuid import UUID

from rookery.broker.known_answers import KnownAnswers, TopicAnswer
from rookery.metadata.image import ClusterImage, TopicImage
from rookery.protocol.message import FrozenMessage, Message

TOPIC_ID = UUID(int=7)


def test_an_answer_is_known_until_the_image_changes() -> None:
    known, image = KnownAnswers(), ClusterImage()
    assert known.find(image, "kind") is None
    kept = known.keep(image, "kind", Message(a=1))
    assert known.find(image, "kind") is kept
    assert known.find(image, "other kind") is None
    assert known.find(ClusterImage(), "kind") is None
    assert known.find(image, "kind") is None, "what is known is of one image at a time"


def test_the_number_of_answers_is_bounded() -> None:
    known, image = KnownAnswers(), ClusterImage()
    for kind in range(1000):
        assert known.find(image, kind) is None
        known.keep(image, kind, Message(a=kind))
    assert len(known._whole) <= 256


def test_topics_are_known_until_the_brokers_change() -> None:
    known = KnownAnswers()
    topic = TopicImage("a", TOPIC_ID)
    image = ClusterImage(topics={"a": topic})
    known.topics(image, "kind")["a"] = TopicAnswer(topic, FrozenMessage(a=1))
    after = ClusterImage(topics={"a": topic, "b": topic}, brokers=image.brokers)
    assert "a" in known.topics(after, "kind")
    assert "a" not in known.topics(after, "other kind")
    assert known.topics(ClusterImage(topics={"a": topic}, brokers={}), "kind") == {}


def test_deleted_topics_are_swept_out() -> None:
    known, image = KnownAnswers(), ClusterImage()
    answers = known.topics(image, "kind")
    for number in range(200):
        answers[f"topic-{number}"] = TopicAnswer(TopicImage("x", TOPIC_ID), FrozenMessage())
    assert known.topics(image, "kind") == {}
