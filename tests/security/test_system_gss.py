"""Without the library for Kerberos, a broker and a client say which extra to install."""

import sys

import pytest

from rookery.base.errors import ConfigError
from rookery.client import sync
from rookery.security.system_gss import check_library
from rookery.testing import EmbeddedBroker

LOGIN = 'a.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="kafka/host";'


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)


def test_the_hint_is_one_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"^sasl\.mechanism=GSSAPI needs gssapi.*pip install '\.\[kerberos\]'"
    ) as error:
        check_library("sasl.mechanism")
    assert "\n" not in str(error.value)


def test_a_client() -> None:
    config = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
    }
    with pytest.raises(ConfigError, match=r"sasl\.mechanism=GSSAPI needs gssapi"), sync.Admin(config):
        pass


def test_a_broker() -> None:
    settings = {"sasl.enabled.mechanisms": "GSSAPI", "sasl.jaas.config": LOGIN}
    broker = EmbeddedBroker(settings=settings, security_protocol="SASL_PLAINTEXT")
    with pytest.raises(ConfigError, match=r"sasl\.enabled\.mechanisms=GSSAPI needs gssapi"):
        broker.start()
