"""A client's security settings: encryption, trusted certificates, credentials. Fields are named after Kafka's keys."""

from dataclasses import field

from rookery.base.values import value_class
from rookery.security.jaas import LoginModule


@value_class(kw_only=True)
class TlsSettings:
    """`ssl.*`. Certificates and keys are in a file (`location`), or are PEM text."""

    enabled_protocols: tuple[str, ...]
    verify_host_name: bool
    truststore_type: str
    truststore_location: str | None
    truststore_password: str | None = field(repr=False)
    truststore_certificates: str | None
    keystore_type: str
    keystore_location: str | None
    keystore_password: str | None = field(repr=False)
    keystore_key: str | None = field(repr=False)
    keystore_certificate_chain: str | None
    key_password: str | None = field(repr=False)


@value_class(kw_only=True)
class TokenSettings:
    """The source of bearer tokens: `sasl.oauthbearer.*` and `sasl.login.*`; `tls` is for an endpoint with https."""

    endpoint_url: str
    client_id: str | None
    client_secret: str | None = field(repr=False)
    scope: str | None
    url_encode_header: bool
    connect_timeout_ms: int | None
    read_timeout_ms: int | None
    refresh_window_factor: float
    refresh_buffer_s: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    tls: TlsSettings | None = None


@value_class(kw_only=True)
class KerberosLogin:
    """A login with Kerberos at brokers whose principals are `service_name/HOST`.

    The credentials are the keys of `principal` in the file `keytab`, or the tickets in `ticket_cache`; without both,
    those in the ticket cache of the user that runs the process.
    """

    service_name: str
    principal: str | None
    keytab: str | None
    ticket_cache: str | None


@value_class(kw_only=True)
class SaslSettings:
    """`tokens` is for OAUTHBEARER with an endpoint, `kerberos` for GSSAPI, and `login` for all others."""

    mechanism: str
    login: LoginModule
    tokens: TokenSettings | None = None
    kerberos: KerberosLogin | None = None


@value_class(kw_only=True)
class SecuritySettings:
    """`security.protocol`: PLAINTEXT has neither field, SSL has `tls`, SASL_PLAINTEXT has `sasl`, SASL_SSL both."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


PLAINTEXT = SecuritySettings()
