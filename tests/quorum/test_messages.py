"""What the quorum writes for itself, in Kafka's form."""

import pytest

from rookery.base.errors import CorruptionError
from rookery.quorum.messages import QuorumState, decode_state, encode_state, leader_change_record


def test_leader_change_as_kafka_writes_it() -> None:
    key, value = leader_change_record(1)
    assert key.hex() == "00000002"
    assert value.hex() == "0000" + "00000001" + "02" + "0000000100" + "02" + "0000000100" + "00"


def test_quorum_state_as_kafka_writes_it() -> None:
    state = QuorumState(leader_id=1, leader_epoch=3, voted_id=1)
    text = b'{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert encode_state(state) == text
    assert decode_state(text) == state


def test_the_older_quorum_state_is_read() -> None:
    text = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,'
        b'"appliedOffset":0,"currentVoters":[],"data_version":0}'
    )
    assert decode_state(text) == QuorumState(1, 2, -1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe\xfd",
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":"2","votedId":1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"data_version":"1"}',
    ],
)
def test_a_broken_quorum_state(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="quorum-state"):
        decode_state(data)
