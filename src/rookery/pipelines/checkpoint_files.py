"""Access to the files of checkpoints, on the local disk or on any file system that Hadoop supports."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointFiles:
    """Paths with a scheme (`s3://...`) go through Hadoop, which needs `session`; paths without one are local."""

    def __init__(self, session: "SparkSession | None" = None) -> None:
        self._session = session

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; an empty list if it does not exist."""
        if "://" not in directory:
            path = Path(directory)
            return [each.name for each in path.iterdir()] if path.is_dir() else []
        system, target = self._hadoop(directory)
        return [each.getPath().getName() for each in system.listStatus(target)] if system.exists(target) else []

    def read(self, file: str) -> str | None:
        """Return the text of a file; None if it does not exist."""
        if "://" not in file:
            return Path(file).read_text() if Path(file).is_file() else None
        system, target = self._hadoop(file)
        if not system.exists(target):
            return None
        stream = system.open(target)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, file: str, text: str) -> None:
        if "://" not in file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(f"{file}.tmp")
            temporary.write_text(text)
            temporary.replace(file)
            return
        system, target = self._hadoop(file)
        stream = system.create(target, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def remove(self, file: str) -> None:
        if "://" not in file:
            Path(file).unlink()
            return
        system, target = self._hadoop(file)
        system.delete(target, False)

    def _hadoop(self, path: str) -> tuple[Any, Any]:
        session: Any = self._session
        target = session._jvm.org.apache.hadoop.fs.Path(path)
        return target.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()), target


def repair_checkpoint(checkpoint: str, files: CheckpointFiles) -> None:
    """Remove temporary files from a checkpoint that has no offsets yet.

    A query that is killed while it writes its very first offsets leaves a temporary file. Without the removal, Spark
    4.3 would take the checkpoint for that of another query and refuse to start, at every restart.
    """
    directory = f"{checkpoint}/offsets"
    names = files.names(directory)
    if all(name.startswith(".") for name in names):
        for name in names:
            files.remove(f"{directory}/{name}")


def has_unfinished_batch(checkpoint: str, files: CheckpointFiles) -> bool:
    """Return whether the query ended inside a micro-batch; its next run then repeats that batch first."""
    return _last_batch(f"{checkpoint}/offsets", files) > _last_batch(f"{checkpoint}/commits", files)


def _last_batch(directory: str, files: CheckpointFiles) -> int:
    return max((int(name) for name in files.names(directory) if name.isdecimal()), default=-1)
