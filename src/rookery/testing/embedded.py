"""`EmbeddedBroker`: a real broker for a test, on a real port, in its own directory.

It releases its resources in the opposite order of their acquisition: the routing of log lines, the temporary directory,
the port (held by a bound socket that does not listen, so that no other process gets it while the broker restarts), and
the runner.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.base.types import encode_uuid
from rookery.node.format import FormatOptions, format_node
from rookery.node.identity import read_stamp
from rookery.node.settings import Settings
from rookery.testing.faults import Faults
from rookery.testing.logs import routed_logs
from rookery.testing.managed import HOST, Managed, Runner, reserve_port
from rookery.testing.process import BrokerProcess
from rookery.testing.shifted_time import TimeShift
from rookery.testing.shortcuts import Shortcuts
from rookery.testing.thread import BrokerThread
from rookery.testing.users import scram_credentials

Mode: TypeAlias = Literal["thread", "process"]

# Tests advance the time by less than the default interval of five minutes, and have few groups.
DEFAULTS: Final[Mapping[str, str]] = {
    "log.retention.check.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
_FIXED_SETTINGS: Final = {
    "listeners": "the embedded broker uses a free port of the loopback",
    "log.dir": "use data_dir",
    "log.dirs": "use data_dir",
    "schema.registry.listeners": "use schema_registry=True, which uses a free port of the loopback",
}


class EmbeddedBroker(Managed, Shortcuts):
    """A context manager, for `with` and `async with`; or call `start` and `stop`.

    `settings` are a broker's settings, as in server.properties. `mode` "thread" runs the broker in this process, which
    allows faults and advancing its time; "process" runs `rookery start` as another process. The data is stored in
    `data_dir`, or in a temporary directory that is deleted with the broker. `schema_registry` also starts a schema
    registry. `security_protocol` is the name of the listener, with its keys in `settings`; `client_settings` are for
    the clients of the shortcuts. `users` are the first users of SCRAM, with their passwords.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        mode: Mode = "thread",
        data_dir: Path | str | None = None,
        schema_registry: bool = False,
        security_protocol: str = "PLAINTEXT",
        client_settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        check_options(settings or {}, mode)
        self._settings = {**DEFAULTS, **(settings or {})}
        self._mode = mode
        self._security_protocol = security_protocol
        self._users = dict(users or {})
        self._client_settings = {"security.protocol": security_protocol, **(client_settings or {})}
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._shift = TimeShift()
        self._faults = Faults()
        self._resources = ExitStack()
        self._data_dir: Path | None = None
        self._log_path: Path
        self._port: int | None = None
        self._has_registry = schema_registry
        self._registry_port: int | None = None
        self._runner: Runner | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for any client."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("the embedded broker is not started")
        return self._port

    @property
    def schema_registry_url(self) -> str:
        """`http://host:port`, for any client of a schema registry; the broker needs `schema_registry=True`."""
        if not self._has_registry:
            raise RuntimeError("the embedded broker has no schema registry: pass schema_registry=True")
        if self._registry_port is None:
            raise RuntimeError("the embedded broker is not started")
        return f"http://{HOST}:{self._registry_port}"

    @property
    def data_dir(self) -> Path:
        if self._data_dir is None:
            raise RuntimeError("the embedded broker is not started")
        return self._data_dir

    @property
    def faults(self) -> Faults:
        """The registered faults, which survive a restart of the broker."""
        if self._mode == "process":
            raise RuntimeError('faults cannot be injected into another process: leave out mode="process"')
        return self._faults

    def start(self) -> None:
        """Start the broker; return when it serves."""
        if self._port is not None:
            raise RuntimeError("the embedded broker is already started")
        try:
            self._resources.enter_context(routed_logs())
            temporary = Path(self._resources.enter_context(TemporaryDirectory(prefix="rookery-")))
            self._log_path = temporary / "broker.log"
            self._data_dir = self._given_data_dir or temporary / "data"
            self._port = self._resources.enter_context(reserve_port()).getsockname()[1]
            if self._has_registry:
                self._registry_port = self._resources.enter_context(reserve_port()).getsockname()[1]
            self._start_runner()
        except BaseException:
            self._release()
            raise

    def _start_runner(self) -> None:
        own = {"log.dirs": str(self.data_dir), "listeners": f"{self._security_protocol}://{self.bootstrap_servers}"}
        if self._has_registry:
            own["schema.registry.listeners"] = self.schema_registry_url
        assignments = [f"{key}={value}" for key, value in (self._settings | own).items()]
        if self._users:
            self._format(assignments)
        runner = self._make_runner(assignments)
        runner.start()
        self._runner = runner

    def _format(self, assignments: list[str]) -> None:
        """Format the directory with the users. A broker without users formats it by itself."""
        settings = Settings.load(overrides=assignments, overrides_given_as="settings")
        options = FormatOptions(
            cluster_id=encode_uuid(uuid4()),
            standalone=bool(settings.controller_listeners),
            ignore_formatted=True,
            scram=scram_credentials(self._users),
        )
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if read_stamp(OsFiles(), self.data_dir) is None:
            format_node(OsFiles(), settings, options, new_uuid=uuid4, now_ms=SystemClock().now_ms())

    def _make_runner(self, assignments: list[str]) -> Runner:
        if self._mode == "process":
            return BrokerProcess(assignments, log_path=self._log_path)
        return BrokerThread(
            Settings.load(overrides=assignments, overrides_given_as="settings"),
            shift=self._shift,
            intercept=self._faults.intercept,
        )

    def stop(self) -> None:
        """Stop the broker, and release its port and its temporary directory. No error if it is not running."""
        runner, self._runner = self._runner, None
        try:
            if runner is not None:
                # A clean stop only prepares the next start, and there is none from a temporary directory.
                runner.stop(clean=self._given_data_dir is not None)
        finally:
            self._release()

    def _release(self) -> None:
        self._resources.close()
        self._port = self._registry_port = self._data_dir = None

    def restart(self, *, clean: bool = True) -> None:
        """Stop and start again, with the same port and data. `clean=False` simulates a crash of the process:
        connections are reset, and the logs are recovered at the start."""
        self._running().stop(clean=clean)
        self._runner = None
        self._start_runner()

    def pause(self) -> None:
        """Suspend the broker: it accepts connections and responds to nothing, until `resume`."""
        self._running().pause()

    def resume(self) -> None:
        """Continue after `pause`; no error if the broker is not paused."""
        self._running().resume()

    def advance_time(self, seconds: float) -> None:
        """Advance the broker's time: its clock (timestamps, retention) and all its timers (sessions, time-outs,
        background work). Returns when the timers that became due have fired."""
        if seconds < 0:
            raise ValueError("time can only be moved forward")
        self._running().advance_time(seconds)

    def _running(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the embedded broker is not running")
        return self._runner


def check_options(settings: Mapping[str, str], mode: Mode, fixed: Mapping[str, str] | None = None) -> None:
    """Raise ValueError for a setting that cannot be set, with the reason that `fixed` may add, or for a wrong mode."""
    reasons = {**_FIXED_SETTINGS, **(fixed or {})}
    for key in settings.keys() & reasons.keys():
        raise ValueError(f"the setting {key} cannot be set: {reasons[key]}")
    if mode not in ("thread", "process"):
        raise ValueError(f'mode must be "thread" or "process", not {mode!r}')
