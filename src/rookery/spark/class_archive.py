"""An archive of Spark's classes: a JVM that maps it into memory does not read, check and link them one by one.

`python -m rookery.spark.class_archive` makes it, in half a minute. If it is there, `session` uses it for local masters;
they start in about half the time. It belongs to one Java and one installation of PySpark. Its name says which ones, and
how long it is: a JVM leaves alone an archive that does not fit, but dies of one that was cut off.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# Spark puts these options before those that users give.
OPTIONS: Final = "spark.driver.defaultJavaOptions"
_OPTIONS_OF_USERS: Final = "spark.driver.extraJavaOptions"
# What is not archived, and what does not fit, is no news to anybody.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
_ARCHIVE_OPTIONS: Final = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare:off")
_JOB: Final = "rookery.spark.class_archive_job"


def find_java() -> Path | None:
    """As Spark's scripts do."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    return Path(found).resolve() if found else None


def find_archive() -> Path | None:
    java = find_java()
    return next((each for each in _archives_of(java) if _is_whole(each)), None) if java else None


def archive_settings(settings: Mapping[str, str], archive: Path | None) -> dict[str, str]:
    """What to add to a session's settings; nothing if they have something to say about archives themselves."""
    given = [settings.get(OPTIONS, ""), settings.get(_OPTIONS_OF_USERS, "")]
    if archive is None or any(choice in options for choice in _ARCHIVE_OPTIONS for options in given):
        return {}
    return {OPTIONS: f'"-XX:SharedArchiveFile={archive}" {_QUIET} {given[0]}'.rstrip()}


def make_archive() -> Path | None:
    """By a small job whose JVM writes down what it has loaded; None if this Java does not."""
    java = find_java()
    if java is None:
        return None
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = Path(scratch) / "made"
        options = f'"-XX:ArchiveClassesAtExit={made}" -XX:TieredStopAtLevel=1 {_QUIET}'
        # The JVM outlives the job, and has its output open until it has ended.
        command = [sys.executable, "-m", _JOB, OPTIONS, options, scratch]
        job = subprocess.run(command, capture_output=True, check=False)
        if job.returncode or not made.exists():
            return None
        _sync_file(made)
        for old in _archives_of(java):
            old.unlink(missing_ok=True)
        return made.rename(archive_path(java, size=made.stat().st_size))


def _sync_file(path: Path) -> None:
    """So that a name never stands for less than the whole."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _directory() -> Path:
    """In the virtual environment, so that it goes with it."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "rookery"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "rookery"


def archive_path(java: Path, *, size: int | str) -> Path:
    """Another Java at the same place has another time."""
    pyspark = find_spec("pyspark")
    parts = (str(java), java.stat().st_mtime_ns, version("pyspark"), pyspark and pyspark.origin)
    return _directory() / f"spark-{sha256(repr(parts).encode()).hexdigest()[:16]}-{size}.jsa"


def _archives_of(java: Path) -> Iterator[Path]:
    pattern = archive_path(java, size="*")
    return pattern.parent.glob(pattern.name)


def _is_whole(archive: Path) -> bool:
    try:
        return archive.stem.endswith(f"-{archive.stat().st_size}")
    except FileNotFoundError:
        return False


def main() -> None:
    if find_archive() is None and make_archive() is None:
        sys.exit("no archive of Spark's classes could be made: Spark works without, and starts more slowly")


if __name__ == "__main__":
    main()
