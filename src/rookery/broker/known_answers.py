"""A cache of frequent responses that change only with the metadata: they are built and encoded once, then reused.

Many `Metadata` requests have the same response, and so have all `ApiVersions` requests. Entries are valid for the image
that they were built from, compared by identity: an image never changes, and shares its unchanged parts with the image
before.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeAlias

from rookery.base.types import NodeId, TopicName
from rookery.metadata.image import BrokerImage, ClusterImage, TopicImage
from rookery.protocol.message import StructT, freeze
from rookery.protocol.messages import ApiVersionsResponse, MetadataResponse, MetadataResponseTopic

# Entries of deleted topics are removed when the cache has more than twice as many entries as topics exist, plus this.
_SWEPT_MIN = 64
# The number of whole responses that are cached: a client requests the topics that it works with again and again.
_WHOLE_MAX = 256


class TopicAnswer(NamedTuple):
    topic: TopicImage
    answer: MetadataResponseTopic


TopicAnswers: TypeAlias = dict[TopicName, TopicAnswer]


class WholeAnswers(Generic[StructT]):
    """Whole responses of one API. `kind` is what else they depend on: version, listener, requested topics."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._answers: dict[Hashable, StructT] = {}

    def find(self, image: ClusterImage, kind: Hashable) -> StructT | None:
        """Return a response that was cached for this image, or None."""
        if image is not self._image:
            self._answers.clear()
            self._image = image
        return self._answers.get(kind)

    def keep(self, image: ClusterImage, kind: Hashable, answer: StructT) -> StructT:
        """Cache a response that `find` did not find, for the same image, and return it."""
        assert image is self._image
        if len(self._answers) >= _WHOLE_MAX:
            self._answers.clear()
        frozen = self._answers[kind] = freeze(answer)
        return frozen


class KnownAnswers:
    """The cached responses of one broker."""

    def __init__(self) -> None:
        self.metadata: WholeAnswers[MetadataResponse] = WholeAnswers()
        self.api_versions: WholeAnswers[ApiVersionsResponse] = WholeAnswers()
        self._brokers: Mapping[NodeId, BrokerImage] | None = None
        self._topics: dict[Hashable, TopicAnswers] = {}

    def topics(self, image: ClusterImage, kind: Hashable) -> TopicAnswers:
        """Return the cached topics of one `kind`. The caller compares each one's image, and adds what is missing."""
        if image.brokers is not self._brokers:
            self._topics.clear()
            self._brokers = image.brokers
        answers = self._topics.setdefault(kind, {})
        if len(answers) > _SWEPT_MIN + 2 * len(image.topics):
            for name in answers.keys() - image.topics.keys():
                del answers[name]
        return answers
