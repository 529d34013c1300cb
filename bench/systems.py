"""The compared systems, each started as its users start it.

Rookery: `rookery start` with its defaults, and, if it was built, a second one with its hot modules compiled. Apache
Kafka: one node in KRaft mode with the settings of its `config/server.properties`, and the heap and JVM options of its
`kafka-server-start.sh`. All listen on the loopback interface and store their data in the given directory. The ports are
chosen when a directory is prepared and stay the same, because Kafka stores its controller's address in its data.
"""

import compileall
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import rookery
from bench import process
from bench.model import System
from bench.probe import NotServingError, await_broker, serves
from bench.results import COMPILED, ROOKERY

# Kafka takes minutes to close 10,000 partitions on a busy disk.
STOP_TIMEOUT_S = 400
_FORMAT_TIMEOUT_S = 120
_CLUSTER_ID = "rookery-bench-cluster1"
_PROGRAM = ("-m", "rookery.cli.main")
# The names of the listeners that every broker has; Rookery's controller needs none.
_PLAINTEXT, _CONTROLLER = "PLAINTEXT", "CONTROLLER"

# Kafka 4's config/server.properties, without its addresses and directory.
KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
# KAFKA_HEAP_OPTS of kafka-server-start.sh, KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh.
KAFKA_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class ProcessBroker:
    """A broker that runs as a child process."""

    def __init__(self, child: "subprocess.Popen[bytes]", ports: Mapping[str, int], log_path: Path) -> None:
        """`ports` are those of the listeners, by their names."""
        self._child = child
        self._log_path = log_path
        self._ports = ports
        self.port = ports[_PLAINTEXT]

    @property
    def bootstrap(self) -> str:
        return self.address(_PLAINTEXT)

    def address(self, protocol: str) -> str:
        return f"127.0.0.1:{self._ports[protocol]}"

    @property
    def pid(self) -> int:
        return self._child.pid

    def is_running(self) -> bool:
        return self._child.poll() is None

    def cpu_seconds(self) -> float:
        return process.cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return process.rss_bytes(self.pid)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def log(self) -> str:
        """Return the end of its log."""
        return self._log_path.read_text(errors="replace")[-2000:]

    def await_serving(self) -> None:
        try:
            await_broker(self, serves)
        except NotServingError as error:
            self.kill()
            raise RuntimeError(f"{error}\n{self.log()}") from error

    def _end(self, signal_number: signal.Signals) -> None:
        if not self.is_running():
            return
        self._child.send_signal(signal_number)
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S} s\n{self.log()}") from None


class Rookery:
    """`rookery start`, from this source tree or from a wheel in another Python environment.

    `command` runs `rookery`.
    """

    def __init__(self, name: str = ROOKERY, command: Sequence[str] = (sys.executable, *_PROGRAM)) -> None:
        self.name = name
        self._command = command

    def prepare(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """Choose a port; Rookery formats its directory at its first start.

        Python stores the bytecode of imported modules, like `pip install`, unless the user has disabled that.
        """
        directory.mkdir(parents=True, exist_ok=True)
        _ports(directory)
        compileall.compile_dir(Path(rookery.__file__).parent, quiet=1)

    def spawn(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> ProcessBroker:
        ports = _ports(directory, protocols)
        command = [*self._command, "start", "--data-dir", str(directory / "data")]
        if protocols:
            command += ["--set", f"listeners={_listeners(ports, (_PLAINTEXT, *protocols))}"]
        else:
            command += ["--listen", f"127.0.0.1:{ports[_PLAINTEXT]}"]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        return _spawn(command, ports, directory / "broker.log")

    def start(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> ProcessBroker:
        return _start(self, directory, settings, protocols)


class ApacheKafka:
    """Apache Kafka from its jars, one process that is broker and controller."""

    name = "kafka"

    def __init__(
        self,
        jars: Path,
        *,
        listeners: Sequence[str] = (),
        jvm_options: Sequence[str] = KAFKA_JVM_OPTIONS,
        format_options: Sequence[str] = (),
    ) -> None:
        """Create the system. `listeners` are added to the plaintext one and the controller's, as `NAME://host:port`."""
        if not list(jars.glob("kafka_*.jar")) or shutil.which("java") is None:
            raise FileNotFoundError(f"Apache Kafka needs java and its jars in {jars}: run scripts/bench-setup.sh")
        self._class_path = str(jars.resolve() / "*")
        self._listeners = listeners
        self._jvm_options = jvm_options
        self._format_options = format_options

    def prepare(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        if (directory / "data").exists():
            return
        directory.mkdir(parents=True, exist_ok=True)
        # Formatting opens no listener.
        properties = self._write_properties(directory, settings or {}, ())
        arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(properties), "--standalone"]
        command = ["java", "-Xmx256M", "-cp", self._class_path, "kafka.tools.StorageTool", *arguments]
        command += self._format_options
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"formatting failed: {done.stdout}{done.stderr}")

    def spawn(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> ProcessBroker:
        properties = self._write_properties(directory, settings or {}, protocols)
        command = ["java", *self._jvm_options, f"-Xlog:gc*:file={directory / 'gc.log'}:time,tags", "-cp"]
        command += [self._class_path, "kafka.Kafka", str(properties)]
        return _spawn(command, _ports(directory, protocols), directory / "broker.log")

    def start(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> ProcessBroker:
        return _start(self, directory, settings, protocols)

    def _write_properties(self, directory: Path, settings: Mapping[str, str], protocols: Sequence[str]) -> Path:
        ports = _ports(directory, protocols)
        addresses = ",".join((_listeners(ports, (_PLAINTEXT, _CONTROLLER, *protocols)), *self._listeners))
        places = {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(
                (KAFKA_SETTINGS["listener.security.protocol.map"], *(f"{name}:{name}" for name in protocols))
            ),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[_CONTROLLER]}",
            "log.dirs": str(directory / "data"),
        }
        path = directory / "server.properties"
        lines = (f"{key}={value}\n" for key, value in {**KAFKA_SETTINGS, **places, **settings}.items())
        path.write_text("".join(lines))
        return path


def _start(
    system: Rookery | ApacheKafka, directory: Path, settings: Mapping[str, str] | None, protocols: Sequence[str]
) -> ProcessBroker:
    system.prepare(directory, settings)
    broker = system.spawn(directory, settings, protocols)
    broker.await_serving()
    return broker


def _spawn(command: list[str], ports: Mapping[str, int], log_path: Path) -> ProcessBroker:
    # Kafka's JVM raises its limit itself; a shell's default would stop Rookery at 1,000 partitions or connections.
    process.raise_open_files_limit()
    with log_path.open("ab") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    return ProcessBroker(child, ports, log_path)


def _listeners(ports: Mapping[str, int], names: Sequence[str]) -> str:
    return ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in names)


def _ports(directory: Path, protocols: Sequence[str] = ()) -> dict[str, int]:
    """Return the ports of the directory's listeners, each of which is chosen on the first call that names it."""
    path = directory / "ports"
    ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in (_PLAINTEXT, _CONTROLLER, *protocols) if name not in ports]
    if missing:
        ports |= zip(missing, free_ports(len(missing)), strict=True)
        path.write_text(json.dumps(ports))
    return ports


def free_ports(count: int) -> list[int]:
    """Return ports that were just free, below the kernel's range for outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(15_000, 32_000)
        if port in ports:
            continue
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    return ports


def systems(names: list[str], *, jars: Path, compiled_python: Path) -> list[System]:
    """Return the named systems, in this order."""
    found: list[System] = []
    for name in names:
        if name == ROOKERY:
            found.append(Rookery())
        elif name == COMPILED:
            if not compiled_python.exists():
                raise FileNotFoundError(f"there is no {compiled_python}: run make compiled")
            found.append(Rookery(COMPILED, [str(compiled_python), *_PROGRAM]))
        elif name == ApacheKafka.name:
            found.append(ApacheKafka(jars))
        else:
            raise ValueError(f"no such system: {name}; there are {ROOKERY}, {COMPILED} and {ApacheKafka.name}")
    return found
