"""Random histories of one transactional id: instances start, stall, lose responses and retry; time passes, clocks
are set back, markers are delivered late, the coordinator restarts.

Invariants: no id and epoch is assigned to two instances; an instance that was replaced cannot change anything; the
epochs of a producer id never decrease; an outcome that was decided never changes, and every response agrees with it;
every partition that was added gets a marker; and a restart yields the same state. From every state, a new instance can
run a transaction.
"""

from dataclasses import replace

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.txn.states import State, can_move
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_BUMP, EPOCH_MAX, LAST_EPOCH, Transaction
from tests.coordinators.txn.stage import NO_PRODUCER, START_MS, TIMEOUT_MS, TX, A, B, C, Producer, Stage, in_log

INSTANCES_MAX = 5
COMMITTED = frozenset({State.PREPARE_COMMIT, State.COMPLETE_COMMIT})
ABORTED = frozenset({State.PREPARE_ABORT, State.COMPLETE_ABORT})
FENCING = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})

# Mostly the instance that received its epoch last.
number_of = st.sampled_from((0, 0, 0, 0, 1, 1, 2, 3))
partitions_of = st.sets(st.sampled_from((A, B, C)), min_size=1)


class Instance:
    """A producer; `unanswered` is the end that it has requested without receiving a response."""

    def __init__(self, client_version: int) -> None:
        self.client_version = client_version
        self.producer: Producer = NO_PRODUCER
        self.unanswered: bool | None = None
        self.is_replaced = False


class TransactionModel(RuleBasedStateMachine):
    transaction_version = 2
    client_versions: tuple[int, ...] = (CLASSIC, EPOCH_BUMP)

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(transaction_version=self.transaction_version)
        self.instances: list[Instance] = []
        self.given: dict[Producer, Instance] = {}
        # The partitions of the transaction that began last.
        self.added: set[TopicPartition] = set()
        # How much of the log was checked, and its last transaction.
        self.seen = 0
        self.before: Transaction | None = None
        self.epochs: dict[int, int] = {}

    @initialize(epoch=st.none() | st.integers(LAST_EPOCH - 3, EPOCH_MAX))
    def begin(self, epoch: int | None) -> None:
        """Start with few epochs left, in most cases."""
        if epoch is not None:
            stored = Transaction(
                transactional_id=TX, producer_id=1, producer_epoch=epoch, timeout_ms=TIMEOUT_MS, update_ms=START_MS
            )
            self.stage = Stage(stored, transaction_version=self.transaction_version)
        self.start_instance(1, 1)

    @precondition(lambda self: len(self.instances) < INSTANCES_MAX)
    @rule(index=st.integers(0, 1), tries=st.integers(1, 3))
    def start_instance(self, index: int, tries: int) -> None:
        instance = Instance(self.client_versions[index % len(self.client_versions)])
        self.instances.insert(0, instance)
        for _ in range(tries):
            self._init(instance, is_lost=False)
            self.stage.deliver()

    def _pick(self, number: int) -> Instance:
        return self.instances[number % len(self.instances)]

    def _receive(self, instance: Instance, producer: Producer) -> None:
        instance.producer, instance.unanswered = producer, None
        self.instances.remove(instance)
        self.instances.insert(0, instance)

    def _give(self, instance: Instance, producer: Producer) -> None:
        assert producer[1] < EPOCH_MAX, "the largest epoch is never assigned"
        assert self.given.setdefault(producer, instance) is instance, "two instances have the same epoch"

    @precondition(lambda self: self.instances)
    @rule(number=number_of, is_lost=st.booleans())
    def init(self, number: int, is_lost: bool) -> None:
        self._init(self._pick(number), is_lost=is_lost)

    def _init(self, instance: Instance, *, is_lost: bool) -> None:
        """Initialize a new instance, or one that resumes."""
        code, producer_id, producer_epoch = self.stage.init(instance.producer)
        if code is not ErrorCode.NONE:
            is_fenced = code is ErrorCode.PRODUCER_FENCED and instance.producer != NO_PRODUCER
            assert is_fenced or code is ErrorCode.CONCURRENT_TRANSACTIONS
            return
        assert not instance.is_replaced
        if instance.producer == NO_PRODUCER:
            self._replace_others(instance)
        if instance.producer == NO_PRODUCER and is_lost:
            # It did not receive its id, so that its next request is that of a new instance.
            self._give(Instance(instance.client_version), (producer_id, producer_epoch))
            return
        self._give(instance, (producer_id, producer_epoch))
        if not is_lost:
            self._receive(instance, (producer_id, producer_epoch))

    def _replace_others(self, newest: Instance) -> None:
        for other in self.instances:
            other.is_replaced |= other is not newest and other.producer != NO_PRODUCER

    @precondition(lambda self: self.instances)
    @rule(number=number_of, partitions=partitions_of)
    def add(self, number: int, partitions: set[TopicPartition]) -> None:
        instance = self._pick(number)
        if instance.producer == NO_PRODUCER or instance.unanswered is not None:
            return
        before = self.stage.shard.transactions.get(TX)
        code = self.stage.add(instance.producer, *partitions)
        if code is not ErrorCode.NONE:
            self._check_rejection(instance, code)
            return
        assert before is not None
        assert not instance.is_replaced
        self.added = partitions | (self.added if before.state is State.ONGOING else set())
        verified = self.stage.verify(instance.producer, *partitions)
        assert all(each is ErrorCode.NONE for _, each in verified)

    @precondition(lambda self: self.instances)
    @rule(number=number_of, commit=st.booleans(), is_lost=st.booleans())
    def end(self, number: int, commit: bool, is_lost: bool) -> None:
        instance = self._pick(number)
        if instance.producer == NO_PRODUCER:
            return
        commit = commit if instance.unanswered is None else instance.unanswered
        before = self.stage.shard.transactions.get(TX)
        code, *producer = self.stage.end(instance.producer, commit=commit, client_version=instance.client_version)
        if code is ErrorCode.NONE:
            assert not instance.is_replaced
            assert self.stage.state() in (COMMITTED if commit else ABORTED)
            self._give(instance, (producer[0], producer[1]))
        elif code is ErrorCode.INVALID_TXN_STATE:
            assert before is not None
            assert before.state is not State.ONGOING
            assert before.state not in (COMMITTED if commit else ABORTED) or instance.producer == before.next_producer
        else:
            self._check_rejection(instance, code)
        if is_lost and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            instance.unanswered = commit
        elif code is ErrorCode.NONE:
            self._receive(instance, (producer[0], producer[1]))

    @rule(partitions=partitions_of, commit=st.booleans(), is_lost=st.booleans())
    def transact(self, partitions: set[TopicPartition], commit: bool, is_lost: bool) -> None:
        """Run a whole transaction of the instance that received its epoch last."""
        self.add(0, partitions)
        self.records_follow_the_rules()
        self.end(0, commit, is_lost)

    def _check_rejection(self, instance: Instance, code: ErrorCode) -> None:
        """The instance that has the next id and epoch is not fenced."""
        assert code in FENCING or code is ErrorCode.CONCURRENT_TRANSACTIONS
        transaction = self.stage.shard.transactions.get(TX)
        if transaction is not None and code in FENCING and instance.client_version == EPOCH_BUMP:
            assert instance.producer != transaction.next_producer

    @rule()
    def deliver(self) -> None:
        for markers in self.stage.deliver():
            assert not markers.partitions or markers.partitions == self.added

    @rule()
    def deliver_twice(self) -> None:
        for markers in self.stage.deliver():
            before = self.stage.transaction
            self.stage.complete(markers)
            assert self.stage.transaction == before

    @rule()
    def restart(self) -> None:
        self.stage.restart()

    @rule(duration_ms=st.integers(1, 2 * TIMEOUT_MS))
    def pass_time(self, duration_ms: int) -> None:
        self.stage.pass_time(duration_ms)

    @rule(step_ms=st.integers(1, 10 * TIMEOUT_MS))
    def set_clock_back(self, step_ms: int) -> None:
        self.stage.now_ms -= step_ms

    @invariant()
    def records_follow_the_rules(self) -> None:
        for key, value in self.stage.log[self.seen :]:
            record = self.stage.shard.decode(key, value)
            assert record is not None
            transaction = record.transaction
            assert transaction is not None, "too little time has passed for an expiry"
            assert self.before is None or can_move(self.before.state, transaction.state)
            assert transaction.producer_epoch >= self.epochs.get(transaction.producer_id, -1), "an epoch decreased"
            assert transaction.partitions == (self.added if self._is_open(transaction) else frozenset())
            self.epochs[transaction.producer_id] = transaction.producer_epoch
            self.before = transaction
        self.seen = len(self.stage.log)

    def _is_open(self, transaction: Transaction) -> bool:
        """Whether partitions belong to it: not if it was aborted before one was added."""
        is_begun = self.before is not None and self.before.state is State.ONGOING
        return transaction.state is State.ONGOING or (transaction.is_prepared and is_begun)

    @invariant()
    def replaced_instances_change_nothing(self) -> None:
        written = len(self.stage.log)
        for instance in self.instances:
            if instance.is_replaced:
                version = instance.client_version
                codes = [
                    self.stage.init(instance.producer).error_code,
                    self.stage.add(instance.producer, A),
                    self.stage.end(instance.producer, commit=True, client_version=version).error_code,
                    self.stage.end(instance.producer, commit=False, client_version=version).error_code,
                ]
                assert ErrorCode.NONE not in codes
        assert len(self.stage.log) == written

    @invariant()
    def the_log_has_the_whole_state(self) -> None:
        live = {name: self._in_log(each) for name, each in self.stage.shard.transactions.items()}
        assert self.stage.replayed().transactions == live

    def _in_log(self, transaction: Transaction) -> Transaction | None:
        return in_log(transaction)

    @invariant()
    def markers_of_prepared_transactions_are_pending(self) -> None:
        waiting = {(each.producer_id, each.producer_epoch) for each in self.stage.markers}
        for each in self.stage.shard.transactions.values():
            assert not each.is_prepared or (each.producer_id, each.producer_epoch) in waiting

    def teardown(self) -> None:
        self.stage.deliver()
        if self.stage.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS:
            self.stage.deliver()
        producer = self.stage.begin()
        assert self.stage.add(producer, A) is ErrorCode.NONE
        version = self.client_versions[-1]
        assert self.stage.end(producer, commit=True, client_version=version).error_code is ErrorCode.NONE
        self.stage.deliver()
        assert self.stage.state() is State.COMPLETE_COMMIT


class OldTransactionModel(TransactionModel):
    """A cluster at feature level 0: only the classic protocol, and records without the newer fields."""

    transaction_version = 0
    client_versions = (CLASSIC,)

    def _in_log(self, transaction: Transaction) -> Transaction | None:
        return in_log(replace(transaction, previous_producer_id=-1))


TestTransactions = TransactionModel.TestCase
TestTransactions.settings = hypothesis_settings(max_examples=150, stateful_step_count=50, deadline=None)

TestOldTransactions = OldTransactionModel.TestCase
TestOldTransactions.settings = hypothesis_settings(max_examples=50, stateful_step_count=50, deadline=None)
