"""A node runs on any event loop, in any thread."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import uvloop

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.client.admin import Admin, NewTopic
from rookery.client.cluster import Cluster
from rookery.node.node import Node
from rookery.node.settings import Settings


async def start_and_use(data_dir: Path) -> None:
    settings = Settings.load(data_dir=data_dir, listen="127.0.0.1:0")
    node = Node(settings, files=OsFiles(), clock=SystemClock(), random=Random(1))
    await node.start()
    async with Cluster.at(node.address, timeout_s=30) as cluster:
        (outcome,) = await Admin.over(cluster).create_topics([NewTopic(name="t")])
        outcome.check()
    await node.stop()


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_node_runs_in_another_thread(tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    finished: list[bool] = []

    def run() -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(start_and_use(tmp_path))
        finished.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert finished
