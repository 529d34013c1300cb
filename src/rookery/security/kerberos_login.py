"""The Kerberos credentials in `sasl.jaas.config`: the options of Java's Krb5LoginModule. Pure.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="..." principal="...";

Options about prompts, renewal and Java's own caches have no effect: the Kerberos library of the system renews tickets.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from rookery.security.settings import KerberosLogin

SERVICE_KEY: Final = "sasl.kerberos.service.name"
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB_EXAMPLE: Final = f'{MODULE} required useKeyTab=true storeKey=true keyTab="..." principal="...";'


def has_keytab(options: Mapping[str, str]) -> bool:
    return _is_set(options, "useKeyTab")


def login_problems(options: Mapping[str, str], service_name: str | None) -> Iterator[str]:
    """Yield what is missing for a login at other nodes. `service_name` is the value of `sasl.kerberos.service.name`."""
    own_name = options.get("serviceName")
    if own_name is None and service_name is None:
        yield f"{SERVICE_KEY} is required with GSSAPI: set it to the service in the brokers' principals, such as kafka"
    elif own_name is not None and service_name not in (None, own_name):
        yield f"{SERVICE_KEY} is {service_name}, but serviceName in sasl.jaas.config is {own_name}: remove one of them"
    if has_keytab(options):
        if missing := [name for name in ("keyTab", "principal") if not options.get(name)]:
            yield f"sasl.jaas.config has useKeyTab=true, but no {' and no '.join(missing)}: {KEYTAB_EXAMPLE}"
    elif options and not _is_set(options, "useTicketCache"):
        yield (
            "sasl.jaas.config has neither useKeyTab=true nor useTicketCache=true, and no password is asked for: "
            f"{KEYTAB_EXAMPLE}"
        )


def read_login(options: Mapping[str, str], service_name: str | None) -> KerberosLogin:
    """Read the credentials of a login; `login_problems` has none."""
    service = options.get("serviceName") or service_name
    assert service is not None
    uses_keytab = has_keytab(options)
    return KerberosLogin(
        service_name=service,
        principal=options.get("principal"),
        keytab=options["keyTab"] if uses_keytab else None,
        ticket_cache=None if uses_keytab else options.get("ticketCache"),
    )


def _is_set(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"
