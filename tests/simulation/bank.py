"""A bank whose workers move money between accounts, with one transaction per transfer.

    Teller   makes up transfers, and aborts some of them
    Clerk    carries out requests that it reads from a topic; the read position is committed with the transfers

Accounts are spread over the partitions of several topics. A worker's job is a `Post`, with a transactional id. Its
instances start, stall, are killed, and are replaced while they still work, without being notified. The seed chooses the
`ClientKind` of each instance. The requests of step-by-step clients may be sent again late, as if the network had
delayed them. With the classic protocol only requests of ended epochs and acknowledged batches are repeated: the broker
cannot distinguish others from new requests (KAFKA-17754, KIP-890).
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rookery.base.errors import ApiError
from rookery.base.types import NO_OFFSET, Offset, ProducerId, TopicPartition
from rookery.client import ConsumerRecord
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity
from tests.simulation.bank_clients import ReusingProducer, WholeClient
from tests.simulation.checkers import GroupHistory
from tests.simulation.ledger import Entry, Fate, Ledger, Transfer
from tests.simulation.loop import Process
from tests.simulation.users import REQUEST_TIMEOUT_S, new_consumer
from tests.simulation.world import World
from tests.support.transactions import (
    AbortableError,
    Ended,
    Protocol,
    SentRequest,
    TransactionalProducer,
    TransactionCluster,
    repeat,
)

GROUP = "clerks"
TRANSACTION_TIMEOUT_MS = 9_000
_ACCOUNT_COUNT = 9
_PATIENCE_S = 12.0
# An instance with a short time-out often does not know the outcome of its requests.
_PATIENCES_S = (2.0, _PATIENCE_S)
_SENT_KEPT = 15
_SIZES = (0, 10, 100, 1500)

_ABORT_CHANCE = 0.2
_STALL_CHANCE = 0.02
_STALL_S_MAX = 1.5 * TRANSACTION_TIMEOUT_MS / 1000
_REPEAT_CHANCE = 0.1
_REPEAT_S_MAX = 4.0
# The chance that an instance closes its clients at its end; others end without it.
_CLOSE_CHANCE = 0.5
_KIND_CHANGE_CHANCE = 0.3
# The number of transfers that a teller makes after the faults have ended.
_LAST_TRANSFERS = 3

Leg = tuple[int, int]


class ClientKind(Enum):
    """The client with which an instance writes its transactions.

    CLASSIC and V2 send each request of that protocol step by step. REUSING is like CLASSIC, but reuses the sequence
    numbers of aborted transactions. WHOLE_CLIENT is Rookery's producer.
    """

    CLASSIC = auto()
    REUSING = auto()
    V2 = auto()
    WHOLE_CLIENT = auto()


@dataclass
class Bank:
    """The state that all workers share."""

    world: World
    bootstrap: str
    partitions: Sequence[TopicPartition]
    hosts: list[str]
    ledger: Ledger
    offsets: GroupHistory
    client_kinds: Sequence[ClientKind]
    # How often the node was booted.
    boots: Callable[[], int]
    # True when the faults have ended: workers finish their work.
    is_closing: bool = False

    @property
    def accounts(self) -> range:
        return range(_ACCOUNT_COUNT)

    def home(self, account: int) -> TopicPartition:
        return self.partitions[account % len(self.partitions)]


class Post:
    """A worker's job. Its instances do it one after the other, with the same transactional id."""

    def __init__(self, bank: Bank, name: str, requests: TopicPartition | None = None) -> None:
        self.bank = bank
        self.name = name
        self.requests = requests
        self.random = bank.world.new_random()
        self.sent: deque[SentRequest] = deque(maxlen=_SENT_KEPT)
        # The newest producer id and epoch of an instance.
        self.identity: ProducerIdentity = NO_IDENTITY
        # The producer ids of all instances.
        self.producer_ids: set[ProducerId] = set()
        self._client_kind = self.random.choice(bank.client_kinds)
        self._next_number = 0
        self._instances: list[Process] = []

    def new_transfer(self, legs: Sequence[tuple[Leg, str]]) -> Transfer:
        number, self._next_number = self._next_number, self._next_number + 1
        entries = [
            (
                self.bank.home(account),
                Entry(self.name, number, index, amount, request, self.random.choice(_SIZES)),
            )
            for index, ((account, amount), request) in enumerate(legs)
        ]
        transfer = Transfer(self.name, number, tuple(entries))
        self.bank.ledger.add(transfer)
        return transfer

    async def staff(self, duration_s: float) -> None:
        """Run one instance after the other; the last one is not stopped."""
        loop = self.bank.world.loop
        end_s = loop.time() + duration_s
        while loop.time() < end_s:
            instance = self._hire()
            while not instance.done() and loop.time() < end_s:
                await asyncio.wait([instance], timeout=self.random.uniform(1, 12))
                if self.random.random() < 0.6:
                    break
            if not instance.done() and self.random.random() < 0.5:
                self._kill(self._instances[-1])
            await asyncio.sleep(self.random.uniform(0, 1.5))

    async def finish(self) -> None:
        """Run instances until one of them reports that no work is left."""
        while not await self._hire():
            await asyncio.sleep(0.2)
        for process in self._instances:
            self._kill(process)

    def _hire(self) -> "asyncio.Task[bool]":
        if self.random.random() < _KIND_CHANGE_CHANCE:
            self._client_kind = self.random.choice(self.bank.client_kinds)
        name = f"{self.name}.{len(self._instances) + 1}"
        world = self.bank.world
        process = world.new_process(name, name)
        self._instances.append(process)
        self.bank.hosts.append(name)
        world.note(f"{name} starts as {self._client_kind.name}")
        worker = (
            Teller(self, self._client_kind) if self.requests is None else Clerk(self, self._client_kind, self.requests)
        )
        return world.loop.spawn(process, worker.run())

    def _kill(self, process: Process) -> None:
        if process.alive:
            self.bank.world.note(f"{process.name} dies")
            process.kill()
            self.bank.world.network.process_ended(process, silently=False)

    def late_request(self) -> SentRequest | None:
        """Return a request that an instance has sent and that the broker must tolerate if it is repeated now."""
        allowed = [
            each
            for each in self.sent
            if each.protocol is Protocol.V2 or each.identity < self.identity or each.is_written
        ]
        return self.random.choice(allowed) if allowed else None


class Worker(ABC):
    """One instance of a post."""

    def __init__(self, post: Post, client_kind: ClientKind) -> None:
        self._post = post
        self._bank = post.bank
        self._world = post.bank.world
        self._random = post.bank.world.new_random()
        self._cluster = TransactionCluster.at(self._bank.bootstrap, client_id=post.name, timeout_s=REQUEST_TIMEOUT_S)
        self._producer = self._new_producer(client_kind)
        self._repeating: set[asyncio.Task[None]] = set()

    def _new_producer(self, client_kind: ClientKind) -> TransactionalProducer | WholeClient:
        patience_s = self._random.choice(_PATIENCES_S)
        if client_kind is ClientKind.WHOLE_CLIENT:
            return WholeClient(
                self._world,
                self._post.name,
                bootstrap=self._bank.bootstrap,
                randomness=self._random,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                patience_s=patience_s,
            )
        producer = (ReusingProducer if client_kind is ClientKind.REUSING else TransactionalProducer)(
            self._cluster,
            self._post.name,
            protocol=Protocol.V2 if client_kind is ClientKind.V2 else Protocol.CLASSIC,
            clock=self._world.clock,
            timeout_ms=TRANSACTION_TIMEOUT_MS,
            patience_s=patience_s,
            sent=self._post.sent,
        )
        if isinstance(producer, ReusingProducer):
            producer.boots, producer.patience_s = self._bank.boots, patience_s
        return producer

    async def run(self) -> bool:
        """Work until no work is left (returns True), or another instance has to continue (returns False)."""
        is_finished = await self._work_until_the_end()
        if self._random.random() < _CLOSE_CHANCE:
            await self._close()
        return is_finished

    async def _close(self) -> None:
        await self._producer.close()

    async def _work_until_the_end(self) -> bool:
        try:
            await self._producer.init()
            self._note_identity()
            await self._begin()
            while not self._bank.is_closing or not await self._is_finished():
                if not await self._work():
                    return False
        except ApiError as error:
            self._world.note(f"ends: {error}")
            return False
        self._world.note("has finished")
        return True

    @abstractmethod
    async def _begin(self) -> None:
        """Find out where the previous instance has stopped."""

    @abstractmethod
    async def _is_finished(self) -> bool:
        """Return whether no work is left; called when the bank is closing."""

    @abstractmethod
    async def _work(self) -> bool:
        """Run one transaction; returns False if this instance cannot continue."""

    async def _carry_out(self, transfer: Transfer, offsets: dict[TopicPartition, Offset] | None = None) -> Ended:
        """Write the records of a transfer and commit or abort it. Sets its `fate`."""
        try:
            await self._write(transfer)
            if offsets is not None:
                await self._producer.send_offsets(GROUP, offsets)
                await self._think()
            is_aborted = self._random.random() < _ABORT_CHANCE
        except AbortableError as error:
            self._world.note(f"{transfer} must be aborted: {error}")
            is_aborted = True
        if is_aborted:
            return await self._end(commit=False)
        transfer.fate = Fate.UNKNOWN
        ended = await self._end(commit=True)
        if ended is Ended.DONE:
            transfer.fate = Fate.CONFIRMED
        elif ended is Ended.REJECTED:
            transfer.fate = Fate.NOT_COMMITTED
        self._world.note(f"{transfer} committed: {ended.name}")
        return ended

    async def _end(self, *, commit: bool) -> Ended:
        ended = await self._producer.end(commit=commit)
        self._note_identity()
        return ended

    async def _write(self, transfer: Transfer) -> None:
        """Write the records in one request, in concurrent requests, or in one request after the other."""
        batches: dict[TopicPartition, list[bytes]] = {}
        for partition, entry in transfer.legs:
            batches.setdefault(partition, []).append(entry.encode())
        order = self._random.randrange(3)
        if order == 0:
            transfer.offsets |= await self._producer.produce(batches)
        elif order == 1:
            parts = [self._producer.produce({partition: values}) for partition, values in batches.items()]
            # Await all responses before the end, as clients do: a batch in flight could join the next transaction.
            for written in await asyncio.gather(*parts, return_exceptions=True):
                if isinstance(written, BaseException):
                    raise written
                transfer.offsets |= written
        else:
            for partition, values in batches.items():
                transfer.offsets |= await self._producer.produce({partition: values})
                await self._think()
        await self._think()

    async def _think(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.3))
        if self._bank.is_closing:
            return
        if self._random.random() < _STALL_CHANCE:
            self._world.note("stalls")
            await asyncio.sleep(self._random.uniform(1, _STALL_S_MAX))
        if self._random.random() < _REPEAT_CHANCE:
            task = asyncio.ensure_future(self._repeat())
            self._repeating.add(task)
            task.add_done_callback(self._repeating.discard)

    async def _repeat(self) -> None:
        await asyncio.sleep(self._random.uniform(0, _REPEAT_S_MAX))
        request = self._post.late_request()
        if request is None:
            return
        self._world.note(f"repeats {request.api_key.name} of epoch {request.identity.producer_epoch}")
        try:
            await repeat(self._cluster, request)
        except ApiError as error:
            self._world.note(f"cannot repeat: {error}")

    def _note_identity(self) -> None:
        self._post.identity = max(self._post.identity, self._producer.identity)
        self._post.producer_ids.add(self._producer.identity.producer_id)


class Teller(Worker):
    _transfers_left = _LAST_TRANSFERS

    async def _begin(self) -> None:
        """Do nothing: a teller's transfers do not depend on earlier ones."""

    async def _is_finished(self) -> bool:
        return self._transfers_left <= 0

    async def _work(self) -> bool:
        payer, *payees = self._random.sample(self._bank.accounts, self._random.randint(2, 3))
        credits = [(payee, self._random.randint(1, 100)) for payee in payees]
        legs = [(payer, -sum(amount for _, amount in credits)), *credits]
        transfer = self._post.new_transfer([(leg, "-") for leg in legs])
        ended = await self._carry_out(transfer)
        if self._bank.is_closing and transfer.fate is Fate.CONFIRMED:
            self._transfers_left -= 1
        await self._think()
        return ended is Ended.DONE


class Clerk(Worker):
    def __init__(self, post: Post, client_kind: ClientKind, partition: TopicPartition) -> None:
        super().__init__(post, client_kind)
        self._partition = partition
        self._consumer = new_consumer(
            self._world,
            name=post.name,
            bootstrap=self._bank.bootstrap,
            settings={"group.id": GROUP, "fetch.max.wait.ms": 200},
        )

    async def _begin(self) -> None:
        """Begin at the group's committed offset, which must not be below those that were acknowledged before."""
        floor = self._bank.offsets.floor([self._partition])
        committed = await self._consumer.committed([self._partition], timeout_s=_PATIENCE_S)
        begin = committed[self._partition].offset if committed else NO_OFFSET
        self._bank.offsets.on_fetched({self._partition: begin}, floor)
        self._world.note(f"begins at {begin}")
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, max(begin, 0))

    async def _close(self) -> None:
        await super()._close()
        await self._consumer.close()

    async def _is_finished(self) -> bool:
        ends = await self._consumer.end_offsets([self._partition])
        return await self._consumer.position(self._partition) >= ends[self._partition]

    async def _work(self) -> bool:
        begin = await self._consumer.position(self._partition)
        requests = await self._consumer.poll(0.2, max_records=self._random.randint(1, 3))
        if not requests:
            return True
        offsets = {self._partition: requests[-1].offset + 1}
        transfer = self._post.new_transfer([leg for request in requests for leg in _legs(request)])
        self._bank.offsets.on_committing(offsets)
        ended = await self._carry_out(transfer, offsets)
        if transfer.fate is Fate.CONFIRMED:
            self._bank.offsets.on_committed(offsets)
        elif transfer.fate is Fate.NOT_COMMITTED:
            self._bank.offsets.on_rejected(offsets)
        if transfer.fate is not Fate.CONFIRMED:
            self._consumer.seek(self._partition, begin)
        await self._think()
        return ended is Ended.DONE


def _legs(request: ConsumerRecord[bytes, bytes]) -> list[tuple[Leg, str]]:
    """Parse a request: its name, the account that pays, the account that is paid, and the amount."""
    name, payer, payee, amount = (request.value or b"").decode().split(" ")
    return [((int(payer), -int(amount)), name), ((int(payee), int(amount)), name)]
