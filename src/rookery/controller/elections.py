"""The change of one partition: its ISR, its eligible leaders, its replicas, and the leader that follows from them.

`partition_change` is the only function that chooses a leader. Every decision that touches a partition (a broker that is
fenced or returns, an ISR change, an election, a reassignment) says what it wants to change; the rest follows here:

- A leader is a member of the ISR. If the ISR is empty it is a member of the ELR, the replicas that left when the ISR
  had fewer members than `min.insync.replicas`: nothing was committed without them, because a leader commits nothing
  below that number (KIP-966). Both must be active, with their log directory online.
- If both are empty, the last leader may be elected, unless its disk was replaced and other replicas exist. That, and an
  unclean election, which takes any active replica, can lose records: the partition is RECOVERING until the new leader
  has confirmed its log.
- Without ELR (a cluster at an older level) the last member stays in the ISR even if it is fenced, because it is the
  only one known to have all records.
- The leader epoch increases if the record names a leader, also the same one. It must when replicas are removed: a
  removed replica that is added again later must not be believed because of what the leader of this epoch knew of it.
- A reassignment is complete when all added replicas are in the ISR and one member stays in it.
"""

from collections.abc import Collection, Mapping
from enum import Enum, auto

from rookery.base.codes import RecoveryState
from rookery.base.config import BrokerLayers, effective_topic_values
from rookery.base.types import NO_LEADER, NodeId, TopicId, TopicName
from rookery.base.values import value_class
from rookery.controller.features import has_elr
from rookery.metadata.image import BrokerImage, ClusterImage, PartitionImage
from rookery.metadata.records import SAME_LEADER, SAME_RECOVERY_STATE, PartitionChangeRecord
from rookery.metadata.requests import Replicas


class Election(Enum):
    """How a leader is chosen."""

    # Keep the leader if it can lead, else the first replica that can.
    ONLINE = auto()
    # The first replica if it can lead, else as ONLINE.
    PREFERRED = auto()
    # As ONLINE, and if no replica can lead, then any active one.
    UNCLEAN = auto()


@value_class(kw_only=True)
class Rules:
    """The input of elections of one topic's partitions."""

    brokers: Mapping[NodeId, BrokerImage]
    has_elr: bool
    min_isr: int
    allows_unclean: bool

    @property
    def election(self) -> Election:
        return Election.UNCLEAN if self.allows_unclean else Election.ONLINE

    def can_lead(self, partition: PartitionImage, node_id: NodeId) -> bool:
        """Return whether the broker of a replica is active and its log directory online."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.is_active and broker.has_directory(partition.directory_of(node_id))


class TopicRules:
    """The rules of each topic of an image. `brokers` replaces those of the image, for a decision that changes them."""

    def __init__(
        self,
        image: ClusterImage,
        static: Mapping[str, str],
        *,
        brokers: Mapping[NodeId, BrokerImage] | None = None,
    ) -> None:
        self._image = image
        self._brokers = image.brokers if brokers is None else brokers
        # Without the values of single brokers: a leader and the controller must agree on `min.insync.replicas`.
        self._layers = BrokerLayers(dynamic_default=image.broker_default_config(), static=static)
        self._rules: dict[tuple[str | None, str | None], Rules] = {}

    def of(self, topic: TopicName) -> Rules:
        configs = self._image.topic_config(topic)
        key = configs.get("min.insync.replicas"), configs.get("unclean.leader.election.enable")
        rules = self._rules.get(key)
        if rules is None:
            values = effective_topic_values(configs, self._layers)
            min_isr, allows_unclean = values["min.insync.replicas"], values["unclean.leader.election.enable"]
            assert isinstance(min_isr, int)
            rules = self._rules[key] = Rules(
                brokers=self._brokers,
                has_elr=has_elr(self._image),
                min_isr=min_isr,
                allows_unclean=bool(allows_unclean),
            )
        return rules


@value_class(kw_only=True)
class Reassigned:
    """The replicas of a partition during a reassignment: `replicas` contains the adding and the removing ones."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()


def partition_change(
    topic_id: TopicId,
    before: PartitionImage,
    rules: Rules,
    *,
    election: Election = Election.ONLINE,
    isr: Collection[NodeId] | None = None,
    unclean: Collection[NodeId] = (),
    lost: Collection[NodeId] = (),
    reassigned: Reassigned | None = None,
    recovery_state: int | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that changes a partition, or None if nothing changes.

    `isr` are the members that stay in or join the ISR. `unclean` are replicas that may have lost records: they leave
    the ISR and the ELR. `lost` are replicas whose log is gone: they are not elected as the last leader either.
    """
    change = _Change(topic_id, before, rules)
    if reassigned is not None:
        change.replicas, change.adding, change.removing = reassigned.replicas, reassigned.adding, reassigned.removing
    if recovery_state is not None:
        change.recovery_state = recovery_state
    change.set_isr(before.isr if isr is None else isr, unclean)
    change.complete_reassignment()
    change.set_elr(unclean)
    change.elect(election, lost)
    return change.record()


class _Change:
    """The state of a partition that one decision arrives at, step by step."""

    def __init__(self, topic_id: TopicId, before: PartitionImage, rules: Rules) -> None:
        self._topic_id = topic_id
        self._before = before
        self._rules = rules
        self.replicas, self.adding, self.removing = before.replicas, before.adding_replicas, before.removing_replicas
        self.recovery_state = before.recovery_state
        self._isr = before.isr
        self._elr, self._last_known_elr = before.elr, before.last_known_elr
        self._leader = before.leader
        self._is_new_epoch = False

    def set_isr(self, isr: Collection[NodeId], unclean: Collection[NodeId]) -> None:
        wanted = set(isr) - set(unclean)
        members = tuple(node_id for node_id in self._before.isr if node_id in wanted)
        members += tuple(node_id for node_id in self.replicas if node_id in wanted and node_id not in members)
        members = tuple(node_id for node_id in members if node_id in self.replicas)
        # Without ELR an empty ISR would forget which replica has all records.
        if members or self._rules.has_elr or not self._before.isr:
            self._isr = members

    def complete_reassignment(self) -> None:
        if not self.adding and not self.removing:
            return
        target = tuple(node_id for node_id in self.replicas if node_id not in self.removing)
        remaining = tuple(node_id for node_id in self._isr if node_id in target)
        # If the factor shrinks, the partition must not end with fewer copies than the request asked for.
        is_shrinking = len(target) < len(self.replicas) - len(self.adding)
        required = set(target if is_shrinking else self.adding)
        if remaining and required <= set(remaining):
            self.replicas, self.adding, self.removing = target, (), ()
            self._isr = remaining

    def set_elr(self, unclean: Collection[NodeId]) -> None:
        if not self._rules.has_elr:
            return
        if len(self._isr) >= min(self._rules.min_isr, len(self.replicas)):
            self._elr = ()
            return
        # The ISR is too small to commit anything: what left it still has all that was committed.
        candidates = dict.fromkeys((*self._before.elr, *self._before.isr))
        self._elr = tuple(
            node_id
            for node_id in candidates
            if node_id in self.replicas and node_id not in self._isr and node_id not in unclean
        )

    def elect(self, election: Election, lost: Collection[NodeId]) -> None:
        if not self._isr and self._before.leader != NO_LEADER:
            self._last_known_elr = (self._before.leader,)
        if len(self.replicas) > 1:
            # An operator can choose another replica by an unclean election. To elect the empty one would delete what
            # the others have.
            self._last_known_elr = tuple(node_id for node_id in self._last_known_elr if node_id not in lost)
        leader, is_clean = self._choose(election)
        if leader != NO_LEADER:
            self._last_known_elr = ()
            if not is_clean:
                self._elr, self.recovery_state = (), RecoveryState.RECOVERING
            if leader not in self._isr:
                self._isr = (leader,)
                self._elr = tuple(node_id for node_id in self._elr if node_id != leader)
        self._is_new_epoch = leader != self._leader or not set(self._before.replicas) <= set(self.replicas)
        self._leader = leader

    def _choose(self, election: Election) -> tuple[NodeId, bool]:
        """Return the leader, and whether it has all committed records."""
        before, replicas = self._before, self.replicas
        order = (replicas[0], before.leader) if election is Election.PREFERRED else (before.leader,)
        for node_id in (*order, *replicas):
            if node_id in (self._isr or self._elr) and self._can_lead(node_id):
                return node_id, True
        if not self._isr and not self._elr and self._last_known_elr:
            (last,) = self._last_known_elr
            if last in replicas and self._can_lead(last):
                return last, False
        if election is Election.UNCLEAN:
            for node_id in replicas:
                if self._can_lead(node_id):
                    return node_id, False
        return NO_LEADER, True

    def _can_lead(self, node_id: NodeId) -> bool:
        return self._rules.can_lead(self._before, node_id)

    def record(self) -> PartitionChangeRecord | None:
        before = self._before
        replicas = self.replicas if self.replicas != before.replicas else None
        record = PartitionChangeRecord(
            partition_id=before.index,
            topic_id=self._topic_id,
            isr=self._isr if self._isr != before.isr else None,
            leader=self._leader if self._is_new_epoch else SAME_LEADER,
            replicas=replicas,
            removing_replicas=self.removing if self.removing != before.removing_replicas else None,
            adding_replicas=self.adding if self.adding != before.adding_replicas else None,
            directories=None if replicas is None else tuple(map(before.directory_of, replicas)),
            elr=self._elr if self._elr != before.elr else None,
            last_known_elr=self._last_known_elr if self._last_known_elr != before.last_known_elr else None,
            leader_recovery_state=(
                self.recovery_state if self.recovery_state != before.recovery_state else SAME_RECOVERY_STATE
            ),
        )
        return None if record == PartitionChangeRecord(partition_id=before.index, topic_id=self._topic_id) else record
