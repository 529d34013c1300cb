"""Checkpoints that a killed driver left behind."""

from pathlib import Path

from rookery.pipelines.checkpoint_files import CheckpointFiles, has_unfinished_batch, mend_checkpoint


def names(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / "offsets").iterdir())


def test_first_offsets_that_were_not_finished_are_removed(tmp_path: Path) -> None:
    mend_checkpoint(str(tmp_path), CheckpointFiles())
    (tmp_path / "offsets").mkdir()
    for name in (".0.93c0ec86.tmp", "..0.93c0ec86.tmp.crc", ".0.crc"):
        (tmp_path / "offsets" / name).touch()
    mend_checkpoint(str(tmp_path), CheckpointFiles())
    assert names(tmp_path) == []


def test_a_query_that_has_offsets_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for name in (".1.93c0ec86.tmp", "0", ".0.crc"):
        (tmp_path / "offsets" / name).touch()
    mend_checkpoint(str(tmp_path), CheckpointFiles())
    assert names(tmp_path) == [".0.crc", ".1.93c0ec86.tmp", "0"]


def test_a_query_that_ended_inside_a_micro_batch(tmp_path: Path) -> None:
    assert not has_unfinished_batch(str(tmp_path), CheckpointFiles())
    for directory in ("offsets", "commits"):
        (tmp_path / directory).mkdir()
    (tmp_path / "offsets" / "0").touch()
    assert has_unfinished_batch(str(tmp_path), CheckpointFiles())
    for name in ("0", ".1.crc", "metadata"):
        (tmp_path / "commits" / name).touch()
    assert not has_unfinished_batch(str(tmp_path), CheckpointFiles())
    # Not by their order as texts.
    for batch in (9, 10):
        (tmp_path / "offsets" / str(batch)).touch()
    (tmp_path / "commits" / "9").touch()
    assert has_unfinished_batch(str(tmp_path), CheckpointFiles())
