"""The table of access tests on real brokers: clients that log in as users, and ACLs that are created by requests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bench.systems import ApacheKafka, free_ports
from rookery.base.config_access import AUTHORIZER, STANDARD_AUTHORIZER, SUPER_USERS
from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.security.acls import AclBinding
from rookery.testing import EmbeddedBroker
from tests.conformance.brokers import BOTH, JARS, SETTINGS
from tests.support import access_requests as make
from tests.support.access_cases import ADMIN, TOPICS, USER, Case, outcome, parse_acls
from tests.support.access_table import CASES
from tests.support.secured import plain_settings
from tests.support.waiting import eventually
from tests.support.wire import WireClient

LISTENER = "SASL_PLAINTEXT"
PASSWORD = "secret"
ATTEMPTS = 10
PAUSE_S = 0.2
RETRIED = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def log_in(address: str, user: str) -> WireClient:
    client = WireClient(address)
    assert client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.NONE
    token = f"\0{user}\0{PASSWORD}".encode()
    assert client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code == ErrorCode.NONE
    return client


class SecuredBroker:
    """A broker with an authorizer, connections of a super user and of the user of the table, and the topics' ids."""

    def __init__(self, address: str) -> None:
        self.admin = log_in(address, ADMIN)
        self.user = log_in(address, USER)
        self.ids: dict[str, UUID] = {}

    def close(self) -> None:
        self.admin.socket.close()
        self.user.socket.close()

    def set_up(self) -> None:
        topics = [
            Message(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in TOPICS
        ]
        created = self.admin.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=30_000, validate_only=False)
        self.ids = {topic.name: topic.topic_id for topic in created.topics}
        for key, version, fields in make.SETUP:
            response = self._call_until_served(key, version, fields)
        opened = make.opened(response.producer_id, response.producer_epoch)
        self._call_until_served(ApiKey.ADD_PARTITIONS_TO_TXN, 3, opened)

    def _call_until_served(self, key: ApiKey, version: int, fields: Any) -> Message:
        """Return the first response without an error about a coordinator: these are created by the first requests."""
        responses: list[Message] = []

        def is_served() -> bool:
            responses.append(self.admin.call(key, version, **fields))
            return not any(code.name in outcome(responses[-1], self.ids) for code in RETRIED)

        eventually(is_served, f"a coordinator that answers {key.name}")
        return responses[-1]

    def permit(self, acls: list[AclBinding]) -> None:
        """Make `acls` the only ones, and wait until they have an effect."""
        self.admin.call(ApiKey.DELETE_ACLS, 3, **make.deleted_acls())
        created = self.admin.call(ApiKey.CREATE_ACLS, 3, **make.new_acls(*acls))
        assert all(result.error_code == ErrorCode.NONE for result in created.results), created
        eventually(lambda: self._acl_count() == len(set(acls)), "the ACLs")

    def _acl_count(self) -> int:
        found = self.admin.call(ApiKey.DESCRIBE_ACLS, 3, **vars(make.ANY_ACL))
        return sum(len(resource.acls) for resource in found.resources)

    def check(self, case: Case) -> str | None:
        """Send the request of a row; return the difference between its outcome and the table's, if there is one.

        The request is sent again if what the row before has created is not known to the broker yet.
        """
        self.permit(parse_acls(case.acls))
        for _ in range(ATTEMPTS):
            response = self.user.call(case.key, case.version, **make.resolved(case.fields, self.ids))
            found = outcome(response, self.ids)
            if found == case.outcome:
                return None
            time.sleep(PAUSE_S)
        return f"{case.label}: {found}, not {case.outcome}"


SECURITY = {
    **SETTINGS,
    "auto.create.topics.enable": "true",
    "delegation.token.secret.key": "key",
    AUTHORIZER: STANDARD_AUTHORIZER,
    # Apache Kafka's node itself does not log in.
    SUPER_USERS: f"User:{ADMIN};User:ANONYMOUS",
    **plain_settings(LISTENER, {ADMIN: PASSWORD, USER: PASSWORD}),
}


@contextmanager
def start_kafka(directory: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", LISTENER: LISTENER}
    names = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    settings = {**SECURITY, "listener.security.protocol.map": names}
    process = ApacheKafka(JARS, listeners=[f"{LISTENER}://{address}"]).start(directory, settings)
    try:
        yield address
    finally:
        process.stop()


@contextmanager
def start_rookery(_: Path) -> Iterator[str]:
    with EmbeddedBroker(settings=SECURITY, security_protocol=LISTENER) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module", params=BOTH)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    start = start_kafka if request.param == "kafka" else start_rookery
    with start(tmp_path_factory.mktemp(request.param)) as address:
        secured = SecuredBroker(address)
        secured.set_up()
        yield secured
        secured.close()


def test_the_table(broker: SecuredBroker) -> None:
    """All rows in one test: some depend on the rows before them, and tests may be spread over several processes."""
    wrong = [found for case in CASES if (found := broker.check(case)) is not None]
    assert not wrong, "\n".join(wrong)
