import re

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.consume.records import OffsetAndMetadata
from rookery.client.consume.subscription import FetchPosition, PartitionState, Stage, Subscription
from rookery.client.errors import ClientStateError
from tests.client.consume.support import TP, TP1


def assigned(*partitions: TopicPartition, has_group: bool = False) -> Subscription:
    subscription = Subscription(has_group=has_group)
    subscription.choose_manually()
    subscription.replace_assignment(partitions or (TP,))
    return subscription


def ready(*partitions: TopicPartition, offset: int = 5, epoch: int = -1) -> Subscription:
    subscription = assigned(*partitions)
    for tp in subscription:
        subscription.on_reset(tp, subscription.state(tp).generation, FetchPosition(offset, epoch))
    return subscription


def fetchable(subscription: Subscription, now_s: float = 0.0) -> list[TopicPartition]:
    return [tp for tp, _ in subscription.fetchable(now_s)]


def test_without_a_group_a_partition_begins_with_a_reset() -> None:
    subscription = assigned()
    assert subscription.state(TP).stage is Stage.RESET
    assert fetchable(subscription) == []
    assert subscription.positions_to_commit() == {}
    subscription.on_reset(TP, subscription.state(TP).generation, FetchPosition(7))
    assert fetchable(subscription) == [TP]
    assert subscription.positions_to_commit() == {TP: OffsetAndMetadata(7)}


@pytest.mark.parametrize(
    ("found", "stage"),
    [
        (None, Stage.RESET),
        (OffsetAndMetadata(9), Stage.READY),
        (OffsetAndMetadata(9, "", 3), Stage.VALIDATION),
    ],
)
def test_with_a_group_it_begins_at_the_committed_offset(found: OffsetAndMetadata | None, stage: Stage) -> None:
    subscription = assigned(has_group=True)
    state = subscription.state(TP)
    assert state.stage is Stage.COMMITTED
    subscription.on_committed(TP, state.generation, found)
    assert state.stage is stage
    assert state.position == (None if found is None else FetchPosition(found.offset, found.leader_epoch))


def test_replies_of_an_older_generation_change_nothing() -> None:
    subscription = assigned()
    old = subscription.state(TP).generation
    subscription.seek(TP, FetchPosition(50))
    subscription.on_reset(TP, old, FetchPosition(7))
    subscription.on_committed(TP, old, OffsetAndMetadata(8))
    subscription.on_consumed(TP, old, FetchPosition(9))
    subscription.fail(TP, old, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
    subscription.defer(TP, old, 1e9)
    state = subscription.state(TP)
    assert (state.position, state.stage, state.failure, state.retry_at_s) == (FetchPosition(50), Stage.READY, None, 0.0)


def test_a_partition_that_comes_back_has_another_generation() -> None:
    subscription = ready()
    old = subscription.state(TP).generation
    subscription.replace_assignment([])
    subscription.replace_assignment([TP])
    assert subscription.find(TP, old) is None
    assert subscription.state(TP).position is None


def test_kept_partitions_keep_their_positions() -> None:
    subscription = ready(TP, TP1, offset=5)
    subscription.stop_fetching([TP])
    assert fetchable(subscription) == [TP1]
    subscription.replace_assignment([TP])
    assert fetchable(subscription) == [TP]
    assert subscription.assigned() == {TP}


def test_pausing_keeps_position_and_generation() -> None:
    subscription = ready()
    generation = subscription.state(TP).generation
    subscription.pause(TP)
    assert fetchable(subscription) == []
    assert subscription.paused() == {TP}
    subscription.resume(TP)
    assert fetchable(subscription) == [TP]
    assert subscription.state(TP).generation == generation


def test_a_new_leader_epoch_leads_to_validation() -> None:
    subscription = ready(epoch=3)
    subscription.on_leader_epoch(TP, 3)
    assert fetchable(subscription) == [TP]
    subscription.on_leader_epoch(TP, 4)
    state = subscription.state(TP)
    assert state.stage is Stage.VALIDATION
    assert subscription.positions_to_commit() == {TP: OffsetAndMetadata(5, "", 3)}
    subscription.on_validated(TP, state.generation, 4)
    assert fetchable(subscription) == [TP]
    subscription.on_leader_epoch(TP, 4)
    assert fetchable(subscription) == [TP]


def test_a_position_without_an_epoch_cannot_be_validated() -> None:
    subscription = ready(epoch=-1)
    subscription.on_leader_epoch(TP, 4)
    assert fetchable(subscription) == [TP]


def test_a_position_that_is_gone_is_reset_or_fails() -> None:
    subscription = ready()
    subscription.on_out_of_range(TP, subscription.state(TP).generation, failure=None)
    assert (subscription.state(TP).stage, subscription.state(TP).reset_to_ms) == (Stage.RESET, None)
    subscription = ready()
    failure = ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    subscription.on_out_of_range(TP, subscription.state(TP).generation, failure=lambda: failure)
    assert fetchable(subscription) == []
    assert subscription.take_failure() is failure
    assert (subscription.take_failure(), fetchable(subscription)) == (None, [TP])


def test_one_error_for_several_partitions_is_raised_once() -> None:
    subscription = ready(TP, TP1)
    failure = ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    for tp in (TP, TP1):
        subscription.fail(tp, subscription.state(tp).generation, failure)
    assert subscription.take_failure() is failure
    assert subscription.take_failure() is None


def test_a_deferred_partition_is_not_fetchable_before_its_time() -> None:
    subscription = ready()
    subscription.defer(TP, subscription.state(TP).generation, 10.0)
    assert (fetchable(subscription, 9.9), fetchable(subscription, 10.0)) == ([], [TP])
    assert (subscription.next_retry_s(9.0), subscription.next_retry_s(10.0)) == (10.0, None)


@pytest.mark.parametrize(("read_committed", "lag"), [(False, 15), (True, 10)])
def test_lag_is_the_distance_from_the_position_to_the_end(read_committed: bool, lag: int) -> None:
    subscription = ready(offset=5)
    assert subscription.lag(TP, read_committed=read_committed) is None
    generation = subscription.state(TP).generation
    subscription.on_fetched(TP, generation, high_watermark=20, last_stable=15, log_start=0)
    assert subscription.lag(TP, read_committed=read_committed) == lag
    subscription.on_consumed(TP, generation, FetchPosition(30))
    assert subscription.lag(TP, read_committed=read_committed) == 0


def test_topics_and_partitions_exclude_each_other() -> None:
    subscription = Subscription(has_group=True)
    subscription.subscribe(["a"])
    with pytest.raises(ClientStateError, match="unsubscribe"):
        subscription.choose_manually()
    subscription.unsubscribe()
    subscription.choose_manually()
    with pytest.raises(ClientStateError, match="unsubscribe"):
        subscription.subscribe_pattern(re.compile("a"))
    with pytest.raises(ClientStateError, match="unsubscribe"):
        subscription.subscribe(["a"])


def test_a_pattern_matches_whole_names() -> None:
    subscription = Subscription(has_group=True)
    subscription.subscribe_pattern(re.compile("a.*"))
    assert subscription.match(["a", "ab", "ba"])
    assert subscription.subscribed_topics() == {"a", "ab"}
    assert not subscription.match(["ab", "a"])
    assert subscription.match(["ab"])


def test_partitions_that_are_not_assigned_are_refused() -> None:
    subscription = assigned(TP)
    with pytest.raises(ClientStateError, match="t-1 is not assigned"):
        subscription.seek(TP1, FetchPosition(0))
    with pytest.raises(ClientStateError, match="t-1 is not assigned"):
        subscription.pause(TP1)
    with pytest.raises(ClientStateError, match="t-1 is not assigned"):
        subscription.reset(TP1, None)
    with pytest.raises(ValueError, match="no offset -1"):
        subscription.seek(TP, FetchPosition(-1))


_PARTITIONS = st.sampled_from([TP, TP1, TopicPartition("u", 0)])


class SubscriptionModel(RuleBasedStateMachine):
    """Compares the subscription, under any order of calls and replies, with a model of the expected positions."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription = Subscription(has_group=True)
        self.subscription.choose_manually()
        self.expected: dict[TopicPartition, int | None] = {}
        self.requests: list[tuple[TopicPartition, int]] = []
        self.generations: set[int] = set()

    def state(self, tp: TopicPartition) -> PartitionState:
        return self.subscription.state(tp)

    @rule(partitions=st.sets(_PARTITIONS))
    def assign(self, partitions: set[TopicPartition]) -> None:
        self.subscription.replace_assignment(partitions)
        self.expected = {tp: self.expected.get(tp) for tp in partitions}

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), offset=st.integers(0, 99), epoch=st.integers(-1, 3))
    def seek(self, data: st.DataObject, offset: int, epoch: int) -> None:
        tp = data.draw(st.sampled_from(sorted(self.expected)))
        self.subscription.seek(tp, FetchPosition(offset, epoch))
        self.expected[tp] = offset

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        tp = data.draw(st.sampled_from(sorted(self.expected)))
        self.subscription.reset(tp, -2)
        self.expected[tp] = None

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), pause=st.booleans())
    def pause_or_resume(self, data: st.DataObject, pause: bool) -> None:
        tp = data.draw(st.sampled_from(sorted(self.expected)))
        (self.subscription.pause if pause else self.subscription.resume)(tp)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        tp = data.draw(st.sampled_from(sorted(self.expected)))
        self.requests.append((tp, self.state(tp).generation))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), kind=st.sampled_from(["committed", "reset", "validated", "consumed", "range"]))
    def reply(self, data: st.DataObject, kind: str) -> None:
        """Deliver a reply: possibly late, twice, or of a kind that was not requested in this stage."""
        tp, generation = data.draw(st.sampled_from(self.requests))
        state = self.subscription.find(tp, generation)
        stage = None if state is None else state.stage
        match kind:
            case "committed":
                self.subscription.on_committed(tp, generation, OffsetAndMetadata(1000))
                if stage is Stage.COMMITTED:
                    self.expected[tp] = 1000
            case "reset":
                self.subscription.on_reset(tp, generation, FetchPosition(2000))
                if stage is Stage.RESET:
                    self.expected[tp] = 2000
            case "validated":
                self.subscription.on_validated(tp, generation, 5)
            case "consumed" if stage is Stage.READY:
                self.subscription.on_consumed(tp, generation, FetchPosition(3000))
                self.expected[tp] = 3000
            case "range":
                self.subscription.on_out_of_range(tp, generation, failure=None)
                if stage in (Stage.READY, Stage.VALIDATION):
                    self.expected[tp] = None
            case _:
                pass

    @rule(tp=_PARTITIONS, epoch=st.integers(0, 9))
    def metadata(self, tp: TopicPartition, epoch: int) -> None:
        self.subscription.on_leader_epoch(tp, epoch)

    @invariant()
    def positions_are_those_expected(self) -> None:
        assert self.subscription.assigned() == self.expected.keys()
        for tp, offset in self.expected.items():
            position = self.state(tp).position
            assert (None if position is None else position.offset) == offset

    @invariant()
    def only_partitions_with_a_position_are_fetched(self) -> None:
        for tp, state in self.subscription.fetchable(0.0):
            assert state.position is not None
            assert not state.is_paused
            assert state.stage is Stage.READY, tp

    @invariant()
    def generations_are_never_shared(self) -> None:
        current = [self.state(tp).generation for tp in self.expected]
        assert len(set(current)) == len(current)


TestSubscriptionModel = SubscriptionModel.TestCase
TestSubscriptionModel.settings = settings(max_examples=25, stateful_step_count=25)
