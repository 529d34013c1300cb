"""What a user may not see is unknown, and the rest is shown."""

import asyncio

from rookery.base.codes import AclOperation, AclPermission, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.client import Producer
from rookery.client.admin import AclBinding, Admin, ResourcePattern
from rookery.lag import GroupLag, LagMonitor
from rookery.testing import EmbeddedBroker
from tests.lag.schedule import commit, config, created, send

# Everything is allowed for resources without a rule; a resource with rules allows what these say.
OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


async def allow(admin: Admin, user: str, kind: AclResourceType, name: str) -> None:
    """Allow only `user` to describe a resource."""
    rule = AclBinding(ResourcePattern(kind, name), f"User:{user}", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
    (outcome,) = await admin.create_acls([rule])
    assert outcome.error == ErrorCode.NONE


async def observed(admin: Admin, group_id: str) -> GroupLag:
    (group,) = (await LagMonitor(admin, group_ids=[group_id]).observe()).groups
    return group


def test_a_topic_that_may_not_be_read_and_a_group_that_may_not_be_described() -> None:
    async def work(bootstrap: str) -> None:
        async with Admin(config(bootstrap)) as admin:
            tp = await created(admin)
            async with Producer[bytes, bytes](config(bootstrap)) as producer:
                await send(producer, tp, 0, 1)
            group_id = await commit(admin, tp, 1)
            readable = await observed(admin, group_id)
            assert readable.lag == 1
            assert readable.lag_s is not None
            await allow(admin, "ANONYMOUS", AclResourceType.TOPIC, tp.topic)
            hidden = await observed(admin, group_id)
            assert (hidden.lag, hidden.lag_s, hidden.error) == (1, None, ErrorCode.NONE)
            await allow(admin, "other", AclResourceType.GROUP, group_id)
            forbidden = await observed(admin, group_id)
            assert (forbidden.lag, forbidden.error) == (None, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    with EmbeddedBroker(settings=OPEN) as broker:
        asyncio.run(work(broker.bootstrap_servers))
