"""The standard error of Spark goes to a file, and the error for a failed start gives the reason."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.spark.quiet_start import logging_to

PIPELINE = "name: p\nsources: {t: {generator: {}}}\nsinks: [{console: true, from: t}]\n"


def test_a_jvm_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "rookery.cli.main", "pipelines", "run", "p.yaml"]
    ran = subprocess.run(
        [*command, "--set", "spark.driver.memory=invalid"],
        cwd=tmp_path,
        env={**os.environ, "ROOKERY_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    log = tmp_path / "pipelines" / "p.log"
    assert ran.returncode == 1
    assert ran.stderr == (
        f"error: Spark did not start: Invalid maximum heap size: -Xmxinvalid. Its whole output is in {log}\n"
    )
    assert "Invalid maximum heap size" in log.read_text()


def test_only_log_lines_of_rookery_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with logging_to(log):
        logging.getLogger("py4j.clientserver").error("There was an exception while executing the Python Proxy")
        logging.getLogger("rookery.spark").warning("batch is older than the last one written")
    assert capsys.readouterr().err == "batch is older than the last one written\n"
    assert "Python Proxy" in log.read_text()
    assert "batch is older" in log.read_text()
