"""The records that the quorum writes for itself, in Kafka's form."""

from uuid import UUID

from rookery.quorum.messages import (
    kraft_version_record,
    leader_change_record,
    read_kraft_version,
    read_voters,
    voters_record,
)
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet


def test_leader_change_as_kafka_writes_it() -> None:
    key, value = leader_change_record(1, voters=[ReplicaKey(1)], granting=[ReplicaKey(1)])
    assert key.hex() == "00000002"
    assert value.hex() == "0000" + "00000001" + "02" + "0000000100" + "02" + "0000000100" + "00"


def test_kraft_version_as_kafka_writes_it() -> None:
    key, value = kraft_version_record(1)
    assert key.hex() == "00000005"
    assert value.hex() == "0000" + "0001" + "00"
    assert read_kraft_version(value) == 1


def test_voters_as_kafka_writes_them() -> None:
    directory = UUID("ff092cdc-21c6-4783-8398-7268a6d45ca0")
    voters = VoterSet([Voter(ReplicaKey(1, directory), {"CONTROLLER": Endpoint("127.0.0.1", 19093)})])
    key, value = voters_record(voters)
    assert key.hex() == "00000006"
    endpoint = "0b" + b"CONTROLLER".hex() + "0a" + b"127.0.0.1".hex() + "4a95" + "00"
    assert value.hex() == (
        "0000" + "02" + "00000001" + directory.hex + "02" + endpoint + "0000" + "0001" + "00" + "00" + "00"
    )
    assert list(read_voters(value)) == list(voters)


def test_removed_voters_are_a_tagged_field_which_kafka_skips() -> None:
    directory = UUID("ff092cdc-21c6-4783-8398-7268a6d45ca0")
    voters = VoterSet([Voter(ReplicaKey(node_id), {}) for node_id in (1, 2)]).without(2)
    _, plain = voters_record(VoterSet(voters))
    _, value = voters_record(VoterSet(voters, [ReplicaKey(2, directory)]))
    # One tagged field: tag 10,000 as a varint, its size, and an array of one removed voter.
    assert value.hex() == plain.hex()[:-2] + "01" + "904e" + "16" + "02" + "00000002" + directory.hex + "00"
    assert read_voters(value).removed == {ReplicaKey(2, directory)}
