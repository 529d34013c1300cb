"""Images of small clusters, as input of decisions."""

from collections.abc import Mapping
from itertools import count
from uuid import UUID

from rookery.base.errors import ApiError
from rookery.controller.decision import Context, ControllerResult
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage
from rookery.metadata.records import BrokerEndpoint, MetadataRecord, RegisterBrokerRecord


def directory(node_id: int) -> UUID:
    """The id of a broker's log directory."""
    return UUID(int=1_000_000 + node_id)


def broker(
    node_id: int, *, rack: str | None = None, fenced: bool = False, in_controlled_shutdown: bool = False
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=UUID(int=1000 + node_id),
        broker_epoch=node_id,
        endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092),),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_directories=(directory(node_id),),
    )


def image_of(*records: MetadataRecord) -> ClusterImage:
    return EMPTY_IMAGE.apply(records)[0]


def context(static: Mapping[str, str] | None = None, *, placement_start: int = 0, first_id: int = 1) -> Context:
    numbers = count(first_id)
    return Context(
        node_id=1, static=static or {}, new_id=lambda: UUID(int=next(numbers)), placement_start=placement_start
    )


def carry_out(image: ClusterImage, decision: ControllerResult[object]) -> ClusterImage:
    return image.apply(decision.records)[0]


ONE = image_of(broker(1))
THREE = image_of(broker(1), broker(2), broker(3))


class StaticVoters:
    """The part of a log that says where the voters are: in the configuration, unless `upgrade` is possible."""

    kraft_version = 0
    problem: ApiError | None = None

    async def upgrade_kraft_version(self, *, epoch: int, validate_only: bool) -> None:
        if self.problem is not None:
            raise self.problem
        if not validate_only:
            self.kraft_version = 1
