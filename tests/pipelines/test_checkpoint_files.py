"""Repairs of checkpoints after the driver was killed."""

from pathlib import Path

from rookery.pipelines.checkpoint_files import CheckpointFiles, has_unfinished_batch, repair_checkpoint


def names(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / "offsets").iterdir())


def test_temporary_files_of_the_first_offsets_are_removed(tmp_path: Path) -> None:
    repair_checkpoint(str(tmp_path), CheckpointFiles())
    (tmp_path / "offsets").mkdir()
    for name in (".0.93c0ec86.tmp", "..0.93c0ec86.tmp.crc", ".0.crc"):
        (tmp_path / "offsets" / name).touch()
    repair_checkpoint(str(tmp_path), CheckpointFiles())
    assert names(tmp_path) == []


def test_files_stay_if_the_query_has_offsets(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for name in (".1.93c0ec86.tmp", "0", ".0.crc"):
        (tmp_path / "offsets" / name).touch()
    repair_checkpoint(str(tmp_path), CheckpointFiles())
    assert names(tmp_path) == [".0.crc", ".1.93c0ec86.tmp", "0"]


def test_an_unfinished_micro_batch_is_found(tmp_path: Path) -> None:
    assert not has_unfinished_batch(str(tmp_path), CheckpointFiles())
    for directory in ("offsets", "commits"):
        (tmp_path / directory).mkdir()
    (tmp_path / "offsets" / "0").touch()
    assert has_unfinished_batch(str(tmp_path), CheckpointFiles())
    for name in ("0", ".1.crc", "metadata"):
        (tmp_path / "commits" / name).touch()
    assert not has_unfinished_batch(str(tmp_path), CheckpointFiles())
    # 10 follows 9: batches are compared as numbers, not as strings.
    for batch in (9, 10):
        (tmp_path / "offsets" / str(batch)).touch()
    (tmp_path / "commits" / "9").touch()
    assert has_unfinished_batch(str(tmp_path), CheckpointFiles())
