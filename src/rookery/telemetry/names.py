"""Every metric of a node: its identity in Kafka, its kind and its meaning. docs/metrics.md is made from this table.

Names, types and tags are those of Kafka 4.3. Metrics that only Rookery has, and those of the known exporters, are at
the end: their names are the same in all dialects.
"""

from typing import Final

from rookery.telemetry.measurements import Definition, Kind

_ALL: list[Definition] = []


def _define(domain: str, bean: str, name: str, kind: Kind, text: str) -> Definition:
    definition = Definition(domain, bean, name, kind, text)
    _ALL.append(definition)
    return definition


def _topic(name: str, text: str) -> Definition:
    return _define("kafka.server", "BrokerTopicMetrics", name, Kind.METER, text)


def _request(name: str, kind: Kind, text: str) -> Definition:
    return _define("kafka.network", "RequestMetrics", name, kind, text)


def _replica(name: str, kind: Kind, text: str) -> Definition:
    return _define("kafka.server", "ReplicaManager", name, kind, text)


def _partition(name: str, text: str) -> Definition:
    return _define("kafka.cluster", "Partition", name, Kind.GAUGE, text)


def _log(name: str, text: str) -> Definition:
    return _define("kafka.log", "Log", name, Kind.GAUGE, text)


def _controller(name: str, text: str) -> Definition:
    return _define("kafka.controller", "KafkaController", name, Kind.GAUGE, text)


def _groups(name: str, text: str) -> Definition:
    return _define("kafka.coordinator.group", "GroupMetadataManager", name, Kind.GAUGE, text)


def _attribute(bean: str, name: str, text: str) -> Definition:
    return _define("kafka.server", bean, name, Kind.ATTRIBUTE, text)


def _plain(name: str, text: str) -> Definition:
    return _define("", "", name, Kind.PLAIN_COUNTER if name.endswith("_total") else Kind.PLAIN, text)


# Topics
BYTES_IN: Final = _topic("BytesInPerSec", "Bytes of records that producers wrote")
BYTES_OUT: Final = _topic("BytesOutPerSec", "Bytes of records that consumers fetched")
MESSAGES_IN: Final = _topic("MessagesInPerSec", "Records that producers wrote")
REPLICATION_BYTES_IN: Final = _topic("ReplicationBytesInPerSec", "Bytes of records copied from leaders")
REPLICATION_BYTES_OUT: Final = _topic("ReplicationBytesOutPerSec", "Bytes of records that followers copied")
PRODUCES: Final = _topic("TotalProduceRequestsPerSec", "Produce requests; each counts once for each of its partitions")
FETCHES: Final = _topic("TotalFetchRequestsPerSec", "Fetch requests; each counts once for each of its partitions")
FAILED_PRODUCES: Final = _topic("FailedProduceRequestsPerSec", "Produce requests for a partition that failed")
FAILED_FETCHES: Final = _topic("FailedFetchRequestsPerSec", "Fetch requests for a partition that failed")

# Requests
REQUESTS: Final = _request("RequestsPerSec", Kind.METER, "Requests by API and version")
ERRORS: Final = _request("ErrorsPerSec", Kind.METER, "Errors in responses by API and error; NONE: requests without one")
TOTAL_TIME: Final = _request("TotalTimeMs", Kind.HISTOGRAM, "Time from a request to its response, in milliseconds")
QUEUE_TIME: Final = _request(
    "RequestQueueTimeMs", Kind.HISTOGRAM, "Time that received requests waited for their turn, in milliseconds"
)
LOCAL_TIME: Final = _request("LocalTimeMs", Kind.HISTOGRAM, "Time in the handler of a request, in milliseconds")
REMOTE_TIME: Final = _request(
    "RemoteTimeMs", Kind.HISTOGRAM, "Time that responses waited for records, replicas or members, in milliseconds"
)
THROTTLE_TIME: Final = _request("ThrottleTimeMs", Kind.HISTOGRAM, "Time for which clients were throttled, milliseconds")
REQUEST_BYTES: Final = _request("RequestBytes", Kind.HISTOGRAM, "Sizes of requests, in bytes")

# Replicas
LEADER_COUNT: Final = _replica("LeaderCount", Kind.GAUGE, "Partitions that this broker leads")
PARTITION_COUNT: Final = _replica("PartitionCount", Kind.GAUGE, "Partitions of which this broker has a replica")
OFFLINE_REPLICAS: Final = _replica("OfflineReplicaCount", Kind.GAUGE, "Replicas here whose log directory has failed")
UNDER_REPLICATED: Final = _replica(
    "UnderReplicatedPartitions", Kind.GAUGE, "Partitions led here that have replicas which are not in sync"
)
UNDER_MIN_ISR_COUNT: Final = _replica(
    "UnderMinIsrPartitionCount", Kind.GAUGE, "Partitions led here with fewer in-sync replicas than min.insync.replicas"
)
AT_MIN_ISR_COUNT: Final = _replica(
    "AtMinIsrPartitionCount", Kind.GAUGE, "Partitions led here with exactly min.insync.replicas in-sync replicas"
)
REASSIGNING: Final = _replica("ReassigningPartitions", Kind.GAUGE, "Partitions led here that are being moved")
PRODUCER_IDS: Final = _replica("ProducerIdCount", Kind.GAUGE, "Producers that partitions here know")
ISR_EXPANDS: Final = _replica("IsrExpandsPerSec", Kind.METER, "How often a replica came back in sync")
ISR_SHRINKS: Final = _replica("IsrShrinksPerSec", Kind.METER, "How often a replica fell out of sync")
FAILED_ISR_UPDATES: Final = _replica(
    "FailedIsrUpdatesPerSec", Kind.METER, "Changes of in-sync replicas that the controller did not accept"
)
FETCHER_MAX_LAG: Final = _define(
    "kafka.server", "ReplicaFetcherManager", "MaxLag", Kind.GAUGE, "Records that the slowest replica here lags behind"
)

# Partitions
UNDER_MIN_ISR: Final = _partition("UnderMinIsr", "1 if fewer replicas are in sync than min.insync.replicas")
AT_MIN_ISR: Final = _partition("AtMinIsr", "1 if exactly min.insync.replicas are in sync")
REPLICAS_UNDER: Final = _partition("UnderReplicated", "1 if a replica is not in sync")
REPLICAS_COUNT: Final = _partition("ReplicasCount", "Replicas of a partition led here")
IN_SYNC_COUNT: Final = _partition("InSyncReplicasCount", "In-sync replicas of a partition led here")
STABLE_OFFSET_LAG: Final = _partition(
    "LastStableOffsetLag", "Records that read_committed consumers cannot read yet because of open transactions"
)
LOG_SIZE: Final = _log("Size", "Bytes of a partition's log")
LOG_START: Final = _log("LogStartOffset", "First offset of a partition's log")
LOG_END: Final = _log("LogEndOffset", "Offset of the next record of a partition's log")
LOG_SEGMENTS: Final = _log("NumLogSegments", "Segments of a partition's log")

# Log directories
OFFLINE_DIRECTORIES: Final = _define(
    "kafka.log", "LogManager", "OfflineLogDirectoryCount", Kind.GAUGE, "Log directories that have failed"
)
DIRECTORY_OFFLINE: Final = _define(
    "kafka.log", "LogManager", "LogDirectoryOffline", Kind.GAUGE, "1 if a log directory has failed"
)

# Network
CONNECTIONS: Final = _attribute("socket-server-metrics", "connection-count", "Open connections of a listener")
CONNECTIONS_MADE: Final = _attribute(
    "socket-server-metrics", "connection-creation-total", "Connections that a listener has accepted"
)
CONNECTIONS_CLOSED: Final = _attribute(
    "socket-server-metrics", "connection-close-total", "Connections of a listener that have ended"
)
INCOMING_BYTES: Final = _attribute("socket-server-metrics", "incoming-byte-total", "Bytes that a listener received")
OUTGOING_BYTES: Final = _attribute("socket-server-metrics", "outgoing-byte-total", "Bytes that a listener sent")
LOGINS: Final = _attribute(
    "socket-server-metrics", "successful-authentication-total", "Logins to a listener that succeeded"
)
FAILED_LOGINS: Final = _attribute(
    "socket-server-metrics", "failed-authentication-total", "Logins to a listener that failed"
)
CLIENT_SOFTWARE: Final = _attribute("socket-server-metrics", "connections", "Open connections by clients' software")
NETWORK_IDLE: Final = _define(
    "kafka.network",
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    Kind.GAUGE,
    "Share of the last minute for which the event loop was idle",
)
HANDLER_IDLE: Final = _define(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    Kind.IDLE,
    "Share of time for which the event loop was idle",
)
REQUEST_QUEUE: Final = _define(
    "kafka.network", "RequestChannel", "RequestQueueSize", Kind.GAUGE, "Long requests that wait for their turn"
)

# Waiting requests and sessions
PURGATORY: Final = _define(
    "kafka.server",
    "DelayedOperationPurgatory",
    "PurgatorySize",
    Kind.GAUGE,
    "Requests that wait for records or replicas",
)
FETCH_SESSIONS: Final = _define(
    "kafka.server", "FetchSessionCache", "NumIncrementalFetchSessions", Kind.GAUGE, "Incremental fetch sessions"
)
FETCH_SESSION_PARTITIONS: Final = _define(
    "kafka.server",
    "FetchSessionCache",
    "NumIncrementalFetchPartitionsCached",
    Kind.GAUGE,
    "Partitions of all incremental fetch sessions",
)

# Controller
ACTIVE_CONTROLLER: Final = _controller("ActiveControllerCount", "1 on the active controller, 0 elsewhere")
ACTIVE_BROKERS: Final = _controller("ActiveBrokerCount", "Brokers that serve")
FENCED_BROKERS: Final = _controller("FencedBrokerCount", "Registered brokers that do not serve")
TOPIC_COUNT: Final = _controller("GlobalTopicCount", "Topics of the cluster")
ALL_PARTITIONS: Final = _controller("GlobalPartitionCount", "Partitions of the cluster")
OFFLINE_PARTITIONS: Final = _controller("OfflinePartitionsCount", "Partitions without a leader")
IMBALANCE: Final = _controller("PreferredReplicaImbalanceCount", "Partitions whose leader is not the preferred one")
METADATA_ERRORS: Final = _controller("MetadataErrorCount", "Times that this node could not apply metadata")
APPLIED_OFFSET: Final = _controller("LastAppliedRecordOffset", "Offset of the last metadata record that was applied")
COMMITTED_OFFSET: Final = _controller("LastCommittedRecordOffset", "Offset of the last committed metadata record")
UNCLEAN_ELECTIONS: Final = _define(
    "kafka.controller",
    "ControllerStats",
    "UncleanLeaderElectionsPerSec",
    Kind.METER,
    "Elections of a leader that was not in sync: records may be lost",
)

# Quorum
RAFT_LEADER: Final = _attribute("raft-metrics", "current-leader", "Leader of the quorum, -1 if unknown")
RAFT_EPOCH: Final = _attribute("raft-metrics", "current-epoch", "Epoch of the quorum")
RAFT_VOTE: Final = _attribute("raft-metrics", "current-vote", "Candidate that got this node's vote, -1 if none")
RAFT_STATE: Final = _attribute("raft-metrics", "current-state", "State of this node in the quorum")
RAFT_HIGH_WATERMARK: Final = _attribute("raft-metrics", "high-watermark", "High watermark of the metadata log")
RAFT_END: Final = _attribute("raft-metrics", "log-end-offset", "End of this node's metadata log")
RAFT_END_EPOCH: Final = _attribute("raft-metrics", "log-end-epoch", "Epoch of the last record of the metadata log")
RAFT_VOTERS: Final = _attribute("raft-metrics", "number-of-voters", "Voters of the quorum")
METADATA_OFFSET: Final = _attribute(
    "broker-metadata-metrics", "last-applied-record-offset", "Offset of the last metadata record applied here"
)
METADATA_LEVEL: Final = _define(
    "kafka.server", "MetadataLoader", "CurrentMetadataVersion", Kind.GAUGE, "Level of metadata.version"
)
CONTROLLER_ID: Final = _define(
    "kafka.server", "MetadataLoader", "CurrentControllerId", Kind.GAUGE, "Active controller, -1 if unknown"
)

# Coordinators
GROUPS: Final = _groups("NumGroups", "Consumer groups that this broker coordinates")
GROUPS_STABLE: Final = _groups("NumGroupsStable", "Classic groups that are stable")
GROUPS_PREPARING: Final = _groups("NumGroupsPreparingRebalance", "Classic groups that wait for members")
GROUPS_COMPLETING: Final = _groups("NumGroupsCompletingRebalance", "Classic groups that wait for an assignment")
GROUPS_EMPTY: Final = _groups("NumGroupsEmpty", "Classic groups without members")
GROUPS_DEAD: Final = _groups("NumGroupsDead", "Classic groups that are being removed")
GROUP_OFFSETS: Final = _groups("NumOffsets", "Offsets that the groups of this broker have committed")
GROUP_COUNT: Final = _attribute("group-coordinator-metrics", "group-count", "Groups that this broker coordinates")
CONSUMER_GROUPS: Final = _attribute(
    "group-coordinator-metrics", "consumer-group-count", "Groups of the consumer protocol (KIP-848) by state"
)
TRANSACTIONAL_IDS: Final = _attribute(
    "transaction-coordinator-metrics", "transactional-id-count", "Transactional ids by the state of their transaction"
)

# The node
BROKER_STATE: Final = _define(
    "kafka.server", "KafkaServer", "BrokerState", Kind.GAUGE, "State of the broker: 3 if it serves, 6 if it shuts down"
)
DISK_READ: Final = _define(
    "kafka.server", "KafkaServer", "linux-disk-read-bytes", Kind.GAUGE, "Bytes that this process read from disks"
)
DISK_WRITTEN: Final = _define(
    "kafka.server", "KafkaServer", "linux-disk-write-bytes", Kind.GAUGE, "Bytes that this process wrote to disks"
)
CPU_SECONDS: Final = _plain("process_cpu_seconds_total", "Processor time of this process")
OPEN_FILES: Final = _plain("process_open_fds", "Open file descriptors")
FILES_MAX: Final = _plain("process_max_fds", "File descriptors that this process may open")
RESIDENT_BYTES: Final = _plain("process_resident_memory_bytes", "Memory of this process")
VIRTUAL_BYTES: Final = _plain("process_virtual_memory_bytes", "Virtual memory of this process")
START_TIME: Final = _plain("process_start_time_seconds", "Start of this process, in seconds since 1970")
MEMORY_USED: Final = _plain("jvm_memory_used_bytes", "Memory of this process, under the name that dashboards ask for")
THREADS: Final = _plain("jvm_threads_current", "Threads of this process, under the name that dashboards ask for")
COLLECTIONS: Final = _define(
    "", "", "jvm_gc_collection_seconds_count", Kind.PLAIN_COUNTER, "Runs of Python's garbage collector, by generation"
)
COLLECTION_SECONDS: Final = _define(
    "", "", "jvm_gc_collection_seconds_sum", Kind.PLAIN_COUNTER, "Time in Python's garbage collector, by generation"
)
LOAD: Final = _plain("rookery_system_load1", "Load of the machine, average of one minute")
MEMORY_TOTAL: Final = _plain("rookery_system_memory_bytes", "Memory of the machine, by kind")
VOLUME_BYTES: Final = _plain("rookery_volume_bytes", "Size of a log directory's volume")
VOLUME_FREE: Final = _plain("rookery_volume_free_bytes", "Free bytes of a log directory's volume")
LOOP_BUSY: Final = _plain("rookery_loop_busy_seconds_total", "Processor time of the event loop")
REQUEST_SECONDS: Final = _plain("rookery_request_seconds_total", "Time from requests to their responses, by API")
TOPICS_SUMMED: Final = _plain("rookery_metrics_topics_summed", "Topics that are shown as one, see metrics.topics.max")

# kafka_exporter. Offsets are those of partitions that this broker leads; the rest comes from the active controller.
EXPORTER_BROKERS: Final = _plain("kafka_brokers", "Brokers that serve")
EXPORTER_BROKER_INFO: Final = _plain("kafka_broker_info", "1 for each broker that serves")
EXPORTER_PARTITIONS: Final = _plain("kafka_topic_partitions", "Partitions of a topic")
EXPORTER_END: Final = _plain("kafka_topic_partition_current_offset", "Offset after the last record that consumers see")
EXPORTER_START: Final = _plain("kafka_topic_partition_oldest_offset", "First offset of a partition")
EXPORTER_IN_SYNC: Final = _plain("kafka_topic_partition_in_sync_replica", "In-sync replicas of a partition")
EXPORTER_LEADER: Final = _plain("kafka_topic_partition_leader", "Leader of a partition")
EXPORTER_PREFERRED: Final = _plain("kafka_topic_partition_leader_is_preferred", "1 if the preferred replica leads")
EXPORTER_REPLICAS: Final = _plain("kafka_topic_partition_replicas", "Replicas of a partition")
EXPORTER_UNDER: Final = _plain(
    "kafka_topic_partition_under_replicated_partition", "1 if a replica of the partition is not in sync"
)

DEFINITIONS: Final = tuple(_ALL)
