"""Parts of frequent answers that change only with the metadata: described and encoded once, then reused.

`Metadata` of many topics is the same bytes again and again; so is the table of `ApiVersions`. What is kept here is
compared by identity with the image that it came from: an image never changes, and shares what did not change with the
image before.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeAlias

from rookery.base.types import NodeId, TopicName
from rookery.metadata.image import BrokerImage, ClusterImage, TopicImage
from rookery.protocol.message import StructT, freeze
from rookery.protocol.messages import ApiVersionsResponse, MetadataResponse, MetadataResponseTopic

# Topics that were deleted are swept out when there are more of them than this, and than half of all.
_SWEPT_MIN = 64
# Whole answers that are kept: a client asks for the topics that it works with, again and again.
_WHOLE_MAX = 256


class TopicAnswer(NamedTuple):
    topic: TopicImage
    answer: MetadataResponseTopic


TopicAnswers: TypeAlias = dict[TopicName, TopicAnswer]


class WholeAnswers(Generic[StructT]):
    """Whole responses of one API. `kind` is what else they depend on: the version, the listener, what was requested."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._answers: dict[Hashable, StructT] = {}

    def find(self, image: ClusterImage, kind: Hashable) -> StructT | None:
        """A whole answer that was given before by this very image."""
        if image is not self._image:
            self._answers.clear()
            self._image = image
        return self._answers.get(kind)

    def keep(self, image: ClusterImage, kind: Hashable, answer: StructT) -> StructT:
        """Take note of an answer that was not found; the image is the same as then."""
        assert image is self._image
        if len(self._answers) >= _WHOLE_MAX:
            self._answers.clear()
        frozen = self._answers[kind] = freeze(answer)
        return frozen


class KnownAnswers:
    """`kind` is whatever else the answer depends on: the version, the listener, what the client asked for."""

    def __init__(self) -> None:
        self.metadata: WholeAnswers[MetadataResponse] = WholeAnswers()
        self.api_versions: WholeAnswers[ApiVersionsResponse] = WholeAnswers()
        self._brokers: Mapping[NodeId, BrokerImage] | None = None
        self._topics: dict[Hashable, TopicAnswers] = {}

    def topics(self, image: ClusterImage, kind: Hashable) -> TopicAnswers:
        """The topics that were described before; the caller compares each one's image and adds to them."""
        if image.brokers is not self._brokers:
            self._topics.clear()
            self._brokers = image.brokers
        answers = self._topics.setdefault(kind, {})
        if len(answers) > _SWEPT_MIN + 2 * len(image.topics):
            for name in answers.keys() - image.topics.keys():
                del answers[name]
        return answers
