"""The loader and the publisher: a replay and single batches give the same images; listeners are called in order."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.types import Offset
from rookery.metadata import loader as loader_module
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta, PartitionImage
from rookery.metadata.loader import MetadataLoader
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from rookery.quorum.publication import iterate_values
from rookery.records import record as record_module
from rookery.records.record import Record, build_batch
from tests.metadata.replay import replay
from tests.support.stalls import Turns, counted_calls

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def partition(topic_id: UUID) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
    )


# Two batches of a log; offset 0 is the leader change, which is not a metadata record.
BATCHES: list[tuple[Offset, list[MetadataRecord]]] = [
    (1, [TopicRecord("a", A), partition(A), TopicRecord("b", B), partition(B)]),
    (5, [RemoveTopicRecord(A), FeatureLevelRecord("group.version", 1)]),
]


def encoded() -> list[tuple[Offset, list[bytes]]]:
    return [(offset, [encode_record(record) for record in records]) for offset, records in BATCHES]


def test_a_replay_and_single_batches_give_the_same_image() -> None:
    replayed, stepwise = MetadataLoader(), MetadataLoader()
    loaded = replay(replayed, encoded())
    for offset, records in BATCHES:
        stepwise.load(records, last_offset=offset + len(records) - 1)
    assert loaded.image is replayed.image
    assert replayed.image == stepwise.image
    assert replayed.image.offset == 6
    assert list(replayed.image.topics) == ["b"]


def test_a_replay_reports_removed_topics() -> None:
    loader = MetadataLoader()
    delta = replay(loader, encoded()).delta
    assert loader.removed_topics == {A: "a"}
    assert [topic.name for topic in delta.created] == ["b"]
    assert delta.deleted == (), "it was never in a published image"


class RecordingListener:
    """A listener that records its calls and checks which image was visible."""

    def __init__(self, name: str, metadata: MetadataPublisher, calls: list[str]) -> None:
        self._name, self._metadata, self._calls = name, metadata, calls
        metadata.add(ImageListener(name, self.apply, prepare=self.prepare, finish=self.finish))

    async def prepare(self, image: ClusterImage, _: Delta) -> None:
        assert self._metadata.image is not image, "not visible yet"
        await asyncio.sleep(0)
        self._calls.append(f"{self._name} prepares")

    def apply(self, image: ClusterImage, _: Delta) -> None:
        assert self._metadata.image is image
        self._calls.append(f"{self._name} applies")

    async def finish(self) -> None:
        await asyncio.sleep(0)
        self._calls.append(f"{self._name} finishes")


def test_listeners_get_an_image_in_their_order() -> None:
    metadata, calls = MetadataPublisher(), list[str]()
    RecordingListener("replicas", metadata, calls)
    RecordingListener("groups", metadata, calls)
    metadata.add(ImageListener("settings", lambda image, delta: calls.append("settings applies")))
    asyncio.run(commit_all(metadata, encoded()[:1]))
    assert calls == [
        "replicas prepares",
        "groups prepares",
        "replicas applies",
        "groups applies",
        "settings applies",
        "replicas finishes",
        "groups finishes",
    ]
    assert metadata.listener_names == ["replicas", "groups", "settings"]


async def commit_all(metadata: MetadataPublisher, batches: Sequence[tuple[Offset, Sequence[bytes]]]) -> None:
    for offset, values in batches:
        await metadata.commit(offset, values)


def test_a_start_publishes_the_log_as_one_change() -> None:
    metadata, deltas = MetadataPublisher(), list[Delta]()
    metadata.add(ImageListener("test", lambda _, delta: deltas.append(delta)))
    assert metadata.image == EMPTY_IMAGE
    asyncio.run(metadata.start(encoded()))
    (delta,) = deltas
    assert [topic.name for topic in delta.created] == ["b"]
    assert metadata.removed_topics == {A: "a"}


def test_commits_continue_where_the_start_ended() -> None:
    metadata, whole = MetadataPublisher(), MetadataPublisher()
    first, second = encoded()
    asyncio.run(metadata.start([first]))
    asyncio.run(commit_all(metadata, [second]))
    asyncio.run(whole.start([first, second]))
    assert metadata.image == whole.image


def test_a_snapshot_replaces_the_image() -> None:
    metadata, calls, deltas = MetadataPublisher(), list[str](), list[Delta]()
    RecordingListener("replicas", metadata, calls)
    metadata.add(ImageListener("test", lambda _, delta: deltas.append(delta)))
    asyncio.run(commit_all(metadata, encoded()[:1]))
    calls.clear()
    snapshot: list[MetadataRecord] = [TopicRecord("b", B), partition(B), TopicRecord("c", C), partition(C)]
    asyncio.run(metadata.replace([encode_record(record) for record in snapshot], 50))
    assert calls == ["replicas prepares", "replicas applies", "replicas finishes"], "as for a commit"
    assert ([topic.name for topic in deltas[-1].created], [topic.name for topic in deltas[-1].deleted]) == (
        ["c"],
        ["a"],
    )
    assert deltas[-1].changed == {}, "b is the same in both"
    assert metadata.image == EMPTY_IMAGE.apply(snapshot, last_offset=49)[0] == metadata.finished_image
    asyncio.run(metadata.commit(50, [encode_record(RemoveTopicRecord(C))]))
    assert list(metadata.image.topics) == ["b"]


def test_a_name_belongs_to_one_listener() -> None:
    metadata = MetadataPublisher()
    metadata.add(ImageListener("replicas", lambda image, delta: None))
    with pytest.raises(AssertionError, match="replicas was added twice"):
        metadata.add(ImageListener("replicas", lambda image, delta: None))


def test_a_start_reads_and_applies_records_in_slices() -> None:
    records: list[MetadataRecord] = [TopicRecord("a", A), *(replace(partition(A), partition_id=i) for i in range(1999))]
    batch = bytes(build_batch([Record(i, 0, None, encode_record(record)) for i, record in enumerate(records)]))

    async def main() -> tuple[Turns, Turns]:
        metadata = MetadataPublisher()
        with (
            counted_calls(record_module, "read_span") as read,
            counted_calls(loader_module, "decode_record") as applied,
        ):
            await metadata.start([(1, iterate_values(batch))])
        assert metadata.image.offset == 2000
        assert len(metadata.image.topics["a"].partitions) == 1999
        return read, applied

    for turns in asyncio.run(main()):
        assert turns.total == 2000
        assert turns.longest <= METADATA_RECORDS_PER_SLICE + 1


def test_a_change_of_one_partition_does_not_compare_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[MetadataRecord] = [TopicRecord("a", A), *(replace(partition(A), partition_id=i) for i in range(100))]
    image, _ = ClusterImage().apply(records)
    compared, equal = list[PartitionImage](), PartitionImage.__eq__

    def counted(one: PartitionImage, other: object) -> bool:
        compared.append(one)
        return equal(one, other)

    monkeypatch.setattr(PartitionImage, "__eq__", counted)
    _, delta = image.apply([PartitionChangeRecord(partition_id=7, topic_id=A, isr=())])
    assert delta.changed == {A: frozenset({7})}
    assert len(compared) <= 1


def test_no_image_is_published_while_a_listener_begins() -> None:
    """A topic that is deleted while a broker starts would stay there for ever without the pause."""
    metadata = MetadataPublisher()
    (first, values), (second, more) = encoded()
    seen: list[tuple[list[str], list[str]]] = []

    async def main() -> None:
        await metadata.commit(first, values)
        committing: list[asyncio.Task[None]] = []

        async def begin(image: ClusterImage) -> None:
            committing.append(asyncio.create_task(metadata.commit(second, more)))
            for _ in range(20):
                await asyncio.sleep(0)
            assert metadata.image is image

        await metadata.join(begin, ImageListener("l", lambda image, delta: seen.append(names(image, delta))))
        await committing[0]

    def names(image: ClusterImage, delta: Delta) -> tuple[list[str], list[str]]:
        return list(image.topics), [topic.name for topic in delta.deleted]

    asyncio.run(main())
    assert seen == [(["b"], ["a"])]
