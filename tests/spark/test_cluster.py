"""A pipeline on a real Spark cluster with a standalone master and two workers, one of which is killed while it runs.

Readers of committed records must see each row of the input once in the output.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from rookery.client.sync import Consumer, Producer
from rookery.testing.embedded import EmbeddedBroker
from tests.support.waiting import eventually

HOME = Path(pyspark.__file__).parent
RECORDS = 4_000
PER_BATCH = 200
PARTITIONS = 4
START_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 600.0

PIPELINE = f"""\
name: on-a-cluster
platform: {{bootstrap.servers: "$BROKER"}}
trigger: available-now
sources:
  numbers: {{topic: numbers, value_format: string, options: {{maxOffsetsPerTrigger: "{PER_BATCH}"}}}}
transforms:
  - {{name: doubled, sql: "SELECT cast(value AS int) * 2 AS value FROM numbers"}}
sinks:
  - {{topic: doubled, from: doubled, value_format: string}}
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@contextmanager
def spark_process(log: Path, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run one of Spark's daemons in its own process group until the test ends."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            kill_group(process)
            process.wait()


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a worker and its executors with SIGKILL."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def found_in(log: Path, pattern: str) -> str:
    """Wait until a daemon has written a text to its log, and return it."""
    match: re.Match[str] | None = None

    def look() -> bool:
        nonlocal match
        match = re.search(pattern, log.read_text())
        return match is not None

    eventually(look, lambda: f"{pattern} in {log.read_text()[-2000:]}", timeout_s=START_TIMEOUT_S)
    assert match is not None
    return match[0]


@contextmanager
def cluster(directory: Path) -> "Iterator[tuple[str, list[subprocess.Popen[bytes]]]]":
    """Run a cluster; yields the master's address and two workers."""
    with ExitStack() as processes:
        log = directory / "master.log"
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        processes.enter_context(spark_process(log, "org.apache.spark.deploy.master.Master", *arguments))
        master = found_in(log, r"spark://127\.0\.0\.1:\d+")
        workers = []
        for number in range(2):
            log = directory / f"worker-{number}.log"
            size = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
            work = ("--work-dir", str(directory / f"work-{number}"))
            worker = spark_process(log, "org.apache.spark.deploy.worker.Worker", *size, *work, master)
            workers.append(processes.enter_context(worker))
            found_in(log, "Successfully registered with master")
        yield master, workers


def committed_values(broker: EmbeddedBroker, topic: str) -> "Counter[int]":
    config = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer[bytes, bytes](config) as consumer:
        return Counter(int(value) for value in consumer.read_arrow(topic).column("value").to_pylist())


def produce_numbers(broker: EmbeddedBroker) -> None:
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(RECORDS):
            producer.send("numbers", str(number).encode(), partition=number % PARTITIONS)
        producer.flush()


def start_pipeline(broker: EmbeddedBroker, master: str, directory: Path) -> "subprocess.Popen[bytes]":
    file = directory / "pipeline.yaml"
    file.write_text(PIPELINE.replace("$BROKER", broker.bootstrap_servers))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
    }
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return subprocess.Popen(
        [sys.executable, "-m", "rookery.cli.main", "pipelines", "run", str(file), "--master", master, *options],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "ROOKERY_STATE_DIR": str(directory / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_killed_worker_changes_nothing_of_the_output(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker, cluster(tmp_path) as (master, workers):
        broker.create_topic("numbers", partitions=PARTITIONS)
        broker.create_topic("doubled", partitions=PARTITIONS)
        produce_numbers(broker)
        running = start_pipeline(broker, master, tmp_path)
        try:
            deadline_s = time.monotonic() + RUN_TIMEOUT_S
            while committed_values(broker, "doubled").total() < RECORDS // 5:
                assert running.poll() is None, running.communicate()[0].decode()
                assert time.monotonic() < deadline_s, "the pipeline is too slow"
                time.sleep(0.1)
            kill_group(workers[0])
            output = running.communicate(timeout=RUN_TIMEOUT_S)[0].decode()
        finally:
            running.kill()
            running.wait()
        assert committed_values(broker, "doubled").total() > RECORDS // 5, "it was killed in the middle"
        assert running.returncode == 0, output
        assert committed_values(broker, "doubled") == Counter(2 * number for number in range(RECORDS))
        assert f"rows in {RECORDS:,}, rows out {RECORDS:,}" in output
