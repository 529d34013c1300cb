"""Names in each dialect, as the public rules for the JMX exporter and Strimzi's reporter make them."""

from pathlib import Path

import pytest

from rookery.telemetry import docs, names
from rookery.telemetry.dialects import DIALECTS, series
from rookery.telemetry.histograms import Histogram, distribution
from rookery.telemetry.measurements import Definition, Idle, Kind, Value, single

STRIMZI, CONFLUENT, REPORTER = "strimzi", "confluent", "reporter"
ONE = Histogram()
ONE.record(7)
SEVEN = distribution([ONE])
IDLE = Idle(nanoseconds=5e9, mean_share=0.5, last_minute_share=0.25)

CASES: list[tuple[Definition, Value, dict[str, list[tuple[str, str, float]]]]] = [
    (
        names.BYTES_IN,
        10,
        {
            STRIMZI: [("kafka_server_brokertopicmetrics_bytesin_total", "counter", 10)],
            CONFLUENT: [("kafka_server_brokertopicmetrics_bytesinpersec", "counter", 10)],
            REPORTER: [("kafka_server_brokertopicmetrics_bytesinpersec_total", "counter", 10)],
        },
    ),
    (
        names.UNDER_REPLICATED,
        2,
        {dialect: [("kafka_server_replicamanager_underreplicatedpartitions", "gauge", 2)] for dialect in DIALECTS},
    ),
    (
        names.NETWORK_IDLE,
        0.9,
        {
            STRIMZI: [("kafka_network_socketserver_networkprocessoravgidle_percent", "gauge", 0.9)],
            CONFLUENT: [("kafka_network_socketserver_networkprocessoravgidlepercent", "gauge", 0.9)],
            REPORTER: [("kafka_network_socketserver_networkprocessoravgidlepercent", "gauge", 0.9)],
        },
    ),
    (
        names.HANDLER_IDLE,
        IDLE,
        {
            STRIMZI: [("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "gauge", 0.5)],
            CONFLUENT: [
                ("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate", "gauge", 0.25)
            ],
            REPORTER: [("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total", "counter", 5e9)],
        },
    ),
    (
        names.CONNECTIONS,
        3,
        {
            STRIMZI: [("kafka_server_socket_server_metrics_connection_count", "gauge", 3)],
            CONFLUENT: [("kafka_server_socketservermetrics_connection_count", "gauge", 3)],
            REPORTER: [("kafka_server_socket_server_metrics_connection_count", "gauge", 3)],
        },
    ),
    (
        names.INCOMING_BYTES,
        3,
        {
            STRIMZI: [("kafka_server_socket_server_metrics_incoming_byte_total", "counter", 3)],
            CONFLUENT: [("kafka_server_socketservermetrics_incoming_byte_total", "counter", 3)],
            REPORTER: [("kafka_server_socket_server_metrics_incoming_byte", "gauge", 3)],
        },
    ),
    (
        names.RAFT_HIGH_WATERMARK,
        14,
        {
            STRIMZI: [("kafka_server_raftmetrics_high_watermark", "gauge", 14)],
            CONFLUENT: [("kafka_server_raft_metrics_high_watermark", "gauge", 14)],
            REPORTER: [("kafka_server_raft_metrics_high_watermark", "gauge", 14)],
        },
    ),
    (
        names.RAFT_STATE,
        "leader",
        {
            STRIMZI: [("kafka_server_raftmetrics_current_state", "gauge", 1)],
            CONFLUENT: [("kafka_server_raft_metrics_current_state", "gauge", 1)],
            REPORTER: [("kafka_server_raft_metrics_current_state_info", "gauge", 1)],
        },
    ),
    (
        names.GROUPS_STABLE,
        1,
        {
            dialect: [("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", "gauge", 1)]
            for dialect in DIALECTS
        },
    ),
    (
        names.DISK_READ,
        1,
        {dialect: [("kafka_server_kafkaserver_linux_disk_read_bytes", "gauge", 1)] for dialect in DIALECTS},
    ),
    (names.EXPORTER_BROKERS, 3, {dialect: [("kafka_brokers", "gauge", 3)] for dialect in DIALECTS}),
    (names.CPU_SECONDS, 3.5, {dialect: [("process_cpu_seconds_total", "counter", 3.5)] for dialect in DIALECTS}),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("definition", "value", "expected"), CASES, ids=[case[0].name for case in CASES])
def test_names(
    dialect: str, definition: Definition, value: Value, expected: dict[str, list[tuple[str, str, float]]]
) -> None:
    found = [
        (each.name, each.type, each.samples[0][1]) for each in series(single(definition, value), DIALECTS[dialect])
    ]
    assert found == expected[dialect]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_histogram_is_a_summary_without_a_sum(dialect: str) -> None:
    family = single(names.TOTAL_TIME, SEVEN, ("request", "Fetch"))
    quantiles, count = series(family, DIALECTS[dialect])
    assert quantiles.name == "kafka_network_requestmetrics_totaltimems"
    assert [tags[-1][1] for tags, _ in quantiles.samples] == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]
    assert all(value == 7 for _, value in quantiles.samples)
    assert (count.name, count.samples) == (f"{quantiles.name}_count", [((("request", "Fetch"),), 1)])


def test_a_state_is_a_label() -> None:
    (found,) = series(single(names.RAFT_STATE, "leader"), DIALECTS[STRIMZI])
    assert found.samples == [((("current_state", "leader"),), 1)]


def test_confluents_labels_are_lower_case() -> None:
    family = single(names.FETCHER_MAX_LAG, 1, ("clientId", "Replica"))
    assert [tags for each in series(family, DIALECTS[CONFLUENT]) for tags, _ in each.samples] == [
        (("clientid", "Replica"),)
    ]
    assert [tags for each in series(family, DIALECTS[STRIMZI]) for tags, _ in each.samples] == [
        (("clientId", "Replica"),)
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_two_metrics_have_the_same_name(dialect: str) -> None:
    """Two with different meanings would be added up."""
    values: dict[Kind, Value] = {Kind.HISTOGRAM: SEVEN, Kind.IDLE: IDLE}
    found = [
        each.name
        for definition in names.DEFINITIONS
        for each in series(single(definition, values.get(definition.kind, 1)), DIALECTS[dialect])
    ]
    assert len(found) == len(set(found))
    assert all(definition.help for definition in names.DEFINITIONS)


def test_the_page_of_metrics_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == docs.render(), "run: make docs"
