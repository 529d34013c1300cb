"""A broker process whose metadata log is damaged: the failed start and the repair, as its operator sees them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import start_broker


def rookery(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rookery.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("clean", [True, False])
def test_one_flipped_byte_fails_the_start_until_it_is_repaired(tmp_path: Path, clean: bool) -> None:
    data_dir = tmp_path / "data"
    with start_broker(data_dir) as broker:
        for topic in ("orders", "payments", "users"):
            assert rookery("topics", "create", topic, "--bootstrap-server", broker.address).returncode == 0
        if clean:
            assert broker.stop() == 0
        else:
            broker.kill()
    segment = data_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    good = segment.read_bytes()
    damaged = bytearray(good)
    damaged[good.index(b"orders") + 2] ^= 0x08
    segment.write_bytes(damaged)
    with pytest.raises(AssertionError, match="the broker ended with"):
        start_broker(data_dir)
    assert str(segment) in data_dir.with_name("data.log").read_text()
    assert "rookery log repair" in data_dir.with_name("data.log").read_text()
    assert segment.read_bytes() == damaged
    assert rookery("log", "repair", str(data_dir)).returncode == 1
    repaired = rookery("log", "repair", str(data_dir), "--execute")
    assert repaired.returncode == 0, repaired.stderr
    assert segment.read_bytes() == good
    with start_broker(data_dir) as broker:
        listed = rookery("topics", "list", "--bootstrap-server", broker.address)
        assert {"orders", "payments", "users"} <= set(listed.stdout.split())
