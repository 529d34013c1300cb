"""Gathering from a running broker, from a TLS listener, and from /proc; and the command, with planted faults."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rookery.base.clock import SystemClock
from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.cli.commands import app
from rookery.client import Admin
from rookery.client.admin import Broker, LogDirectory, NewTopic, OffsetAndMetadata, QuotaEntity
from rookery.doctor import ClusterSnapshot, gather
from rookery.doctor.machine import read_machine
from rookery.doctor.snapshot import Mount, SeenProcess
from rookery.doctor.tls import read_certificates
from rookery.testing import EmbeddedBroker
from tests.support.certificates import make_certificates
from tests.support.retention import KEEPS_OLD_RECORDS
from tests.support.secured import client_settings, tls_settings

QUIET = {"auto.create.topics.enable": "false", **KEEPS_OLD_RECORDS}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Run a broker with faults: each test finds them, whichever of the others ran before it."""
    with EmbeddedBroker(settings=QUIET) as running:
        asyncio.run(plant(running))
        yield running


def config(broker: EmbeddedBroker) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def examined(broker: EmbeddedBroker, *arguments: str, exit_code: int) -> dict[str, Any]:
    options = ["--json", "--for", "0", "-b", broker.bootstrap_servers, *arguments]
    result = CliRunner().invoke(app, ["doctor", *options])
    assert result.exit_code == exit_code, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


async def plant(broker: EmbeddedBroker) -> None:
    """Make topics, a quota and a group with faults that a real broker allows."""
    now_ms = SystemClock().now_ms()
    async with Admin(config(broker)) as admin:
        new = [
            NewTopic("unwritable", 1, 1, configs={"min.insync.replicas": "2", "retention.ms": "604800000"}),
            NewTopic("endless", 1, 1),
            NewTopic("huge", 1, 1, configs={"max.message.bytes": "200000000", "retention.ms": "604800000"}),
            NewTopic("lossy", 1, 1, configs={"retention.ms": "604800000"}),
            NewTopic("ahead", 1, 1, configs={"retention.ms": "604800000"}),
        ]
        for outcome in await admin.create_topics(new):
            outcome.check()
        await admin.alter_client_quotas({QuotaEntity(user="alice"): {"producer_byte_rate": 1.0}})
    await asyncio.to_thread(broker.produce, "lossy", "a", "b", "c")
    await asyncio.to_thread(broker.produce, "ahead", "x", timestamp_ms=now_ms + 3_000_000)
    async with Admin(config(broker)) as admin:
        lossy = TopicPartition("lossy", 0)
        await admin.commit_offsets("billing", {lossy: OffsetAndMetadata(0)})
        await admin.delete_records({lossy: 2})


def test_faults_of_a_running_broker_are_found(broker: EmbeddedBroker) -> None:
    found = examined(broker, "--no-machine", exit_code=1)
    by_check = {(each["check"], each["subject"]) for each in found["findings"]}
    assert by_check >= {
        ("min-isr-above-replicas", "topic unwritable"),
        ("endless-retention", "topic endless"),
        ("message-sizes", "topic huge"),
        ("group-lost-records", "group billing"),
        ("future-timestamps", "topic ahead"),
        ("small-quotas", "user alice"),
        ("unused-topics", "topic endless"),
    }
    assert not {"single-replica", "offline-partitions", "auto-creation"} & {check for check, _ in by_check}
    assert found["counts"]["error"] >= 2
    assert "the machine of a broker: run this on it" in found["not_examined"]


def test_a_stuck_group_is_found_after_some_time(broker: EmbeddedBroker) -> None:
    async def work() -> ClusterSnapshot:
        async with Admin(config(broker)) as admin:
            (outcome,) = await admin.create_topics([NewTopic("stuck", 1, 1)])
            outcome.check()
            await asyncio.to_thread(broker.produce, "stuck", "a", "b")
            await admin.commit_offsets("stopped", {TopicPartition("stuck", 0): OffsetAndMetadata(1)})
            return await gather(admin, observe_s=1.0, machine=False)

    from rookery.doctor import CHECKS, examine

    findings = examine(asyncio.run(work()), CHECKS)
    assert "group stopped" in {each.subject for each in findings if each.check.id == "group-stuck"}


def test_checks_can_be_chosen_and_the_exit_code_too(broker: EmbeddedBroker) -> None:
    found = examined(broker, "--only", "auto-creation", exit_code=0)
    assert (found["checks"], found["findings"]) == (["auto-creation"], [])
    # Notes do not fail the command unless that is asked for.
    examined(broker, "--only", "unused-topics", exit_code=0)
    examined(broker, "--only", "unused-topics", "--fail-on", "note", exit_code=1)
    skipped = examined(broker, "--skip", "unused-topics", exit_code=1)
    assert "unused-topics" not in skipped["checks"]


def test_an_unknown_check_or_severity_is_wrong_usage(broker: EmbeddedBroker) -> None:
    result = CliRunner().invoke(app, ["doctor", "--only", "unused-topic", "-b", broker.bootstrap_servers])
    assert result.exit_code == 2
    assert "did you mean unused-topics?" in " ".join(result.output.replace("│", " ").split())
    assert CliRunner().invoke(app, ["doctor", "--fail-on", "panic"]).exit_code == 2


def test_the_table_says_why_and_what_to_do(broker: EmbeddedBroker) -> None:
    arguments = ["doctor", "--for", "0", "--only", "min-isr-above-replicas", "-b", broker.bootstrap_servers]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "rookery topics alter unwritable --set min.insync.replicas=1" in result.stdout
    assert "min-isr-above-replicas: Producers with acks=all can never write." in result.stdout
    assert "1 checks: 1 error" in result.stdout


def test_this_machine_is_read_if_a_broker_runs_on_it(broker: EmbeddedBroker) -> None:
    async def work() -> ClusterSnapshot:
        async with Admin(config(broker)) as admin:
            return await gather(admin)

    machine = asyncio.run(work()).machine
    assert machine is not None
    assert "swappiness" in machine.vm
    assert os.getpid() in {process.pid for process in machine.processes}, "the embedded broker runs in this process"
    assert [mount.path for mount in machine.mounts] == [str(broker.data_dir)]


def directory(path: str, node_id: int = 1) -> LogDirectory:
    return LogDirectory(
        node_id=node_id, path=path, error=ErrorCode.NONE, total_bytes=-1, usable_bytes=-1, partition_sizes={}
    )


def make_proc(root: Path) -> None:
    """A /proc with a process 42 that listens on port 9092 (0x2384), and two mounts."""
    proc = root / "proc"
    for name in ("sys/vm", "net", "42/fd"):
        (proc / name).mkdir(parents=True)
    (proc / "sys/vm/swappiness").write_text("60\n")
    (proc / "sys/vm/dirty_ratio").write_text("not a number\n")
    (proc / "mounts").write_text("/dev/sda1 / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n")
    (proc / "net/tcp").write_text(
        "  sl  local_address rem_address st tx_queue tr retrnsmt uid timeout inode\n"
        "   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 777 1 0\n"
    )
    (proc / "42/fd/3").symlink_to("socket:[777]")
    (proc / "42/fd/4").symlink_to("elsewhere")
    (proc / "42/limits").write_text("Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n")


def test_proc_is_parsed(tmp_path: Path) -> None:
    make_proc(tmp_path)
    found = read_machine(
        [Broker(1, "127.0.0.1", 9092), Broker(2, "kafka2.invalid", 9093)],
        [directory("/data/logs"), directory("/var/other", node_id=1), directory("/remote", node_id=2)],
        root=tmp_path,
    )
    assert found is not None
    assert found.vm == {"swappiness": 60}
    assert found.processes == (SeenProcess(pid=42, open_files=2, open_files_max=1024),)
    assert found.mounts == (
        Mount(path="/data/logs", file_system="nfs4"),
        Mount(path="/var/other", file_system="ext4"),
    )


def test_a_machine_without_proc_has_nothing_to_say(tmp_path: Path) -> None:
    found = read_machine([Broker(1, "127.0.0.1", 9092)], [directory("/data")], root=tmp_path)
    assert found is not None
    assert (found.vm, found.processes, found.mounts) == ({}, (), ())
    assert read_machine([Broker(1, "kafka.invalid", 9092)], [], root=tmp_path) is None


def test_the_certificate_of_a_tls_listener_is_read(tmp_path: Path) -> None:
    """The certificates of the tests live for two days."""
    certificates = make_certificates(tmp_path)
    clients = client_settings("SSL", certificates)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in clients.items()))
    settings = {**QUIET, **tls_settings(certificates)}
    with EmbeddedBroker(settings=settings, security_protocol="SSL", client_settings=clients) as running:
        address = running.bootstrap_servers
        arguments = ["doctor", "--only", "certificate-expiry", "--json", "--for", "0", "-b", address]
        result = CliRunner().invoke(app, ["--command-config", str(file), *arguments])
    assert result.exit_code == 1, result.output
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["check"], finding["severity"]) == ("certificate-expiry", "error")
    assert finding["subject"] == f"listener {address}"


def test_a_listener_without_tls_has_no_certificate(broker: EmbeddedBroker) -> None:
    unseen: list[str] = []
    found = asyncio.run(read_certificates([Broker(1, "127.0.0.1", broker.port)], unseen))
    assert found == ()
    assert [sentence.startswith(f"the certificate of 127.0.0.1:{broker.port}: ") for sentence in unseen] == [True]
