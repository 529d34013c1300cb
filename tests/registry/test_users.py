"""Two separate registry nodes with the users of a secured broker: roles hold on both, also for forwarded requests."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from rookery.registry.node import RegistryNode
from rookery.testing import EmbeddedBroker
from tests.registry.services import BROKER_SETTINGS, settings_of, until
from tests.support.secured import SCRAM_256, jaas

ADMIN, WRITER, READER = ("admin", "a-secret"), ("writer", "w-secret"), ("reader", "r-secret")
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": SCRAM_256,
    "sasl.jaas.config": jaas(SCRAM_256, username=ADMIN[0], password=ADMIN[1]),
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        settings={**BROKER_SETTINGS, "sasl.enabled.mechanisms": SCRAM_256},
        security_protocol="SASL_PLAINTEXT",
        client_settings=LOGIN,
        users=dict([ADMIN, WRITER, READER]),
    ) as running:
        yield running


def make(broker: EmbeddedBroker) -> RegistryNode:
    return RegistryNode(
        settings_of(
            broker,
            **{f"kafkastore.{key}": value for key, value in LOGIN.items()},
            authentication_method="BASIC",
            authorization_rules="User:writer=write:orders-*;User:reader=read:orders-*",
            super_users="User:admin",
        )
    )


def test_roles_on_the_leader_and_on_other_nodes(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        nodes = [make(broker), make(broker)]
        for node in nodes:
            await node.start()
        try:
            await until(lambda: sum(node.service.is_leader for node in nodes) == 1, "one node leads")
            nodes.sort(key=lambda node: not node.service.is_leader)
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                for number, node in enumerate(nodes):
                    path = f"{node.url}/subjects/orders-{number}/versions"
                    body = {"schema": '"string"'}
                    assert (await client.post(path, json=body, auth=WRITER)).json() == {"id": 1}
                    denied = await client.post(path, json=body, auth=READER)
                    assert (denied.status_code, denied.json()["error_code"]) == (403, 40301)
                    assert (await client.post(path, json=body, auth=("reader", "wrong"))).status_code == 401
                    assert (await client.get(path, auth=READER)).json() == [1]
                    subject = f"{node.url}/subjects/orders-{number}"
                    assert (await client.delete(subject, auth=WRITER)).status_code == 403
                    assert (await client.delete(subject, auth=ADMIN)).json() == [1]
        finally:
            for node in nodes:
                await node.stop()

    asyncio.run(scenario())
