"""GSS-API contexts by the Kerberos library of the system (MIT), through `gssapi`. The only door to that library.

The library reads `krb5.conf` (`KRB5_CONFIG`) and finds the KDCs itself. A keytab is read at each login, so that new
keys count without a restart. With a keytab, a client's tickets are held in the memory of the process, and fetched again
when they have ended.
"""

from collections.abc import Callable
from typing import Any, Final

from rookery.base.distribution import install_hint
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.security.gss import GssContext, GssError
from rookery.security.settings import KerberosLogin

# The minor codes of MIT Kerberos begin here: first the numbers of the protocol (RFC 4120, section 7.5.9), then its own.
_CODES_START: Final = 2_529_638_912
_CLIENT_NOT_YET_VALID: Final = 21
_TICKET_NOT_YET_VALID: Final = 33
_REPLAY: Final = 34
_KDC_UNREACHABLE: Final = 156
_TRANSIENT: Final = frozenset({_CLIENT_NOT_YET_VALID, _TICKET_NOT_YET_VALID, _REPLAY, _KDC_UNREACHABLE})


def check_library(key: str) -> None:
    """Raise ConfigError if the library is missing; `key` is the setting that needs it."""
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        hint = f"{install_hint('kerberos')}, after apt-get install gcc libkrb5-dev python3-dev"
        raise ConfigError(f"{key}=GSSAPI needs gssapi and the Kerberos libraries of the system: {hint}") from error


def default_realm() -> str:
    """Return the default realm of `krb5.conf`; empty if there is none."""
    import gssapi

    try:
        name = gssapi.Name("any", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]


@value_class
class Acceptor:
    """The service's side: accepts tickets for `principal`, whose keys are in the file `keytab`."""

    principal: str
    keytab: str

    def check(self) -> None:
        """Raise GssError if there is no key. Blocks."""
        self._credentials()

    def begin(self) -> GssContext:
        """Return a new context. Blocks, and raises GssError."""
        import gssapi

        credentials = self._credentials()
        return _Context(lambda: gssapi.SecurityContext(creds=credentials, usage="accept"), b"")

    def _credentials(self) -> Any:
        import gssapi

        # Only Kerberos: others that the system's library may have are no mechanisms of Kafka.
        return _call(
            lambda: gssapi.Credentials(
                usage="accept",
                name=gssapi.Name(self.principal, gssapi.NameType.kerberos_principal),
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": self.keytab},
            )
        )


def initiate(login: KerberosLogin, host: str) -> GssContext:
    """Return the client's side of a context with the service at `host`. Nothing happens before its first step."""
    import gssapi

    def begin() -> Any:
        store = {}
        if login.keytab is not None:
            store = {"client_keytab": login.keytab, "ccache": f"MEMORY:{login.keytab}:{login.principal}"}
        elif login.ticket_cache is not None:
            store = {"ccache": login.ticket_cache}
        name = None
        if login.principal is not None:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        kerberos = gssapi.MechType.kerberos
        credentials = gssapi.Credentials(usage="initiate", name=name, mechs=[kerberos], store=store or None)
        service = gssapi.Name(f"{login.service_name}@{host}", gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        return gssapi.SecurityContext(name=service, creds=credentials, usage="initiate", mech=kerberos, flags=flags)

    return _Context(begin, None)


class _Context:
    """A context, which `begin` creates at the first step. `nothing` is what the library takes for no token then."""

    def __init__(self, begin: Callable[[], Any], nothing: bytes | None) -> None:
        self._begin = begin
        self._nothing = nothing
        self._context: Any = None

    @property
    def is_complete(self) -> bool:
        return self._context is not None and bool(self._context.complete)

    @property
    def peer(self) -> str:
        try:
            return bytes(_call(lambda: self._context.initiator_name)).decode()
        except UnicodeDecodeError:
            raise GssError("the principal is not in UTF-8") from None

    def step(self, token: bytes) -> bytes:
        def step() -> Any:
            if self._context is not None:
                return self._context.step(token)
            self._context = self._begin()
            # The library would return a token for the other side, and raise the error at the next call.
            self._context.__DEFER_STEP_ERRORS__ = False
            return self._context.step(token or self._nothing)

        return _call(step) or b""

    def wrap(self, message: bytes) -> bytes:
        wrapped: bytes = _call(lambda: self._context.wrap(message, False).message)
        return wrapped

    def unwrap(self, message: bytes) -> bytes:
        unwrapped: bytes = _call(lambda: self._context.unwrap(message).message)
        return unwrapped

    def lifetime_s(self) -> int:
        return int(_call(lambda: self._context.lifetime))


def _call(function: Callable[[], Any]) -> Any:
    """Call a function of the library. Raises GssError."""
    import gssapi

    try:
        return function()
    except gssapi.exceptions.GSSError as error:
        # The library's texts have the numbers of the error in front.
        text = error.get_all_statuses(error.min_code, False)[0] if error.min_code else str(error)
        raise GssError(str(text), is_transient=error.min_code - _CODES_START in _TRANSIENT) from None
