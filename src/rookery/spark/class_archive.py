"""An archive of Spark's classes (CDS): a JVM maps it into memory instead of reading, verifying and linking each class.

`python -m rookery.spark.class_archive` creates the archive in half a minute. If it exists, `session` uses it for local
masters, which then start in about half the time. An archive belongs to one Java and one installation of PySpark. Its
file name identifies both and holds the size of the file: a JVM ignores an archive that does not match it, but crashes
on a truncated one.
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

# Spark places these options before those of the user.
OPTIONS: Final = "spark.driver.defaultJavaOptions"
_OPTIONS_OF_USERS: Final = "spark.driver.extraJavaOptions"
# Suppress the JVM's warnings about classes that are not in the archive and about an archive that does not match.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
_ARCHIVE_OPTIONS: Final = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare:off")
_JOB: Final = "rookery.spark.class_archive_job"


def find_java() -> Path | None:
    """Return the Java that Spark's scripts would use, or None if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    return Path(found).resolve() if found else None


def find_archive() -> Path | None:
    java = find_java()
    return next((each for each in _archives_of(java) if _is_whole(each)), None) if java else None


def archive_settings(settings: Mapping[str, str], archive: Path | None) -> dict[str, str]:
    """Return the settings to add to a session's; none if the given settings already choose an archive."""
    given = [settings.get(OPTIONS, ""), settings.get(_OPTIONS_OF_USERS, "")]
    if archive is None or any(choice in options for choice in _ARCHIVE_OPTIONS for options in given):
        return {}
    return {OPTIONS: f'"-XX:SharedArchiveFile={archive}" {_QUIET} {given[0]}'.rstrip()}


def make_archive() -> Path | None:
    """Create the archive with a small job whose JVM dumps the classes it has loaded.

    Returns None if there is no Java, or if this Java did not write an archive.
    """
    java = find_java()
    if java is None:
        return None
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = Path(scratch) / "made"
        options = f'"-XX:ArchiveClassesAtExit={made}" -XX:TieredStopAtLevel=1 {_QUIET}'
        # The JVM writes the archive when it exits, which may be after the job. It holds the output pipes open until
        # then, so that `run` waits for it.
        command = [sys.executable, "-m", _JOB, OPTIONS, options, scratch]
        job = subprocess.run(command, capture_output=True, check=False)
        if job.returncode or not made.exists():
            return None
        _sync_file(made)
        for old in _archives_of(java):
            old.unlink(missing_ok=True)
        return made.rename(archive_path(java, size=made.stat().st_size))


def _sync_file(path: Path) -> None:
    """Write the file to disk before it is renamed: after a crash, the final name must not refer to a partial file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _directory() -> Path:
    """Return the directory of archives: in the virtual environment, if there is one, so both are deleted together."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "rookery"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "rookery"


def archive_path(java: Path, *, size: int | str) -> Path:
    """Return the path of the archive for `java`. The time of the file tells apart two versions at the same path."""
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
        sys.exit("no archive of Spark's classes could be created: Spark works without it, and starts more slowly")


if __name__ == "__main__":
    main()
