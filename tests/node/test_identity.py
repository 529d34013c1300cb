"""A log directory belongs to one node of one cluster and to one process at a time."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rookery.base.errors import StartupError
from rookery.base.files import OsFiles
from rookery.node.identity import Identity, establish_identity, lock_directories, release_directories
from tests.faults.files import CrashFiles, Survival


def establish(
    *directories: Path, node_id: int = 1, cluster_id: str | None = None, required: Path | None = None
) -> Identity:
    return establish_identity(
        OsFiles(), directories, node_id=node_id, cluster_id=cluster_id, new_uuid=uuid4, required=required
    )


def test_new_directories_are_stamped_and_recognised(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    stamped = establish(first, second)
    assert establish(first, second) == stamped
    assert len(stamped.cluster_id) == 22
    assert len(set(stamped.directory_ids.values())) == 2


def test_a_directory_added_later_joins_the_cluster(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    cluster_id = establish(first).cluster_id
    assert establish(first, second).cluster_id == cluster_id


def test_the_configured_cluster_id_is_used(tmp_path: Path) -> None:
    assert establish(tmp_path, cluster_id="MkU3OEVBNTcwNTJENDM2Qg").cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"


def test_another_node_id_is_rejected(tmp_path: Path) -> None:
    establish(tmp_path, node_id=1)
    with pytest.raises(StartupError, match=r"belongs to node.id=1.*Set node.id=1"):
        establish(tmp_path, node_id=2)


def test_another_cluster_id_is_rejected(tmp_path: Path) -> None:
    establish(tmp_path, cluster_id="one")
    with pytest.raises(StartupError, match=r"belongs to the cluster one.*Set cluster.id=one"):
        establish(tmp_path, cluster_id="two")


def test_directories_of_two_clusters_are_rejected(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    establish(first, cluster_id="one")
    establish(second, cluster_id="two")
    with pytest.raises(StartupError, match=r"different clusters \(one, two\)"):
        establish(first, second)


def test_a_member_of_a_cluster_does_not_format_itself(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"is not formatted.*rookery format --cluster-id ID --config FILE"):
        establish(tmp_path, required=tmp_path)
    assert list(tmp_path.iterdir()) == []
    establish(tmp_path, cluster_id="one")
    assert establish(tmp_path, required=tmp_path).cluster_id == "one"


def test_a_member_with_a_new_disk_for_its_metadata_log_is_rejected(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    establish(second, cluster_id="one", node_id=3)
    with pytest.raises(StartupError, match=r"a has the metadata log and is not formatted.*rookery quorum remove 3"):
        establish(first, second, node_id=3, required=first)
    assert list(first.iterdir()) == []


def test_a_member_formats_a_new_disk_for_partitions(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    establish(first, cluster_id="one")
    assert set(establish(first, second, required=first).directory_ids) == {first, second}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=1\ncluster.id=x\n",
        "cluster.id=x\nnode.id=seven\ndirectory.id=y\n",
        "cluster.id=x\nnode.id=1\ndirectory.id=no uuid\n",
        "cluster.id=x\nnode.id=\u0661\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
    ],
)
def test_a_damaged_stamp_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(StartupError, match=r"is damaged"):
        establish(tmp_path)


def test_a_locked_directory_is_rejected_and_the_others_are_released(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    held = lock_directories(OsFiles(), [second])
    with pytest.raises(StartupError, match=r"another process holds"):
        lock_directories(OsFiles(), [first, second])
    release_directories(held)
    release_directories(lock_directories(OsFiles(), [first, second]))


def test_a_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StartupError, match=r"cannot write to the log directory.*log.dirs"):
        lock_directories(OsFiles(), [tmp_path / "file" / "data"])


def test_directory_ids_are_uuids(tmp_path: Path) -> None:
    (directory_id,) = establish(tmp_path).directory_ids.values()
    assert isinstance(directory_id, UUID)


def test_a_new_directory_and_its_stamp_survive_a_power_loss() -> None:
    files, directory = CrashFiles(), Path("/srv/rookery/data")
    lock_directories(files, [directory])
    stamped = establish_identity(files, [directory], node_id=1, cluster_id=None, new_uuid=uuid4)
    files.crash(Survival.NOTHING)
    lock_directories(files, [directory])
    assert establish_identity(files, [directory], node_id=1, cluster_id=None, new_uuid=uuid4) == stamped
