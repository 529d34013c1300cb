"""A Spark driver to be killed: copies text files, one per batch, to a topic. `python -m tests.soak.driver <JSON>`."""

import json
import os
import sys
from pathlib import Path

from pyspark.cloudpickle import register_pickle_by_value

from rookery.pipelines.checkpoint_files import CheckpointFiles, repair_checkpoint
from rookery.spark.session import start_session
from tests.spark.sink import faulty_sink
from tests.support.spark import SESSION_SETTINGS


def main() -> None:
    given = json.loads(sys.argv[1])
    directory = Path(given["directory"])
    (directory / "faults" / "driver").write_text(str(os.getpgid(0)), encoding="utf-8")
    session = start_session("soak", master=given["master"], settings={**SESSION_SETTINGS, **given["settings"]})
    # Workers do not have the tests on their path.
    register_pickle_by_value(faulty_sink)  # type: ignore[no-untyped-call]
    session.dataSource.register(faulty_sink.FaultySink)
    repair_checkpoint(str(directory / "checkpoint"), CheckpointFiles(session))
    rows = session.readStream.option("maxFilesPerTrigger", 1).text(str(directory / "files")).repartition(2)
    writing = rows.writeStream.format("faulty-rookery").options(**given["options"])
    writing = writing.option("faults", str(directory / "faults")).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(directory / "checkpoint")).start()
    (directory / "started").touch()
    query.awaitTermination()
    # A regular stop of Spark takes longer than the rest, and the query is finished.
    os._exit(0)


if __name__ == "__main__":
    main()
