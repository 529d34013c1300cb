"""Allocation of blocks of producer ids."""

from dataclasses import replace

import pytest

from rookery.base.errors import ErrorCode
from rookery.controller.producer_ids import decide_allocate_producer_ids
from rookery.metadata.records import ProducerIdsRecord
from rookery.metadata.requests import OK, ProducerIdBlock
from tests.controller.cluster import ONE, carry_out


def test_blocks_follow_each_other() -> None:
    image = ONE
    for first in (0, 1000, 2000):
        decision = decide_allocate_producer_ids(image, 1, 1)
        assert decision.results == ProducerIdBlock(OK, first, 1000)
        assert decision.records == (ProducerIdsRecord(1, 1, first + 1000),)
        image = carry_out(image, decision)


@pytest.mark.parametrize(
    ("node_id", "epoch", "code"),
    [(2, 1, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 0, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_only_for_registered_brokers(node_id: int, epoch: int, code: ErrorCode) -> None:
    decision = decide_allocate_producer_ids(ONE, node_id, epoch)
    assert decision.records == ()
    assert decision.results.outcome.code is code


def test_all_ids_are_used_up() -> None:
    image = replace(ONE, next_producer_id=2**63 - 1000)
    decision = decide_allocate_producer_ids(image, 1, 1)
    assert decision.records == ()
    assert decision.results.outcome.code is ErrorCode.UNKNOWN_SERVER_ERROR
