"""Errors are passed between processes, and a copy is raised to each waiter."""

import pickle
from copy import copy

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.errors import AuthenticationError, CorruptRecordError, WakeupError


@pytest.mark.parametrize(
    "error",
    [
        ApiError(ErrorCode.NETWORK_EXCEPTION),
        ApiError(ErrorCode.NETWORK_EXCEPTION, "gone"),
        AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, "who are you?"),
        CorruptRecordError(TopicPartition("t", 1), 5, "bad"),
        WakeupError(),
    ],
)
def test_a_copy_has_the_same_contents(error: ApiError) -> None:
    for other in (copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert other is not error
        assert (str(other), other.__dict__) == (str(error), error.__dict__)
