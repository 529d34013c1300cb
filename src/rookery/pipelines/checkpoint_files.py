"""Small files beside checkpoints, wherever these are: on this machine, or on a file system that Spark knows."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointFiles:
    """Paths with a scheme (`s3://...`) are asked of Hadoop, by the session; without one they are local."""

    def __init__(self, session: "SparkSession | None" = None) -> None:
        self._session = session

    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing if there is none."""
        if "://" not in directory:
            path = Path(directory)
            return [each.name for each in path.iterdir()] if path.is_dir() else []
        system, target = self._hadoop(directory)
        return [each.getPath().getName() for each in system.listStatus(target)] if system.exists(target) else []

    def read(self, file: str) -> str | None:
        """None: there is no such file."""
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


def mend_checkpoint(checkpoint: str, files: CheckpointFiles) -> None:
    """Of a query that was killed while it wrote its very first offsets: Spark 4.3 finds a temporary file of them, takes
    the checkpoint for that of another query, and refuses to start."""
    directory = f"{checkpoint}/offsets"
    names = files.names(directory)
    if all(name.startswith(".") for name in names):
        for name in names:
            files.remove(f"{directory}/{name}")


def has_unfinished_batch(checkpoint: str, files: CheckpointFiles) -> bool:
    """Whether the query ended inside a micro-batch, with which it begins when it is started again."""
    return _last_batch(f"{checkpoint}/offsets", files) > _last_batch(f"{checkpoint}/commits", files)


def _last_batch(directory: str, files: CheckpointFiles) -> int:
    return max((int(name) for name in files.names(directory) if name.isdecimal()), default=-1)
