"""The processes and threads of the bank of test_bank.py: workers, a customer that makes requests, and readers."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.bank import (
    ACCOUNTS,
    BRANCHES,
    COMMITTED,
    PARTITIONS,
    REQUESTS,
    Seen,
    Transfer,
    decode_posting,
    opening_postings,
    read_journal,
)
from tests.faults.bank_worker import AMOUNT_MAX, CLERK, CONFLUENT, DRIFTER, ROOKERY, TELLER, Options
from tests.support.waiting import eventually

DEADLINE_S = 150.0
STAFF = {"ann": TELLER, "bob": TELLER, "cid": CLERK, "dot": CLERK, "eve": DRIFTER}
# The client of each worker.
MIXED = {"ann": CONFLUENT, "bob": ROOKERY, "cid": CONFLUENT, "dot": ROOKERY, "eve": CONFLUENT}
OWN = dict.fromkeys(STAFF, ROOKERY)
_REQUEST_INTERVAL_S = 0.01
_QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


def open_bank(bootstrap: str) -> None:
    """Create the topics, and put money on every account."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    topics = [NewTopic(name, PARTITIONS) for name in (*BRANCHES, REQUESTS)]
    for created in admin.create_topics(topics).values():
        created.result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "founder", **_QUIET})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for posting in opening_postings():
        topic, partition = posting.place
        producer.produce(topic, posting.encode(), partition=partition)
    producer.commit_transaction(DEADLINE_S)


class Staff:
    """The workers: for each a process, its journal and its standard error."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        seed: int,
        clients: Mapping[str, str],
        roles: Mapping[str, str] = STAFF,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._roles = roles
        self._clients = clients
        self._bootstrap = bootstrap
        self._directory = directory
        self._seed = seed
        self._generations = dict.fromkeys(roles, 0)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._zombies: list[subprocess.Popen[bytes]] = []

    @property
    def journals(self) -> list[Path]:
        return [self.journal(name) for name in self._roles]

    def journal(self, name: str) -> Path:
        return self._directory / f"{name}.journal"

    def start(self, name: str) -> None:
        options = Options(
            client=self._clients[name],
            role=self._roles[name],
            name=name,
            generation=self._generations[name],
            bootstrap=self._bootstrap,
            journal=str(self.journal(name)),
            seed=self._seed,
        )
        self._generations[name] += 1
        command = [sys.executable, "-m", "tests.faults.bank_worker", json.dumps(asdict(options))]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """Kill a worker with SIGKILL, at any point of its work."""
        self._processes[name].kill()
        assert self._processes[name].wait() == -signal.SIGKILL, self.log(name)

    def stop(self, name: str) -> None:
        """Stop a worker with SIGTERM: it ends its transaction first."""
        self._processes[name].terminate()
        # A worker that was just started has no signal handler yet, and is ended by the signal.
        assert self._processes[name].wait(DEADLINE_S) in (0, -signal.SIGTERM), self.log(name)

    def suspend(self, name: str) -> "subprocess.Popen[bytes]":
        """Suspend a worker with SIGSTOP. It is replaced; after SIGCONT it is a zombie."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGSTOP)
        self._zombies.append(process)
        return process

    def close(self) -> None:
        processes = [*self._processes.values(), *self._zombies]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    def committed(self) -> int:
        """Return the number of transactions whose commit was confirmed."""
        return sum(event == COMMITTED for path in self.journals for event, _ in read_journal(path))

    def log(self, name: str) -> str:
        journal = self.journal(name)
        lines = journal.read_text()[-2_000:] if journal.exists() else ""
        return f"{name}: {lines}\n{(self._directory / f'{name}.log').read_text(errors='replace')[-4_000:]}"

    def logs(self) -> str:
        return "\n".join(self.log(name) for name in self._roles)


class Customer:
    """Requests transfers continuously until it is stopped or closed."""

    def __init__(self, bootstrap: str, *, seed: int) -> None:
        self.requests: list[str] = []
        self._failures: list[KafkaError] = []
        self._random = random.Random(f"{seed}/customer")
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 300_000,
                **_QUIET,
            }
        )
        self._thread = threading.Thread(target=self._run, name="customer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when all requests are in the topic."""
        self.close()
        assert not self._thread.is_alive()
        assert self._producer.flush(DEADLINE_S) == 0
        assert self._failures == []

    def close(self) -> None:
        """Stop without checking the requests."""
        self._stop.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        while not self._stop.wait(_REQUEST_INTERVAL_S):
            debited, credited = self._random.sample(range(ACCOUNTS), 2)
            name = f"request-{len(self.requests)}"
            transfer = Transfer(name, debited, credited, self._random.randint(1, AMOUNT_MAX))
            self._producer.produce(REQUESTS, transfer.encode(), partition=debited % PARTITIONS, on_delivery=self._note)
            self.requests.append(name)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failures.append(error)


class Reader:
    """Reads the committed records of all branches from the beginning, until it is stopped or closed."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: list[Seen] = []
        self.ends: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._consumer = _consumer(bootstrap, "read_committed")
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in branch_partitions()])
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when all visible records are read."""
        self.close()
        assert not self._thread.is_alive()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)

    def transfers(self) -> set[str]:
        return {seen.posting.transfer for seen in list(self.seen)}

    def await_ends(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until the reader has reached these offsets as the ends of the partitions."""
        eventually(
            lambda: all(self.ends.get(place, 0) >= end for place, end in ends.items()),
            lambda: f"a reader is at {self.ends} instead of {ends}",
            timeout_s=DEADLINE_S,
        )

    def by_partition(self) -> list[Seen]:
        """Return the postings sorted by partition; the order within each partition is kept."""
        return sorted(self.seen, key=lambda seen: (seen.topic, seen.partition))

    def _run(self) -> None:
        with closing(self._consumer):
            while not self._stop.is_set():
                for message in self._consumer.consume(500, 0.05):
                    self._note(message)

    def _note(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if topic is None or partition is None or offset is None:
            return  # The broker is down.
        if error is None:
            self.seen.append(Seen(topic, partition, offset, decode_posting(message.value() or b"")))
        elif error.code() == KafkaError._PARTITION_EOF:
            self.ends[topic, partition] = offset


def branch_partitions() -> list[tuple[str, int]]:
    return [(topic, partition) for topic in BRANCHES for partition in range(PARTITIONS)]


def end_offsets(bootstrap: str, isolation: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the last stable offsets for `read_committed`, the high watermarks for `read_uncommitted`."""
    with closing(_consumer(bootstrap, isolation)) as consumer:
        return {place: consumer.get_watermark_offsets(TopicPartition(*place), DEADLINE_S)[1] for place in places}


def internal_partitions(bootstrap: str, topic: str) -> list[tuple[str, int]]:
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    return [(topic, partition) for partition in admin.list_topics(topic, DEADLINE_S).topics[topic].partitions]


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
            **_QUIET,
        }
    )
