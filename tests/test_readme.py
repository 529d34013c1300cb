"""The commands of README's first steps, run as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from rookery.testing import EmbeddedBroker

README = Path(__file__).resolve().parents[1] / "README.md"
COMMANDS = re.findall(
    r"^(?:(echo .*) \| )?rookery ((?:topics|produce|consume) .*?)(?:  +# (.*))?$", README.read_text(), re.M
)


def test_the_first_steps_show_key_and_value(rookery: EmbeddedBroker) -> None:
    shown = {}
    for source, command, expected in COMMANDS:
        stdin = subprocess.run(["sh", "-c", source], capture_output=True, check=True).stdout if source else b""
        words = [str(Path(sys.executable).with_name("rookery")), *shlex.split(command)]
        done = subprocess.run(
            [*words, "--bootstrap-server", rookery.bootstrap_servers], input=stdin, capture_output=True, check=True
        )
        if expected:
            shown[expected] = done.stdout.decode().strip()
    assert shown == {"apple: 3": "apple: 3"}
