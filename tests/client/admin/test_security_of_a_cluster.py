"""Users, quotas and ACLs of a cluster: all brokers know them, and requests to change them may go to any broker."""

from functools import partial

import kafka
import kafka.admin

from rookery.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    QuotaEntity,
    ResourcePattern,
    ScramMechanism,
    ScramUpsertion,
)
from rookery.client.sync import Admin
from rookery.testing import EmbeddedCluster
from tests.support.waiting import expect

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def acl_of(user: str) -> AclBinding:
    pattern = ResourcePattern(AclResourceType.TOPIC, "orders")
    return AclBinding(pattern, f"User:{user}", "*", AclOperation.READ, AclPermission.ALLOW)


def principals(admin: Admin) -> list[str]:
    return sorted(acl.principal for acl in admin.describe_acls())


def test_changes_through_every_broker_reach_all() -> None:
    with EmbeddedCluster(3, settings=SETTINGS) as cluster:
        admins = [Admin({"bootstrap.servers": address}) for address in cluster.bootstrap_servers.split(",")]
        users = [f"user-{number}" for number in range(len(admins))]
        try:
            for admin, user in zip(admins, users, strict=True):
                upsertion = ScramUpsertion(user=user, password="secret", mechanism=ScramMechanism.SCRAM_SHA_256)
                admin.alter_scram_users(upsertions=[upsertion])[0].check()
                admin.alter_client_quotas({QuotaEntity(user=user): {"producer_byte_rate": 1000}})[0].check()
                admin.create_acls([acl_of(user)])[0].check()
            for admin in admins:
                # The controller has committed the changes; a broker sees them when it has fetched the metadata log.
                expect(partial(principals, admin), [f"User:{user}" for user in users])
                assert [user.name for user in admin.describe_scram_users()] == users
                assert set(admin.describe_client_quotas()) == {QuotaEntity(user=user) for user in users}
            (deleted,) = admins[-1].delete_acls([AclFilter()])
            assert len(deleted.check().acls) == len(users)
        finally:
            for admin in admins:
                admin.close()


def test_a_request_to_any_broker_is_forwarded() -> None:
    mechanism = kafka.admin.ScramMechanism.SCRAM_SHA_256
    with EmbeddedCluster(3) as cluster:
        for node in cluster.nodes:
            # kafka-python sends these requests to the broker that it is connected to, not to the controller.
            client = kafka.KafkaAdminClient(bootstrap_servers=cluster.address(node))
            upsertion = kafka.admin.UserScramCredentialUpsertion(f"user-{node}", mechanism, "secret")
            assert client.alter_user_scram_credentials([upsertion]) == {f"user-{node}": None}
            client.close()
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            users = [f"user-{node}" for node in cluster.nodes]
            expect(lambda: [user.name for user in admin.describe_scram_users()], users)
