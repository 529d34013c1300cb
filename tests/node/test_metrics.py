"""The metrics and health checks of a running broker, over HTTP."""

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.openmetrics import parser

from rookery.base.errors import StartupError
from rookery.testing import EmbeddedBroker
from rookery.testing.managed import reserve_port
from tests.support.dashboards import DASHBOARDS
from tests.support.waiting import eventually

TOPIC = "orders"
RECORDS = 500
VALUE = b"x" * 100

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scraped:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self._samples: Samples = {}
        for family in parser.text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
            for sample in family.samples:
                self._samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples[name, tuple(sorted(labels.items()))]

    def has(self, name: str, **labels: str) -> bool:
        return (name, tuple(sorted(labels.items()))) in self._samples

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._samples}


class Endpoint:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type") or "", response.read().decode()
        finally:
            connection.close()

    def scrape(self, dialect: str = "strimzi") -> Scraped:
        # The parser of OpenMetrics leaves names as they are; that of the older format gives counters a suffix.
        status, _, text = self.get(f"/metrics?dialect={dialect}", Accept="application/openmetrics-text")
        assert status == http.client.OK
        return Scraped(text)


def produce(bootstrap: str, topic: str = TOPIC, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(count):
        producer.produce(topic, VALUE, partition=0)
    producer.flush()


def consume(bootstrap: str, topic: str = TOPIC, count: int = RECORDS) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    while found < count:
        found += len(consumer.consume(count, 1.0))
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[EmbeddedBroker, Endpoint]]:
    with reserve_port() as reserved:
        endpoint = Endpoint(reserved.getsockname()[1])
        settings = {"metrics.listeners": f"http://127.0.0.1:{endpoint.port}", "metrics.topics.max": "3"}
        with EmbeddedBroker(settings=settings) as running:
            produce(running.bootstrap_servers)
            consume(running.bootstrap_servers)
            yield running, endpoint


def test_traffic_is_what_clients_sent(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    found = broker[1].scrape()
    prefix = "kafka_server_brokertopicmetrics"
    for labels in ({}, {"topic": TOPIC}):
        assert found(f"{prefix}_messagesin_total", **labels) == RECORDS
        bytes_in = found(f"{prefix}_bytesin_total", **labels)
        assert (
            bytes_in
            == found(f"{prefix}_bytesout_total", **labels)
            == found("kafka_log_log_size", topic=TOPIC, partition="0")
        )
        assert bytes_in > RECORDS * len(VALUE)
        assert found(f"{prefix}_totalproducerequests_total", **labels) >= 1
        assert found(f"{prefix}_totalfetchrequests_total", **labels) >= 1
        assert found(f"{prefix}_failedproducerequests_total", **labels) == 0
    assert found("kafka_log_log_logendoffset", topic=TOPIC, partition="0") == RECORDS
    assert found("kafka_topic_partition_current_offset", topic=TOPIC, partition="0") == RECORDS
    assert found("kafka_cluster_partition_replicascount", topic=TOPIC, partition="0") == 1


def test_requests_and_their_errors_are_counted(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    running, endpoint = broker
    before = endpoint.scrape()
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": running.bootstrap_servers, "message.timeout.ms": 30_000})
    # Only Kafka's own tools may write to internal topics.
    producer.produce("__consumer_offsets", VALUE, partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush()
    assert [failure and failure.code() for failure in failures] == [KafkaError.TOPIC_EXCEPTION]
    after = endpoint.scrape()
    errors = "kafka_network_requestmetrics_errors_total"
    assert after(errors, request="Produce", error="INVALID_TOPIC_EXCEPTION") == 1
    prefix = "kafka_server_brokertopicmetrics"
    assert after(f"{prefix}_failedproducerequests_total") == before(f"{prefix}_failedproducerequests_total") + 1
    assert after("kafka_network_requestmetrics_totaltimems_count", request="Produce") > before(
        "kafka_network_requestmetrics_totaltimems_count", request="Produce"
    )
    assert after("kafka_network_requestmetrics_totaltimems", request="Fetch", quantile="0.99") > 0


def test_every_kind_of_metric_is_there(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    found = broker[1].scrape()
    assert found("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert found("kafka_server_replicamanager_partitioncount") == found("kafka_server_replicamanager_leadercount") > 0
    assert found("kafka_server_raftmetrics_current_state", current_state="leader") == 1
    assert found("kafka_server_kafkaserver_brokerstate") == 3
    assert found("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert found("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
    assert found(
        "kafka_server_socket_server_metrics_connection_creation_total", listener="PLAINTEXT", networkProcessor="0"
    )
    assert 0 <= found("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent") <= 1
    assert found("process_open_fds") > 0
    assert found("rookery_request_seconds_total", request="Produce") > 0


@pytest.mark.parametrize("dialect", DASHBOARDS)
def test_the_names_of_public_dashboards_are_there(broker: tuple[EmbeddedBroker, Endpoint], dialect: str) -> None:
    assert not set(DASHBOARDS[dialect].split()) - broker[1].scrape(dialect).names


def test_topics_beyond_the_limit_are_shown_as_one(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    running, endpoint = broker
    for name in ("alpha", "beta", "zeta"):
        produce(running.bootstrap_servers, name, 10)
    found = endpoint.scrape()
    messages = "kafka_server_brokertopicmetrics_messagesin_total"
    # In the order of their names: __consumer_offsets, alpha, beta.
    assert found(messages, topic="alpha") == 10
    assert found(messages, topic="(others)") == RECORDS + 10
    assert found(messages) == RECORDS + 30
    assert not found.has("kafka_log_log_size", topic="zeta", partition="0")


def test_a_deleted_topic_stays_in_the_totals(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    running, endpoint = broker
    produce(running.bootstrap_servers, "aardvark", 5)
    messages = "kafka_server_brokertopicmetrics_messagesin_total"
    before = endpoint.scrape()(messages)
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    admin.delete_topics(["aardvark"])["aardvark"].result()
    eventually(lambda: not endpoint.scrape().has(messages, topic="aardvark"), "the topic is still shown")
    assert endpoint.scrape()(messages) == before


def test_health(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    assert broker[1].get("/healthz")[::2] == (200, "alive\n")
    assert broker[1].get("/readyz")[::2] == (200, "ready\n")


def test_formats_and_wrong_requests(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    endpoint = broker[1]
    status, content_type, text = endpoint.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, content_type.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    status, _, text = endpoint.get("/metrics?dialect=french")
    assert (status, text) == (400, "dialect: expected one of strimzi, confluent, reporter, got 'french'\n")
    assert endpoint.get("/")[0] == 404
    assert endpoint.get("/metrics", method="POST")[0] == 405
    assert endpoint.get("/healthz", method="HEAD")[::2] == (200, "")


def test_one_connection_serves_many_scrapes(broker: tuple[EmbeddedBroker, Endpoint]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker[1].port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"alive\n"
    connection.close()


@pytest.mark.parametrize("data", [b"hello\r\n\r\n", b"GET / FTP/3\r\n\r\n", b"x" * 100_000])
def test_a_peer_that_speaks_no_http_is_closed(broker: tuple[EmbeddedBroker, Endpoint], data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker[1].port), timeout=30) as peer:
        peer.sendall(data)
        answer = b""
        while piece := _receive(peer):
            answer += piece
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


def _receive(peer: socket.socket) -> bytes:
    try:
        return peer.recv(4096)
    except ConnectionResetError:
        return b""


def test_a_port_in_use_is_refused_with_its_key(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartupError, match=f"metrics.listeners: cannot listen on {url}"):
            EmbeddedBroker(settings={"metrics.listeners": url}, data_dir=tmp_path).start()


@pytest.mark.parametrize("text", ["9404", "https://localhost:1", "http://localhost", "http://localhost:9404/metrics"])
def test_a_listener_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"metrics\.listeners.*expected http://HOST:PORT"):
        EmbeddedBroker(settings={"metrics.listeners": text}).start()
