"""The file quorum-state, in Kafka's form."""

from uuid import UUID

import pytest

from rookery.base.errors import CorruptionError
from rookery.quorum.election_state import ElectionState, decode_election_state, encode_election_state
from rookery.quorum.voters import ReplicaKey


def test_quorum_state_as_kafka_writes_it() -> None:
    state = ElectionState(3, 1, ReplicaKey(1))
    text = b'{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert encode_election_state(state) == text
    assert decode_election_state(text) == state


@pytest.mark.parametrize(
    "state",
    [
        ElectionState(),
        ElectionState(7),
        ElectionState(7, 2),
        ElectionState(7, None, ReplicaKey(3, UUID(int=99))),
        ElectionState(7, 2, must_catch_up=True),
    ],
)
def test_what_is_written_is_read(state: ElectionState) -> None:
    assert decode_election_state(encode_election_state(state)) == state


def test_the_older_quorum_state_is_read() -> None:
    text = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,'
        b'"appliedOffset":0,"currentVoters":[],"data_version":0}'
    )
    assert decode_election_state(text) == ElectionState(2, 1, None)


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
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"?","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"data_version":"1"}',
    ],
)
def test_a_broken_quorum_state(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="quorum-state"):
        decode_election_state(data)
