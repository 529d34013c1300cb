"""`rookery format`: which files it writes, and what it refuses. Kafka's tool is the oracle in tests/conformance."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rookery.base.errors import ConfigError, StartupError
from rookery.base.files import OsFiles
from rookery.base.types import encode_uuid
from rookery.metadata.records import FeatureLevelRecord, MetadataRecord
from rookery.node.format import FormatOptions, format_node, parse_initial_controllers, read_bootstrap
from rookery.node.identity import lock_directories, read_stamp, release_directories
from rookery.node.settings import Settings
from rookery.quorum.voters import Endpoint, ReplicaKey
from rookery.storage.names import METADATA_PARTITION

DYNAMIC = (
    "node.id=1",
    "listeners=PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names=CONTROLLER",
    "controller.quorum.bootstrap.servers=127.0.0.1:9093,127.0.0.1:9193",
)
STATIC = (*DYNAMIC[:3], "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9193")
BROKER = ("node.id=4", "process.roles=broker", *DYNAMIC[2:])
ZERO = Path(str(METADATA_PARTITION)) / "00000000000000000000-0000000000.checkpoint"
NODE_2 = "2@127.0.0.1:9193:AAAAAAAAAAAAAAAAAAAAAg"
BOTH = f"1@127.0.0.1:9093:AAAAAAAAAAAAAAAAAAAAAQ,{NODE_2}"


def format_at(path: Path, assignments: tuple[str, ...] = DYNAMIC, **options: object) -> list[str]:
    directories = [path / "a", path / "b"]
    settings = Settings.load(overrides=[*assignments, f"log.dirs={','.join(map(str, directories))}"])
    chosen = FormatOptions(**{"cluster_id": "the-cluster", **options})  # type: ignore[arg-type]
    return format_node(OsFiles(), settings, chosen, new_uuid=uuid4, now_ms=1_700_000_000_000)


def names(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != ".lock"}


def levels(records: list[MetadataRecord] | None) -> dict[str, int]:
    assert records is not None
    assert all(isinstance(record, FeatureLevelRecord) for record in records)
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


def test_static_voters_leave_no_voters_in_the_log(tmp_path: Path) -> None:
    lines = format_at(tmp_path, STATIC)
    assert names(tmp_path) == {
        f"{directory}/{name}" for directory in "ab" for name in ("meta.properties", "bootstrap.checkpoint")
    }
    stamps = [read_stamp(OsFiles(), tmp_path / directory) for directory in "ab"]
    assert [(stamp or {})["cluster.id"] for stamp in stamps] == ["the-cluster", "the-cluster"]
    assert len({(stamp or {})["directory.id"] for stamp in stamps}) == 2
    assert [line.split(" with ")[0] for line in lines] == [
        f"formatted the data directory {tmp_path / 'b'}",
        f"formatted the metadata directory {tmp_path / 'a'}",
    ]


@pytest.mark.parametrize("options", [{"standalone": True}, {"initial_controllers": BOTH}])
def test_dynamic_voters_are_in_the_log(tmp_path: Path, options: dict[str, object]) -> None:
    format_at(tmp_path, DYNAMIC, **options)
    assert names(tmp_path) >= {f"a/{ZERO}"}
    assert f"b/{ZERO}" not in names(tmp_path)


def test_the_directory_of_an_initial_controller_gets_its_id(tmp_path: Path) -> None:
    format_at(tmp_path, initial_controllers=BOTH)
    stamp = read_stamp(OsFiles(), tmp_path / "a")
    assert (stamp or {})["directory.id"] == encode_uuid(UUID(int=1))


@pytest.mark.parametrize(("assignments", "options"), [(DYNAMIC, {"no_initial_controllers": True}), (BROKER, {})])
def test_a_node_that_is_not_a_first_voter(
    tmp_path: Path, assignments: tuple[str, ...], options: dict[str, object]
) -> None:
    format_at(tmp_path, assignments, **options)
    assert f"a/{ZERO}" not in names(tmp_path)


def test_a_node_that_is_alone_can_be_given_its_cluster_id(tmp_path: Path) -> None:
    format_at(tmp_path, ("node.id=1",))
    assert (read_stamp(OsFiles(), tmp_path / "a") or {})["cluster.id"] == "the-cluster"


def test_the_first_features_are_the_highest_unless_chosen(tmp_path: Path) -> None:
    assert read_bootstrap(OsFiles(), tmp_path) is None
    format_at(tmp_path, standalone=True)
    found = levels(read_bootstrap(OsFiles(), tmp_path / "a"))
    assert next(iter(found)) == "metadata.version"
    assert found["group.version"] == 1
    format_at(tmp_path / "other", standalone=True, features=["group.version=0", "kraft.version=1"])
    assert levels(read_bootstrap(OsFiles(), tmp_path / "other" / "a"))["group.version"] == 0


def test_a_release_sets_all_features(tmp_path: Path) -> None:
    format_at(tmp_path, standalone=True, release_version="4.0-IV0")
    found = levels(read_bootstrap(OsFiles(), tmp_path / "a"))
    assert (found["metadata.version"], found["group.version"], found["transaction.version"]) == (22, 1, 0)


@pytest.mark.parametrize(
    ("assignments", "options", "complaint"),
    [
        (DYNAMIC, {}, r"a controller needs --standalone.*--initial-controllers.*--no-initial-controllers"),
        (STATIC, {"standalone": True}, r"but controller.quorum.voters is set.*Remove controller.quorum.voters"),
        (BROKER, {"standalone": True}, r"--standalone is for controllers"),
        (DYNAMIC, {"cluster_id": ""}, r"--cluster-id must be a text without spaces"),
        (DYNAMIC, {"cluster_id": "a\nb"}, r"--cluster-id must be a text without spaces"),
        (DYNAMIC, {"initial_controllers": "1@a:1"}, r"expected id@host:port:directory-id, got '1@a:1'"),
        (DYNAMIC, {"initial_controllers": ","}, r"must name at least one controller"),
        (DYNAMIC, {"initial_controllers": f"{NODE_2},{NODE_2}"}, r"each node id only once"),
        (
            DYNAMIC,
            {"initial_controllers": f"{NODE_2},{NODE_2.replace('2@', '1@')}"},
            r"each controller needs its own directory id",
        ),
        (DYNAMIC, {"initial_controllers": NODE_2.replace("127.0.0.1", "0.0.0.0")}, r"cannot connect to 0.0.0.0"),
        (DYNAMIC, {"standalone": True, "features": ["group.version"]}, r"expected name=level, got 'group.version'"),
        (DYNAMIC, {"standalone": True, "features": ["foo.version=1"]}, r"no feature foo.version; there are:.*group"),
        (DYNAMIC, {"standalone": True, "features": ["group.version=9"]}, r"only levels 0 to 1"),
        (DYNAMIC, {"standalone": True, "features": ["kraft.version=0"]}, r"Leave out the option"),
        (STATIC, {"features": ["kraft.version=1"]}, r"Leave out the option"),
        (DYNAMIC, {"standalone": True, "release_version": "3.3"}, r"3.3 is not supported; use one of: 4.0-IV0"),
        (
            DYNAMIC,
            {"standalone": True, "release_version": "4.0-IV0", "features": ["metadata.version=22"]},
            r"already sets metadata.version",
        ),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, assignments: tuple[str, ...], options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        format_at(tmp_path, assignments, **options)
    assert names(tmp_path) == set()


def test_formatted_directories_are_not_formatted_again(tmp_path: Path) -> None:
    format_at(tmp_path, standalone=True)
    before = read_stamp(OsFiles(), tmp_path / "a")
    with pytest.raises(StartupError, match=r"is already formatted. Use --ignore-formatted"):
        format_at(tmp_path, standalone=True)
    assert format_at(tmp_path, standalone=True, ignore_formatted=True) == []
    for file in (tmp_path / "b").iterdir():
        file.unlink()
    (line,) = format_at(tmp_path, standalone=True, ignore_formatted=True)
    assert line.startswith(f"formatted the data directory {tmp_path / 'b'} with metadata.version 4.")
    assert read_stamp(OsFiles(), tmp_path / "a") == before


def test_directories_of_another_cluster_or_node_are_refused(tmp_path: Path) -> None:
    format_at(tmp_path, standalone=True)
    with pytest.raises(StartupError, match=r"belongs to the cluster the-cluster, but --cluster-id is other"):
        format_at(tmp_path, standalone=True, ignore_formatted=True, cluster_id="other")
    with pytest.raises(StartupError, match=r"belongs to node.id=1, but this node has node.id=4"):
        format_at(tmp_path, BROKER, ignore_formatted=True)


def test_a_running_node_is_not_formatted(tmp_path: Path) -> None:
    locks = lock_directories(OsFiles(), [tmp_path / "a"])
    with pytest.raises(StartupError, match=r"another process holds"):
        format_at(tmp_path, standalone=True)
    release_directories(locks)


def test_initial_controllers_are_parsed() -> None:
    voters = parse_initial_controllers("1@[::1]:9093:AAAAAAAAAAAAAAAAAAAAAQ, " + NODE_2, "CONTROLLER")
    assert [voter.key for voter in voters] == [ReplicaKey(1, UUID(int=1)), ReplicaKey(2, UUID(int=2))]
    assert [voter.endpoints["CONTROLLER"] for voter in voters] == [Endpoint("::1", 9093), Endpoint("127.0.0.1", 9193)]
