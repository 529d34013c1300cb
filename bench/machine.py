"""The environment of the measurements: the machine, the runtimes, and the versions of all programs."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import confluent_kafka

from bench.spark_jars import JARS
from rookery.base import distribution

ROOT = Path(__file__).resolve().parent.parent


def describe(directory: Path, jars: Path) -> dict[str, str]:
    """Return names and values, in the order of the report. `directory` has the data of both systems."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "Rookery": f"{distribution.version()}, commit {commit()}",
        "Apache Kafka": _kafka_version(jars),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "event loop": f"uvloop {_version('uvloop')}" if _version("uvloop") else "asyncio",
        "Java": _java_version(),
        "Spark": f"{_version('pyspark')}, {_spark_jars()}",
        "client": f"confluent-kafka {_version('confluent-kafka')}, librdkafka {_librdkafka_version()}",
    }


def commit() -> str:
    """Return the commit of the sources, marked if they have uncommitted changes."""
    head = _output("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--", "src", "bench")
    return (head or "unknown") + ("+" if changed else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    lines = _output("df", "--output=fstype", str(directory)).splitlines()
    return lines[-1] if lines else "unknown"


def _kafka_version(jars: Path) -> str:
    names = [re.fullmatch(r"kafka_[\d.]+-(.+)\.jar", path.name) for path in jars.glob("kafka_*.jar")]
    return next((match[1] for match in names if match), "not measured")


def _spark_jars() -> str:
    """Return Spark's connector and Avro functions, whose versions may differ from Spark's."""
    return ", ".join(sorted(path.stem for path in JARS.glob("spark-*.jar"))) or "without its own connector"


def _java_version() -> str:
    lines = _output("java", "-version").splitlines()
    return lines[1] if len(lines) > 1 else "none"


def _librdkafka_version() -> str:
    return str(confluent_kafka.libversion()[0])


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    """Return the output of a command, of both streams; empty if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return "" if done.returncode else (done.stdout + done.stderr).strip()
