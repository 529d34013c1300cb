import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from rookery.base import distribution

ROOT = Path(__file__).resolve().parents[2]


def test_the_distribution_does_not_take_another_programs_name() -> None:
    assert metadata.metadata(distribution.NAME)["Name"] == "rookery-streaming"
    assert distribution.version() == metadata.version("rookery-streaming")


def test_a_hint_names_the_extra_and_no_package_index() -> None:
    assert "pip install '.[spark]'" in distribution.install_hint("spark")


def test_the_wheel_says_that_both_packages_are_typed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run([*command, "--disable-pip-version-check"], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("rookery_streaming-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"rookery/py.typed", "pyspark_rookery/py.typed"} <= names
