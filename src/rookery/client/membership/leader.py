"""The work of a classic group's leader: parse the members' subscriptions, run the assignor, encode the assignments.

Pure. `classic_shell` calls it with the metadata of all topics that the members subscribe to.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import PartitionIndex, TopicName, TopicPartition, indexes_by_topic
from rookery.client.membership.assignors.base import (
    Assignor,
    MemberId,
    MemberSubscription,
    PartitionRacks,
    RebalanceProtocol,
)
from rookery.client.metadata import ClusterMetadata, Partition
from rookery.protocol import consumer_protocol
from rookery.protocol.messages import JoinGroupResponseMember


class GroupMembers:
    """The parsed subscriptions of the members that joined. Raises ApiError if one is malformed."""

    def __init__(self, rows: Sequence[JoinGroupResponseMember]) -> None:
        self._versions: dict[MemberId, int] = {}
        self.subscriptions: dict[MemberId, MemberSubscription] = {}
        for row in rows:
            subscription = consumer_protocol.read_subscription(row.metadata)
            if subscription is None:
                raise ApiError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription of member {row.member_id} is malformed"
                )
            self._versions[row.member_id] = subscription.version
            self.subscriptions[row.member_id] = MemberSubscription(
                topics=subscription.topics,
                owned=subscription.owned,
                generation=subscription.generation,
                user_data=subscription.user_data,
                instance_id=row.get("group_instance_id"),
                rack=subscription.rack_id,
            )

    @property
    def topics(self) -> frozenset[TopicName]:
        return frozenset[TopicName]().union(*(subscription.topics for subscription in self.subscriptions.values()))

    def assign(self, assignor: Assignor, topics: PartitionRacks, *, protocol: RebalanceProtocol) -> dict[str, bytes]:
        """Return the encoded assignment of each member, in the version of the member's subscription."""
        assignment = assignor.assign(topics, self.subscriptions)
        given = Counter(tp for partitions in assignment.values() for tp in partitions)
        if given and (twice := given.most_common(1)[0])[1] > 1:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"assignor {assignor.name} assigned {twice[0]} to several members"
            )
        if protocol == RebalanceProtocol.COOPERATIVE:
            assignment = {member: self._without_owned_by_others(member, given) for member, given in assignment.items()}
        return {
            member: consumer_protocol.write_assignment(version, indexes_by_topic(assignment.get(member, ())).items())
            for member, version in self._versions.items()
        }

    def _without_owned_by_others(self, member: MemberId, given: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Leave out partitions that another member still owns, whatever the assignor returned.

        Until their owner has revoked them, two members would read them. They are assigned in the next rebalance.
        """
        ours = set(self.subscriptions[member].owned) if member in self.subscriptions else set()
        others = {
            tp for other, subscription in self.subscriptions.items() if other != member for tp in subscription.owned
        }
        return [tp for tp in given if tp in ours or tp not in others]


def partition_racks(metadata: ClusterMetadata, topics: Iterable[TopicName]) -> dict[TopicName, list[frozenset[str]]]:
    """Return the racks of each partition's replicas, for the topics that exist."""
    known = (metadata.topics[topic] for topic in topics if topic in metadata.topics)

    def racks(partition: Partition) -> frozenset[str]:
        brokers = (metadata.brokers.get(node) for node in partition.replicas)
        return frozenset(broker.rack for broker in brokers if broker is not None and broker.rack)

    return {topic.name: [racks(each) for each in topic.partitions] for topic in known if topic.partitions}


def partition_counts(metadata: ClusterMetadata, topics: Iterable[TopicName]) -> Mapping[TopicName, PartitionIndex]:
    """Return the number of partitions per topic: 0 if it does not exist. Topics with other errors are left out."""
    counts = {}
    for topic in topics:
        known = metadata.topics.get(topic)
        if known is None or known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            counts[topic] = 0
        elif known.error == ErrorCode.NONE:
            counts[topic] = len(known.partitions)
    return counts
