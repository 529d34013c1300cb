import ssl
from collections.abc import Iterator, Mapping

import pytest

from rookery.base.errors import ConfigError
from rookery.serdes import RegistryClient, Schema
from rookery.serdes.errors import RegistryUnavailableError
from tests.serdes.fake_registry import FakeRegistry, fake_registry
from tests.support.certificates import PASSWORD, Certificates, make_certificates

STRING = Schema('"string"')
HASTY = {"max.retries": 0}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(certificates: Certificates) -> Iterator[FakeRegistry]:
    with fake_registry(_context(certificates)) as running:
        yield running


@pytest.fixture(scope="module")
def cautious_server(certificates: Certificates) -> Iterator[FakeRegistry]:
    """A registry that requires client certificates."""
    context = _context(certificates)
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    with fake_registry(context) as running:
        yield running


def _context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker)
    return context


def register(url: str, config: Mapping[str, object]) -> int:
    with RegistryClient(url, {**HASTY, **config}) as client:
        return client.register("a", STRING)


def test_a_registry_that_is_trusted(server: FakeRegistry, certificates: Certificates) -> None:
    assert register(server.url, {"ssl.ca.location": str(certificates.authority)}) == 1


def test_a_registry_that_is_not_trusted(server: FakeRegistry) -> None:
    with pytest.raises(RegistryUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        register(server.url, {})


def test_an_unverified_certificate_is_accepted(server: FakeRegistry) -> None:
    assert register(server.url, {"enable.ssl.certificate.verification": False}) == 1


def test_a_client_with_a_certificate(cautious_server: FakeRegistry, certificates: Certificates) -> None:
    trust = {"ssl.ca.location": str(certificates.authority)}
    with pytest.raises(RegistryUnavailableError):
        register(cautious_server.url, trust)
    assert register(cautious_server.url, trust | {"ssl.certificate.location": str(certificates.client)}) == 1


def test_a_key_with_a_password(cautious_server: FakeRegistry, certificates: Certificates) -> None:
    config = {"ssl.ca.location": certificates.authority, "ssl.certificate.location": certificates.locked_broker}
    texts = {name: str(path) for name, path in config.items()}
    assert register(cautious_server.url, {**texts, "ssl.key.password": PASSWORD}) == 1
    with pytest.raises(ConfigError, match=r"ssl\.\*\.location"):
        register(cautious_server.url, {**texts, "ssl.key.password": "wrong"})
