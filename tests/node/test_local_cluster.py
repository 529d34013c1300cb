"""The settings and directories of a cluster on one machine."""

from pathlib import Path

import pytest

from rookery.base.errors import ConfigError
from rookery.base.files import OsFiles
from rookery.node.identity import read_stamp
from rookery.node.local_cluster import Member, check_count, format_members, make_members, member_settings
from rookery.node.settings import Settings


def members_at(path: Path, count: int, host: str = "127.0.0.1") -> list[Member]:
    return make_members(path, host, [(9092 + 2 * index, 9093 + 2 * index) for index in range(count)])


def load(members: list[Member]) -> list[Settings]:
    return [
        Settings.load(overrides=[f"{key}={value}" for key, value in member_settings(member, members).items()])
        for member in members
    ]


@pytest.mark.parametrize(
    ("count", "voters", "replicas", "in_sync"), [(1, 1, 1, 1), (2, 1, 2, 1), (3, 3, 3, 2), (4, 3, 3, 2), (7, 5, 3, 2)]
)
def test_every_node_has_settings_that_fit_together(
    tmp_path: Path, count: int, voters: int, replicas: int, in_sync: int
) -> None:
    loaded = load(members_at(tmp_path, count))
    assert [settings.node_id for settings in loaded] == list(range(1, count + 1))
    assert sum(settings.is_controller for settings in loaded) == voters
    assert all(settings.is_broker for settings in loaded)
    assert [settings.is_sole_voter for settings in loaded] == [voters == 1] + [False] * (count - 1)
    layers = loaded[-1].layers
    assert (layers.integer("default.replication.factor"), layers.integer("min.insync.replicas")) == (replicas, in_sync)
    ports = [listener.port for each in loaded for listener in each.listeners + each.controller_listeners]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::1"])
def test_controllers_have_an_address_on_any_host(tmp_path: Path, host: str) -> None:
    (first, *_) = load(members_at(tmp_path, 3, host))
    assert first.voters is not None
    assert {endpoint.host for voter in first.voters for endpoint in voter.endpoints.values()} == {
        "::1" if host == "::1" else "127.0.0.1"
    }


def test_directories_are_formatted_once(tmp_path: Path) -> None:
    members = members_at(tmp_path, 3)
    settings = [member_settings(member, members) for member in members]
    cluster_id = format_members(OsFiles(), members, settings, now_ms=1)
    stamps = [read_stamp(OsFiles(), member.data_dir) for member in members]
    assert {(stamp or {})["cluster.id"] for stamp in stamps} == {cluster_id}
    assert format_members(OsFiles(), members, settings, now_ms=2) == cluster_id
    assert [read_stamp(OsFiles(), member.data_dir) for member in members] == stamps


def test_the_number_of_nodes_cannot_change(tmp_path: Path) -> None:
    check_count(tmp_path, 3)
    members = members_at(tmp_path, 3)
    format_members(OsFiles(), members, [member_settings(member, members) for member in members], now_ms=1)
    check_count(tmp_path, 3)
    for other in (1, 5):
        with pytest.raises(ConfigError, match=r"holds the data of a cluster of 3 nodes. Use --brokers 3, or name"):
            check_count(tmp_path, other)


def test_the_directory_of_a_single_node_holds_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    check_count(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"holds the data of one node. Use --brokers 1, or name another --data-dir"):
        check_count(tmp_path, 3)
