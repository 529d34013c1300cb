"""Decisions: the records to append and the results to return, computed from the newest image and plain values.

Every function of this package named `decide_*` is pure: it takes the image, the request and a `Context`, and returns a
`ControllerResult`. `service` appends the records of a decision as one batch, so that all of them take effect or none. A
decision about many items is also available as a generator (`steps_to_*`) with one step per item; the image does not
change before the last step.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import field
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID

from rookery.base.config import BrokerLayers
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.base.values import value_class
from rookery.metadata.image import ClusterImage
from rookery.metadata.log_config import broker_layers
from rookery.metadata.records import MetadataRecord
from rookery.metadata.requests import Outcome

# The limit of Kafka's controller for one request. It also keeps a decision small enough for one batch.
RECORDS_PER_REQUEST_MAX = 10_000

ResultT_co = TypeVar("ResultT_co", covariant=True)
ResultT = TypeVar("ResultT")


TOO_LARGE = Outcome(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def error_outcome(error: ApiError) -> Outcome:
    """Return the outcome for an item whose check raised ApiError. These errors never leave this package."""
    return Outcome(error.code, error.message)


@value_class
class ControllerResult(Generic[ResultT_co]):
    records: tuple[MetadataRecord, ...]
    results: ResultT_co


# A decision about many items, one step per item: the caller can let other coroutines run between two steps.
Steps: TypeAlias = Generator[None, None, ControllerResult[ResultT]]


def run_steps(steps: Steps[ResultT]) -> ControllerResult[ResultT]:
    """Run all steps without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        decision: ControllerResult[ResultT] = end.value
        return decision


@value_class(kw_only=True)
class Context:
    """The input of a decision in addition to the image, with everything that is random or depends on the node."""

    node_id: NodeId
    static: Mapping[str, str] = field(default_factory=dict)
    new_id: Callable[[], UUID]
    # The position of the first replica stripe. If it were constant, partition 0 of every topic would have one leader.
    placement_start: int = 0

    def broker(self, image: ClusterImage) -> BrokerLayers:
        """Return the broker configuration, which has the defaults of new topics."""
        return broker_layers(image, self.node_id, self.static)


def duplicates(names: Iterable[str | None]) -> set[str | None]:
    return {name for name, count in Counter(names).items() if count > 1}


def registered_epoch_problem(image: ClusterImage, node_id: NodeId, broker_epoch: int) -> Outcome | None:
    """Return the error if a request does not come from the registered broker with this id, else None.

    Without the epoch, the old process of a restarted broker could still get producer ids.
    """
    broker = image.brokers.get(node_id)
    if broker is None:
        return Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        return Outcome(ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is registered in epoch {broker.broker_epoch}")
    return None
