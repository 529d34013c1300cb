"""The metrics that public dashboards ask brokers for, by dialect."""

from typing import Final

# What the public dashboards ask the brokers for, without what Kubernetes measures.
DASHBOARDS: Final = {
    "strimzi": """
        jvm_gc_collection_seconds_count jvm_gc_collection_seconds_sum jvm_memory_used_bytes jvm_threads_current
        kafka_cluster_partition_atminisr kafka_cluster_partition_replicascount kafka_cluster_partition_underminisr
        kafka_controller_controllerstats_uncleanleaderelections_total
        kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
        kafka_log_log_size kafka_network_socketserver_networkprocessoravgidle_percent
        kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesout_total
        kafka_server_brokertopicmetrics_failedfetchrequests_total
        kafka_server_brokertopicmetrics_failedproducerequests_total kafka_server_brokertopicmetrics_messagesin_total
        kafka_server_brokertopicmetrics_totalfetchrequests_total
        kafka_server_brokertopicmetrics_totalproducerequests_total
        kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
        kafka_server_kafkaserver_linux_disk_read_bytes kafka_server_kafkaserver_linux_disk_write_bytes
        kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
        kafka_server_replicamanager_underreplicatedpartitions kafka_server_socket_server_metrics_connection_count
        process_open_fds kafka_server_raftmetrics_current_epoch kafka_server_raftmetrics_current_leader
        kafka_server_raftmetrics_current_state kafka_server_raftmetrics_current_vote
        kafka_server_raftmetrics_high_watermark kafka_server_raftmetrics_log_end_offset
        kafka_broker_info kafka_topic_partition_current_offset kafka_topic_partition_in_sync_replica
        kafka_topic_partition_leader_is_preferred kafka_topic_partition_oldest_offset kafka_topic_partition_replicas
        kafka_topic_partition_under_replicated_partition kafka_topic_partitions""",
    "confluent": """
        kafka_cluster_partition_underminisr kafka_controller_kafkacontroller_preferredreplicaimbalancecount
        kafka_coordinator_group_groupmetadatamanager_numgroupsstable kafka_network_requestmetrics_errorspersec
        kafka_network_requestmetrics_localtimems kafka_network_requestmetrics_remotetimems
        kafka_network_requestmetrics_requestqueuetimems kafka_network_requestmetrics_requestspersec
        kafka_network_requestmetrics_totaltimems kafka_network_socketserver_networkprocessoravgidlepercent
        kafka_server_brokertopicmetrics_bytesinpersec kafka_server_fetchsessioncache_numincrementalfetchsessions
        kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate
        kafka_server_replicafetchermanager_maxlag kafka_server_replicamanager_isrshrinkspersec
        kafka_server_socketservermetrics_connection_count kafka_server_raft_metrics_high_watermark
        kafka_controller_kafkacontroller_globaltopiccount kafka_log_log_logendoffset process_cpu_seconds_total""",
    "reporter": """
        kafka_controller_controllerstats_uncleanleaderelectionspersec_total
        kafka_network_socketserver_networkprocessoravgidlepercent
        kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total
        kafka_server_brokertopicmetrics_bytesinpersec_total kafka_server_raft_metrics_current_state_info""",
}
