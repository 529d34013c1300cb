"""What a decision is: records to append and results to answer, from the newest image and plain values.

Every function in this package called `decide_*` is pure: image, request and `Context` in, `ControllerResult` out.
`service` appends a decision's records as one batch, so they become true together or not at all. A decision about many
items also comes in steps (`steps_to_*`), one per item: the image does not change before the last one.
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

# As Kafka's controller has it: what one request may write. It also keeps a decision in one batch.
RECORDS_PER_REQUEST_MAX = 10_000

ResultT_co = TypeVar("ResultT_co", covariant=True)
ResultT = TypeVar("ResultT")


TOO_LARGE = Outcome(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def refusal(error: ApiError) -> Outcome:
    """The checks of one item end in an ApiError, which never leaves this package."""
    return Outcome(error.code, error.message)


@value_class
class ControllerResult(Generic[ResultT_co]):
    records: tuple[MetadataRecord, ...]
    results: ResultT_co


# A decision about many items: a step for each, so that the caller can pause in between.
Steps: TypeAlias = Generator[None, None, ControllerResult[ResultT]]


def take_steps(steps: Steps[ResultT]) -> ControllerResult[ResultT]:
    """Take all steps without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        decision: ControllerResult[ResultT] = end.value
        return decision


@value_class(kw_only=True)
class Context:
    """What a decision may use besides the image; everything that is not repeatable is given."""

    node_id: NodeId
    static: Mapping[str, str] = field(default_factory=dict)
    new_id: Callable[[], UUID]
    # Where replica placement starts, so that not every topic begins on the same broker.
    placement_start: int = 0

    def broker(self, image: ClusterImage) -> BrokerLayers:
        """The configuration that gives new topics their defaults."""
        return broker_layers(image, self.node_id, self.static)


def duplicates(names: Iterable[str | None]) -> set[str | None]:
    return {name for name, count in Counter(names).items() if count > 1}


def registered_epoch_problem(image: ClusterImage, node_id: NodeId, broker_epoch: int) -> Outcome | None:
    """Whether a broker that asks for something is the one that is registered."""
    broker = image.brokers.get(node_id)
    if broker is None:
        return Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        return Outcome(ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is registered in epoch {broker.broker_epoch}")
    return None
