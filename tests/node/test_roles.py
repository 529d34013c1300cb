"""Nodes with one role each, and the ways to name the voters of their quorum."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from rookery.base.clock import SystemClock
from rookery.base.errors import StartupError
from rookery.base.types import encode_uuid
from rookery.client.admin import Admin, NewTopic
from rookery.node.format import FormatOptions, format_node
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.testing.thread import UnsyncedFiles
from tests.support.broker import free_port


class Plan:
    """Nodes by role, with their ports; node ids from 1 on, the controllers first."""

    def __init__(
        self,
        path: Path,
        roles: Sequence[str],
        *,
        is_dynamic: bool,
        directories: Sequence[str] = ("",),
        settings: Sequence[str] = (),
    ) -> None:
        """`directories` are the names of each node's log directories, `settings` those of all nodes."""
        self._path = path
        self._directories = directories
        self._settings = settings
        self._roles = roles
        self._is_dynamic = is_dynamic
        self.ports = [(free_port(), free_port()) for _ in roles]
        self.directory_ids = [encode_uuid(uuid4()) for _ in roles]

    @property
    def controllers(self) -> list[tuple[int, str]]:
        return [
            (node_id, f"127.0.0.1:{ports[1]}")
            for node_id, (ports, role) in enumerate(zip(self.ports, self._roles, strict=True), 1)
            if "controller" in role
        ]

    def settings(self, node_id: int) -> Settings:
        (port, controller_port), role = self.ports[node_id - 1], self._roles[node_id - 1]
        listeners = [f"PLAINTEXT://127.0.0.1:{port}"] * ("broker" in role)
        listeners += [f"CONTROLLER://127.0.0.1:{controller_port}"] * ("controller" in role)
        voters = ",".join(f"{voter}@{address}" for voter, address in self.controllers)
        servers = ",".join(address for _, address in self.controllers)
        quorum = f"bootstrap.servers={servers}" if self._is_dynamic else f"voters={voters}"
        return Settings.load(
            overrides=[
                f"node.id={node_id}",
                f"process.roles={role}",
                f"listeners={','.join(listeners)}",
                "controller.listener.names=CONTROLLER",
                f"controller.quorum.{quorum}",
                f"log.dirs={','.join(str(self._path / str(node_id) / name) for name in self._directories)}",
                *self._settings,
            ]
        )

    def format(self, node_id: int) -> None:
        initial = ",".join(f"{voter}@{where}:{self.directory_ids[voter - 1]}" for voter, where in self.controllers)
        options = FormatOptions(cluster_id="the-cluster", initial_controllers=initial if self._is_dynamic else None)
        format_node(UnsyncedFiles(), self.settings(node_id), options, new_uuid=uuid4, now_ms=1)

    def node(self, node_id: int) -> Node:
        return Node(self.settings(node_id), files=UnsyncedFiles(), clock=SystemClock(), random=Random(node_id))


@asynccontextmanager
async def running(plan: Plan, count: int) -> AsyncIterator[list[Node]]:
    nodes = [plan.node(node_id) for node_id in range(1, count + 1)]
    for node_id in range(1, count + 1):
        plan.format(node_id)
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))


async def eventually_registered(node: Node, controllers: Sequence[tuple[int, str]]) -> None:
    """Wait until a node has the registrations of all controllers, with their addresses."""
    async with asyncio.timeout(30):
        while len(found := node._metadata.image.controllers) < len(controllers):
            await asyncio.sleep(0.01)
    assert [
        (node_id, f"{endpoint.host}:{endpoint.port}")
        for node_id, controller in sorted(found.items())
        for endpoint in controller.endpoints
    ] == list(controllers)


@pytest.mark.parametrize(
    ("roles", "is_dynamic"),
    [
        (("controller", "broker"), False),
        (("controller", "broker"), True),
        (("broker,controller", "broker"), False),
        (("controller", "controller", "controller", "broker"), False),
        (("broker,controller", "broker,controller", "broker,controller"), True),
    ],
)
def test_nodes_form_a_cluster(tmp_path: Path, roles: tuple[str, ...], is_dynamic: bool) -> None:
    plan = Plan(tmp_path, roles, is_dynamic=is_dynamic)
    brokers = sum("broker" in role for role in roles)

    async def work() -> None:
        async with running(plan, len(roles)) as nodes:
            for node_id, node in enumerate(nodes, 1):
                ports = plan.ports[node_id - 1]
                assert node.address == f"127.0.0.1:{ports[0] if 'broker' in roles[node_id - 1] else ports[1]}"
            async with Admin({"bootstrap.servers": nodes[-1].address}) as admin:
                (outcome,) = await admin.create_topics([NewTopic(name="t", replication_factor=brokers)])
                outcome.check()
                quorum = await admin.describe_quorum()
                assert [voter.node_id for voter in quorum.voters] == [node_id for node_id, _ in plan.controllers]
                directories = [encode_uuid(voter.directory_id) for voter in quorum.voters]
                assert not is_dynamic or directories == plan.directory_ids[: len(directories)]
            await eventually_registered(nodes[-1], plan.controllers)

    asyncio.run(work())


def test_a_member_that_is_not_formatted_does_not_start(tmp_path: Path) -> None:
    plan = Plan(tmp_path, ("broker,controller", "broker,controller"), is_dynamic=False)
    with pytest.raises(StartupError, match=r"is not formatted.*rookery format --cluster-id"):
        asyncio.run(plan.node(1).start())
