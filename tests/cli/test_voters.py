"""Which voters may be removed, and how addresses are written."""

import pytest

from rookery.cli.errors import CommandError
from rookery.cli.quorum_tables import quorum_problems
from rookery.cli.sizes import size_text
from rookery.cli.voters import parse_endpoint, removal_problem
from rookery.client.admin import NO_DIRECTORY_ID, Quorum, QuorumReplica, RaftEndpoint


def quorum(*fetched_ms: int | None, leader: int = 1, high_watermark: int = 10, ends: int = 10) -> Quorum:
    voters = tuple(
        QuorumReplica(
            node_id=node,
            directory_id=NO_DIRECTORY_ID,
            log_end_offset=ends,
            last_fetch_ms=fetched,
            last_caught_up_ms=fetched,
        )
        for node, fetched in enumerate(fetched_ms, start=1)
    )
    return Quorum(
        leader_id=leader, leader_epoch=1, high_watermark=high_watermark, voters=voters, observers=(), endpoints={}
    )


@pytest.mark.parametrize(
    ("fetched_ms", "removed", "refused"),
    [
        ((100_000, 99_900, 99_800), 3, False),
        ((100_000, 99_900, 20_000), 3, False),
        ((100_000, 99_900, 20_000), 2, True),
        ((100_000, 99_900, None), 2, True),
        # Without the leader, the other two must both answer.
        ((100_000, 99_900, 20_000), 1, True),
        ((100_000, 99_900), 2, False),
        ((100_000,), 1, True),
        # Old controllers do not report times.
        ((None, None, None), 2, False),
    ],
)
def test_the_rest_must_have_a_majority(fetched_ms: tuple[int | None, ...], removed: int, refused: bool) -> None:
    assert (removal_problem(quorum(*fetched_ms), removed) is not None) == refused


def test_a_quorum_without_a_leader() -> None:
    assert quorum_problems(quorum(1, 1), quorum(2, 2, leader=-1)) == ["the quorum has no leader"]


def test_a_quorum_without_times_is_judged_by_offsets() -> None:
    assert quorum_problems(quorum(None, None), quorum(None, None)) == []
    assert quorum_problems(quorum(1, 1), quorum(2, 2, ends=-1)) == ["voter 2 is unknown to the leader"]


def test_endpoints() -> None:
    assert parse_endpoint("host:9093", "CONTROLLER") == RaftEndpoint("CONTROLLER", "host", 9093)
    assert parse_endpoint("INTERNAL://[::1]:9093", "CONTROLLER") == RaftEndpoint("INTERNAL", "::1", 9093)
    for wrong in ("host", ":9093", "host:", "host:x"):
        with pytest.raises(CommandError, match="must have the form"):
            parse_endpoint(wrong, "CONTROLLER")


def test_sizes() -> None:
    sizes = [None, 0, 1023, 1024, 1536 * 1024, 5 * 2**40]
    assert list(map(size_text, sizes)) == [None, "0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 TiB"]
