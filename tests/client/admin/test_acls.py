"""ACLs against a running broker with an authorizer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    PatternType,
    ResourcePattern,
)
from rookery.testing import EmbeddedBroker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
READ = AclBinding(ORDERS, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
PREFIXED = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "ord", PatternType.PREFIXED),
    "User:bob",
    "10.0.0.1",
    AclOperation.ALL,
    AclPermission.DENY,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as running:
        yield running


def run_admin(broker: EmbeddedBroker, work: Callable[[Admin], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            await work(admin)

    asyncio.run(run())


def test_acls(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        without_type = AclBinding(ORDERS, "alice", "*", AclOperation.READ, AclPermission.ALLOW)
        first, second, third = await admin.create_acls([READ, without_type, PREFIXED])
        assert (first.check().acl, third.check().acl) == (READ, PREFIXED)
        assert second.error is ErrorCode.INVALID_REQUEST
        with pytest.raises(ApiError, match="Could not parse principal"):
            second.check()
        assert sorted(await admin.describe_acls(), key=str) == sorted([READ, PREFIXED], key=str)
        assert await admin.describe_acls(AclFilter(principal="User:bob")) == [PREFIXED]
        matching = AclFilter(resource_name="orders", pattern_type=PatternType.MATCH, operation=AclOperation.ALL)
        (deleted, none) = await admin.delete_acls([matching, AclFilter(host="10.0.0.2")])
        assert (deleted.check().acls, none.check().acls) == ((PREFIXED,), ())
        assert await admin.describe_acls() == [READ]
        await admin.delete_acls([AclFilter()])

    run_admin(broker, work)
