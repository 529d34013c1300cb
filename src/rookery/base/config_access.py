"""The keys of authorization. Those of the authorizer are Kafka's."""

from collections.abc import Iterator
from typing import Final

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue
from rookery.base.config_key import broker_row as _row

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def principals_of(text: str) -> Iterator[str]:
    """Yield the principals of a `super.users` text. Names may contain commas, so semicolons separate them."""
    return (each.strip() for each in text.split(";") if each.strip())


def _authorizer_problem(value: ConfigValue) -> str | None:
    if value in ("", STANDARD_AUTHORIZER):
        return None
    return f"it must be {STANDARD_AUTHORIZER}, or empty for no authorizer"


def _super_users_problem(value: ConfigValue) -> str | None:
    assert isinstance(value, str)
    for principal in principals_of(value):
        kind, _, name = principal.partition(":")
        if not kind or not name:
            return f"{principal} must be Type:name, for example User:admin. Separate several with semicolons"
        if ",User:" in principal:
            return f"{principal} would be one principal. Separate several with semicolons"
    return None


ACCESS_ROWS: Final[tuple[ConfigKey, ...]] = (
    _row(
        ALLOW_IF_NO_ACL,
        ConfigType.BOOLEAN,
        False,
        "With an authorizer: allow every operation on resources that no ACL is about.",
    ),
    _row(
        AUTHORIZER,
        ConfigType.STRING,
        "",
        f"{STANDARD_AUTHORIZER} asks for permission by ACLs; empty allows everything.",
        check=_authorizer_problem,
    ),
    _row(
        SUPER_USERS,
        ConfigType.STRING,
        "",
        "Principals that may do everything, as User:name, separated by semicolons. The nodes of a cluster must be "
        "among them, or have the permission ClusterAction.",
        check=_super_users_problem,
    ),
)
