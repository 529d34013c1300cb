"""The records that the quorum writes for itself, in Kafka's form."""

from rookery.quorum.messages import leader_change_record
from rookery.quorum.voters import ReplicaKey


def test_leader_change_as_kafka_writes_it() -> None:
    key, value = leader_change_record(1, voters=[ReplicaKey(1)], granting=[ReplicaKey(1)])
    assert key.hex() == "00000002"
    assert value.hex() == "0000" + "00000001" + "02" + "0000000100" + "02" + "0000000100" + "00"
