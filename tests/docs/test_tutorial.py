"""The tutorial, word for word: its commands run in order and print what it quotes."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from rookery.testing import EmbeddedBroker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spark


class Step(NamedTuple):
    script: str
    shown: list[str]


def steps() -> list[Step]:
    """Return the scripts of the page, each with the output that it quotes."""
    found: list[Step] = []
    for kind, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "sh":
            found.append(Step(text, []))
        else:
            found[-1].shown.extend(line.strip() for line in text.splitlines())
    return found


@pytest.mark.timeout(600)
def test_the_commands_of_the_tutorial_work(tmp_path: Path) -> None:
    with EmbeddedBroker(schema_registry=True) as broker:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ROOKERY_BOOTSTRAP_SERVER": broker.bootstrap_servers,
            "ROOKERY_SCHEMA_REGISTRY": broker.schema_registry_url,
            "ROOKERY_STATE_DIR": str(tmp_path / "state"),
        }
        for script, shown in steps():
            here = script.replace("localhost:9092", broker.bootstrap_servers)
            here = here.replace("http://localhost:8081", broker.schema_registry_url)
            done = subprocess.run(
                ["bash", "-eu", "-o", "pipefail", "-c", here],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
            missing = [line for line in shown if line not in done.stdout]
            assert not missing, f"{script}\nprinted\n{done.stdout}\nwithout {missing}"


def test_the_tutorial_has_commands_and_outputs() -> None:
    assert len(steps()) > 7
    assert sum(bool(step.shown) for step in steps()) > 6
