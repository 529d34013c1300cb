"""A planted fault for each check: it is found, by that check alone, and its command exists."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.cli.commands import app
from rookery.client.admin import (
    AclBinding,
    ActiveProducer,
    OpenTransaction,
    QuotaEntity,
    ResourcePattern,
    ScramMechanism,
    ScramUser,
)
from rookery.doctor import CHECKS, ClusterSnapshot, Severity, examine
from rookery.doctor.docs import page
from rookery.doctor.snapshot import Mount, SeenCertificate, SeenMachine, SeenProcess
from tests.doctor.healthy import DAY_MS, NOW_MS, broker, directory, healthy, lags, partition, topic

OTHER = topic("__consumer_offsets")


def with_topic(*topics: object) -> ClusterSnapshot:
    return healthy(topics=(*topics, OTHER))


def with_machine(**changes: object) -> ClusterSnapshot:
    return healthy(machine=SeenMachine(**changes))  # type: ignore[arg-type]  # whatever the case changes


def acl(name: str, pattern_type: PatternType, operation: AclOperation = AclOperation.WRITE) -> AclBinding:
    pattern = ResourcePattern(AclResourceType.TOPIC, name, pattern_type)
    return AclBinding(pattern, "User:*", "*", operation, AclPermission.ALLOW)


def quota(name: str, value: float) -> dict[QuotaEntity, dict[str, float]]:
    return {QuotaEntity(user="alice"): {name: value}}


PRODUCER = ActiveProducer(
    producer_id=7,
    producer_epoch=0,
    coordinator_epoch=1,
    last_sequence=3,
    last_timestamp_ms=0,
    transaction_start=1500,
)
HANGING = OpenTransaction(TopicPartition("orders", 0), PRODUCER)
MANY = [partition(index, leader=1, replicas=(1, 2, 3), in_sync=(1, 2, 3)) for index in range(40)]
MOVED = [partition(index, leader=partition(index).replicas[1]) for index in range(6)]
ONE_SIDED = [partition(index, leader=1, replicas=(1,), in_sync=(1,)) for index in range(60)]
SIZES = {TopicPartition("orders", index): 10**9 for index in range(6)}

# Snapshots with a fault, by check; several for a check with several branches.
FAULTS: list[tuple[str, ClusterSnapshot]] = [
    ("offline-partitions", with_topic(topic("orders", partition(leader=-1, in_sync=(1, 2, 3))))),
    ("under-replicated", with_topic(topic("orders", partition(in_sync=(1, 2))))),
    ("min-isr-above-replicas", with_topic(topic("orders", min_insync_replicas="4"))),
    ("min-isr-equals-replicas", with_topic(topic("orders", min_insync_replicas="3"))),
    ("min-isr-one", with_topic(topic("orders", min_insync_replicas="1"))),
    ("single-replica", with_topic(topic("orders", partition(replicas=(1,), in_sync=(1,)), min_insync_replicas="1"))),
    ("unclean-election", with_topic(topic("orders", unclean_leader_election_enable="true"))),
    ("fenced-brokers", healthy(brokers=(broker(1), broker(2), broker(3), broker(4, is_fenced=True)))),
    ("leader-skew", with_topic(topic("orders", *MANY))),
    ("moved-leaders", with_topic(topic("orders", *MOVED))),
    ("single-rack", healthy(brokers=(*(broker(node, rack="a") for node in (1, 2, 3)), broker(4, rack="b")))),
    (
        "hot-partitions",
        healthy(log_dirs=(directory(1, partition_sizes=SIZES | {TopicPartition("orders", 2): 10**10}),)),
    ),
    (
        "auto-creation",
        healthy(brokers=(broker(1, configs={"auto.create.topics.enable": "true"}), broker(2), broker(3))),
    ),
    (
        "default-replication",
        healthy(brokers=(broker(1, configs={"default.replication.factor": "1"}), broker(2), broker(3))),
    ),
    (
        "internal-replication",
        healthy(
            topics=(
                topic(),
                topic(
                    "__consumer_offsets",
                    partition(topic="__consumer_offsets", replicas=(1, 2), in_sync=(1, 2)),
                    min_insync_replicas="1",
                ),
            )
        ),
    ),
    ("message-sizes", with_topic(topic("orders", max_message_bytes="200000000"))),
    ("message-sizes", with_topic(topic("orders", max_message_bytes="60000000"))),
    ("endless-retention", with_topic(topic("orders", retention_ms="-1"))),
    ("unused-topics", with_topic(topic(), topic("old", partition(topic="old", newest_ms=NOW_MS - 40 * DAY_MS)))),
    ("unused-topics", with_topic(topic(), topic("empty", partition(topic="empty", newest_ms=None, is_empty=True)))),
    ("future-timestamps", with_topic(topic("orders", partition(newest_ms=NOW_MS + DAY_MS)))),
    ("failed-directories", healthy(log_dirs=(directory(1, error=ErrorCode.KAFKA_STORAGE_ERROR),))),
    ("disk-space", healthy(log_dirs=(directory(1, usable_bytes=100 * 10**9),))),
    ("group-stuck", healthy(lags=lags(90, 100, 90, 100, 90, 110))),
    ("group-stuck", healthy(lags=lags(90, 100, 90, 100, 90, 110, members=0))),
    ("group-falling-behind", healthy(lags=lags(90, 100, 95, 110, 96, 130))),
    ("group-lost-records", healthy(lags=lags(90, 200, 95, 150, 140, 160, start=145, members=1))),
    (
        "group-near-retention",
        healthy(lags=lags(10, 10_000, 11, 10_000, 12, 10_000, unread_ms=NOW_MS - 7 * DAY_MS + 600_000)),
    ),
    ("group-abandoned", healthy(lags=lags(10, 100, 10, 100, members=0, unread_ms=NOW_MS - 8 * DAY_MS))),
    ("idle-members", healthy(lags=lags(90, 100, 110, 110, idle=2))),
    ("vanished-topics", healthy(lags=lags(90, 100, 110, 110, topic_name="gone"))),
    ("hanging-transactions", healthy(hanging=(HANGING,))),
    (
        "certificate-expiry",
        healthy(certificates=(SeenCertificate(address="kafka1:9093", expires_ms=NOW_MS + 20 * DAY_MS),)),
    ),
    ("everyone-may-change", healthy(acls=(acl("*", PatternType.LITERAL),))),
    ("prefix-star", healthy(acls=(acl("*", PatternType.PREFIXED),))),
    (
        "scram-iterations",
        healthy(scram_users=(ScramUser(name="alice", iterations={ScramMechanism.SCRAM_SHA_256: 4096}),)),
    ),
    ("small-quotas", healthy(quotas=quota("producer_byte_rate", 10))),
    ("small-quotas", healthy(quotas=quota("request_percentage", 0.01))),
    ("swappiness", with_machine(vm={"swappiness": 60})),
    ("dirty-ratios", with_machine(vm={"dirty_background_ratio": 40})),
    ("dirty-ratios", with_machine(vm={"dirty_ratio": 5})),
    ("open-files", with_machine(processes=(SeenProcess(pid=7, open_files=100, open_files_max=1024),))),
    ("file-system", with_machine(mounts=(Mount(path="/data", file_system="nfs4"),))),
    ("file-system", with_machine(mounts=(Mount(path="/data", file_system="tmpfs"),))),
]
# Faults that others come with: a partition below its minimum is under-replicated, too.
SEVERAL: list[tuple[set[str], ClusterSnapshot]] = [
    ({"under-min-isr", "under-replicated"}, with_topic(topic("orders", partition(in_sync=(1,))))),
    (
        {"replica-skew", "leader-skew", "single-replica"},
        with_topic(topic("orders", *ONE_SIDED, min_insync_replicas="1")),
    ),
    (
        {"too-many-replicas", "leader-skew"},
        with_topic(
            topic(
                "orders", *(partition(index, leader=1, replicas=(1, 2, 3), in_sync=(1, 2, 3)) for index in range(4001))
            )
        ),
    ),
    (
        {"retention-against-disk", "disk-space"},
        healthy(
            topics=(topic("orders", *(partition(index, oldest_ms=NOW_MS - DAY_MS) for index in range(6))), OTHER),
            log_dirs=(directory(1, usable_bytes=30 * 10**9),),
        ),
    ),
]


def found_in(snapshot: ClusterSnapshot) -> set[str]:
    return {finding.check.id for finding in examine(snapshot, CHECKS)}


def test_a_healthy_cluster_has_no_findings() -> None:
    assert [(each.check.id, each.subject, each.seen) for each in examine(healthy(), CHECKS)] == []


@pytest.mark.parametrize(("check", "snapshot"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_fault_is_found_by_its_check_alone(check: str, snapshot: ClusterSnapshot) -> None:
    assert found_in(snapshot) == {check}


@pytest.mark.parametrize(
    ("checks", "snapshot"), SEVERAL, ids=lambda each: "+".join(sorted(each)) if isinstance(each, set) else ""
)
def test_faults_that_come_together(checks: set[str], snapshot: ClusterSnapshot) -> None:
    assert found_in(snapshot) == checks


def test_every_check_has_a_planted_fault() -> None:
    planted = {name for name, _ in FAULTS} | {name for names, _ in SEVERAL for name in names}
    assert planted == {check.id for check in CHECKS}
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def commands() -> list[str]:
    snapshots = [snapshot for _, snapshot in FAULTS] + [snapshot for _, snapshot in SEVERAL]
    return sorted({each.command for snapshot in snapshots for each in examine(snapshot, CHECKS) if each.command})


@pytest.mark.parametrize("command", commands())
def test_a_command_exists_with_its_options(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "rookery"
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output


def test_every_finding_says_what_to_do() -> None:
    for _, snapshot in FAULTS:
        for finding in examine(snapshot, CHECKS):
            assert finding.command or finding.advice


def test_the_worst_comes_first() -> None:
    snapshot = healthy(
        topics=(topic("orders", partition(leader=-1, in_sync=(1, 2, 3)), retention_ms="-1"), OTHER),
        machine=SeenMachine(vm={"swappiness": 60}),
    )
    severities = [finding.severity for finding in examine(snapshot, CHECKS)]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


@pytest.mark.parametrize(
    ("days", "severity"), [(29, Severity.WARNING), (6, Severity.ERROR), (-1, Severity.ERROR), (31, None)]
)
def test_a_certificate_gets_more_urgent(days: int, severity: Severity | None) -> None:
    expiring = healthy(certificates=(SeenCertificate(address="k:1", expires_ms=NOW_MS + days * DAY_MS),))
    assert [each.severity for each in examine(expiring, CHECKS)] == ([] if severity is None else [severity])


@pytest.mark.parametrize(("free", "severity"), [(0.16, None), (0.14, Severity.WARNING), (0.04, Severity.ERROR)])
def test_a_disk_gets_more_urgent(free: float, severity: Severity | None) -> None:
    snapshot = healthy(log_dirs=(directory(1, usable_bytes=int(free * 1000 * 10**9)),))
    assert [each.severity for each in examine(snapshot, CHECKS)] == ([] if severity is None else [severity])


def test_retention_bytes_limits_the_growth() -> None:
    def snapshot(**configs: str) -> ClusterSnapshot:
        young = [partition(index, oldest_ms=NOW_MS - DAY_MS) for index in range(6)]
        free = directory(1, total_bytes=100 * 10**9, usable_bytes=30 * 10**9)
        return healthy(topics=(topic("orders", *young, **configs), OTHER), log_dirs=(free,))

    assert found_in(snapshot()) == {"retention-against-disk"}
    assert found_in(snapshot(retention_bytes=str(2 * 10**9))) == set()
    assert found_in(snapshot(retention_ms=str(2 * DAY_MS))) == set()


def test_a_single_broker_is_not_blamed_for_being_alone() -> None:
    alone = [partition(index, leader=1, replicas=(1,), in_sync=(1,)) for index in range(30)]
    snapshot = healthy(
        brokers=(broker(1, configs={"default.replication.factor": "1"}),),
        topics=(topic("orders", *alone, min_insync_replicas="1"),),
        log_dirs=(directory(1),),
    )
    assert found_in(snapshot) == set()


def test_the_page_is_up_to_date() -> None:
    written = Path(__file__).resolve().parents[2] / "docs" / "doctor-checks.md"
    assert written.read_text(encoding="utf-8") == page(), "run make docs"
