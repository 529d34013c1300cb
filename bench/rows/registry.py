"""The schema registry in a broker's process: look-ups by id, and the start with many schemas.

The schemas are written to the topic in the registry's format before it is started.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import msgspec

from bench.load import Load, run_loads
from bench.model import Bench, Metric, Row
from bench.results import ROOKERY
from bench.systems import free_ports
from rookery.client.sync import Admin, NewTopic, Producer
from rookery.registry.records import SchemaValue, schema_record

_TOPIC = "_schemas"
_CONNECTIONS = 8
_LOOKUPS = 40_000
_LOOKED_UP = 1000
_LOADED = 10_000
_FIELDS = 20
_START_TIMEOUT_S = 60.0
_POLL_S = 0.005


def look_ups(bench: Bench) -> Mapping[str, float]:
    port, settings = _registry_at()
    ids = bench.scaled(_LOOKED_UP, minimum=10)
    directory = bench.directory / "broker"
    _fill(bench, directory, ids)
    broker = bench.system.start(directory, settings)
    try:
        _await_subjects(port, ids)
        options = {
            "port": port,
            "connections": _CONNECTIONS,
            "ids": ids,
            "requests": bench.scaled(_LOOKUPS, minimum=10 * _CONNECTIONS),
        }
        outcome = run_loads([Load("bench.lookups", "look_up", options)], broker)
    finally:
        broker.kill()
    requests = outcome.result["requests"]
    return {
        "registry.lookup: requests/s": requests / outcome.result["elapsed_s"],
        "registry.lookup: CPU us/request": outcome.cpu_s * 1e6 / requests,
    }


def start_with_schemas(bench: Bench) -> Mapping[str, float]:
    """Measure from the start of the process, including the broker, until the registry has every schema."""
    port, settings = _registry_at()
    count = bench.scaled(_LOADED, minimum=10)
    filled, directory = bench.kept_directory / "filled", bench.directory / "broker"
    if not filled.exists():
        _fill(bench, filled, count)
    shutil.copytree(filled, directory)
    started_s = time.perf_counter()
    broker = bench.system.spawn(directory, settings)
    try:
        _await_subjects(port, count)
        return {"registry.load: s": time.perf_counter() - started_s, "registry.load: CPU s": broker.cpu_seconds()}
    finally:
        broker.kill()


def _registry_at() -> tuple[int, Mapping[str, str]]:
    (port,) = free_ports(1)
    return port, {"schema.registry.listeners": f"http://127.0.0.1:{port}"}


def _fill(bench: Bench, directory: Path, count: int) -> None:
    broker = bench.system.start(directory)
    try:
        config = {"bootstrap.servers": broker.bootstrap}
        with Admin(config) as admin:
            (created,) = admin.create_topics([NewTopic(_TOPIC, 1, configs={"cleanup.policy": "compact"})])
            created.check()
        with Producer(config) as producer:
            for number in range(1, count + 1):
                key, value = schema_record(_schema(number))
                producer.send(_TOPIC, value, key=key)
    finally:
        broker.stop()


def _schema(number: int) -> SchemaValue:
    fields = [{"name": f"field_{index}", "type": "string"} for index in range(_FIELDS)]
    record = {"type": "record", "name": f"Record{number}", "namespace": "bench", "fields": fields}
    return SchemaValue(
        subject=f"topic-{number}-value", version=1, id=number, schema=msgspec.json.encode(record).decode()
    )


def _await_subjects(port: int, count: int) -> None:
    deadline_s = time.perf_counter() + _START_TIMEOUT_S
    while time.perf_counter() < deadline_s:
        try:
            with urlopen(f"http://127.0.0.1:{port}/subjects") as answer:
                subjects = msgspec.json.decode(answer.read(), type=list[str])
        except URLError:
            time.sleep(_POLL_S)
            continue
        if len(subjects) != count:
            raise RuntimeError(f"the registry has {len(subjects)} subjects instead of {count}")
        return
    raise RuntimeError("the registry did not start")


ROWS = (
    Row(
        name="registry/lookup",
        title=f"look-ups by id, {_CONNECTIONS} connections",
        family="Registry",
        metrics=(
            Metric(name="registry.lookup: requests/s", unit="requests/s", better="higher", goal=">= 3_000 requests/s"),
            Metric(name="registry.lookup: CPU us/request", unit="us", better="lower"),
        ),
        run=look_ups,
        shared=False,
        contestants=(ROOKERY,),
        warm_up=False,
    ),
    Row(
        name="registry/load",
        title=f"start of broker and registry with {_LOADED:,} schemas",
        family="Registry",
        metrics=(
            Metric(name="registry.load: s", unit="s", better="lower", goal="<= 5.0 s"),
            Metric(name="registry.load: CPU s", unit="s", better="lower"),
        ),
        run=start_with_schemas,
        shared=False,
        contestants=(ROOKERY,),
        warm_up=False,
    ),
)
