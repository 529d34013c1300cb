"""Loads what the nursery needs before it forks: the modules that Spark's processes import, and compiled kernels.

This module must start nothing: no thread, event loop, client or connection survives a fork.
"""

import os
from typing import Final

# The nursery forks Spark's daemon, and the daemon forks a worker. Forks by user code keep the state that they inherit.
_FORKS: Final = 2


def preload() -> None:
    import pandas  # type: ignore[import-untyped]  # noqa: F401 - it has no stubs
    import psycopg  # noqa: F401
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.lookup_data_sources
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.sql.worker.python_streaming_sink_runner
    import pyspark.sql.worker.write_into_data_source
    import pyspark.worker  # noqa: F401

    import pyspark_rookery  # noqa: F401
    import rookery.spark.formats.avro.decoder
    import rookery.spark.formats.avro.encoder
    import rookery.spark.formats.json_decoder
    import rookery.spark.formats.json_encoder
    import rookery.spark.formats.protobuf_decoder
    import rookery.spark.formats.protobuf_encoder
    import rookery.spark.functions
    import rookery.spark.sink.batch_writer
    import rookery.spark.sink.stream_writer
    import rookery.spark.source.batch_reader
    import rookery.spark.source.stream_reader  # noqa: F401
    from rookery.records.kernels import load_kernels

    load_kernels()


def reseed_in_forks() -> None:
    """Reseed numpy's generator in the daemon and in workers.

    A worker that loads numpy itself gets its own random numbers; forked ones must not all draw the same.
    """
    import numpy

    left = _FORKS

    def reseed() -> None:
        nonlocal left
        if left:
            left -= 1
            numpy.random.seed()

    os.register_at_fork(after_in_child=reseed)


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))
