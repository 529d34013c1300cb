"""Which limit applies to a client, which clients share it, and how many of them are remembered."""

from itertools import combinations

import pytest

from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.quotas.buckets import RateBucket
from rookery.quotas.clients import ClientQuotas, QuotaTable
from rookery.quotas.limits import BucketKey, Limits
from rookery.telemetry.sensors import Windows

# Kafka's order, the strongest first, and the bucket of user "alice" with client id "app".
PRECEDENCE: list[tuple[QuotaEntity, BucketKey]] = [
    (QuotaEntity(user="alice", client_id="app"), ("alice", "app")),
    (QuotaEntity(user="alice", client_id=DEFAULT), ("alice", "app")),
    (QuotaEntity(user="alice"), ("alice", None)),
    (QuotaEntity(user=DEFAULT, client_id="app"), ("alice", "app")),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), ("alice", "app")),
    (QuotaEntity(user=DEFAULT), ("alice", None)),
    (QuotaEntity(client_id="app"), (None, "app")),
    (QuotaEntity(client_id=DEFAULT), (None, "app")),
]


@pytest.mark.parametrize("count", range(1, len(PRECEDENCE) + 1))
def test_the_strongest_of_the_limits_applies(count: int) -> None:
    ranks = dict(zip((entity for entity, _ in PRECEDENCE), range(8), strict=True))
    for some in combinations(PRECEDENCE, count):
        limits = Limits({entity: float(ranks[entity]) for entity, _ in some})
        entity, key = some[0]
        assert limits.find("alice", "app") == (key, ranks[entity])


def test_limits_of_others_do_not_apply() -> None:
    others = [
        QuotaEntity(user="bob"),
        QuotaEntity(client_id="other"),
        QuotaEntity(user="bob", client_id="app"),
        QuotaEntity(user="alice", client_id="other"),
        QuotaEntity(user="bob", client_id=DEFAULT),
        QuotaEntity(ip=DEFAULT),
        QuotaEntity(ip="10.0.0.1"),
    ]
    assert Limits(dict.fromkeys(others, 1.0)).find("alice", "app") is None
    assert not Limits({QuotaEntity(ip=DEFAULT): 1.0})


def table(buckets_max: int = 4) -> QuotaTable[RateBucket]:
    return QuotaTable(lambda limit: RateBucket(limit, Windows(11, 1.0)), buckets_max=buckets_max)


def test_clients_share_the_bucket_of_their_entity() -> None:
    quota = table(buckets_max=100)
    quota.configure({QuotaEntity(user="alice"): 10, QuotaEntity(client_id=DEFAULT): 20})
    assert quota.find("alice", "a", 0.0) is quota.find("alice", "b", 0.0)
    assert quota.find("bob", "a", 0.0) is quota.find("carol", "a", 0.0)
    assert quota.find("bob", "a", 0.0) is not quota.find("bob", "b", 0.0)
    assert len(quota) == 3


def test_a_bucket_outlives_a_change_of_its_limit() -> None:
    quota = table()
    quota.configure({QuotaEntity(user="alice"): 10})
    bucket = quota.find("alice", "app", 0.0)
    quota.configure({QuotaEntity(user=DEFAULT): 5})
    assert bucket is not None
    assert quota.find("alice", "app", 0.0) is bucket
    assert bucket.limit == 5
    quota.configure({})
    assert quota.find("alice", "app", 0.0) is None
    assert not quota.is_active


def test_the_client_that_was_quiet_for_longest_is_forgotten_first() -> None:
    quota = table(buckets_max=4)
    quota.configure({QuotaEntity(client_id=DEFAULT): 10})
    first = [quota.find("u", f"c{index}", float(index)) for index in range(4)]
    assert quota.find("u", "c0", 10.0) is first[0]
    quota.find("u", "new", 11.0)
    assert len(quota) == 4
    assert quota.find("u", "c0", 12.0) is first[0]
    assert quota.find("u", "c1", 13.0) is not first[1]


def test_clients_are_forgotten_after_an_hour() -> None:
    quota = table(buckets_max=100)
    quota.configure({QuotaEntity(client_id=DEFAULT): 10})
    for index in range(50):
        quota.find("u", f"c{index}", 0.0)
    kept = quota.find("u", "kept", 1000.0)
    quota.find("u", "new", 3600.0)
    assert len(quota) == 2
    assert quota.find("u", "kept", 3600.0) is kept


def test_each_key_configures_its_kind() -> None:
    quotas = ClientQuotas()
    assert not quotas.is_active
    values = {
        "producer_byte_rate": 1.0,
        "consumer_byte_rate": 2.0,
        "request_percentage": 3.0,
        "controller_mutation_rate": 4.0,
    }
    quotas.configure({QuotaEntity(user="alice"): values, QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 5.0}})
    tables = (quotas.produce, quotas.fetch, quotas.request, quotas.mutation)
    assert [each.limit_of("alice", "any") for each in tables] == [1, 2, 3, 4]
    assert quotas.is_active
    quotas.configure({QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 5.0}})
    assert not quotas.is_active
