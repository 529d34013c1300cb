"""Parses entities and values of quotas. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from rookery.base.errors import ConfigError
from rookery.base.quota_entities import DEFAULT, QuotaEntity, QuotaName

BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
KEYS: Final = (*BYTE_RATES, "request_percentage", "controller_mutation_rate", "connection_creation_rate")
_IP_KEY: Final = "connection_creation_rate"
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B?(?:/s)?")
_UNITS: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quota_entity(
    *,
    user: str | None = None,
    client_id: str | None = None,
    ip: str | None = None,
    default_user: bool = False,
    default_client_id: bool = False,
    default_ip: bool = False,
) -> QuotaEntity:
    """Return the entity that options name. Raises ConfigError if they contradict each other or name nothing."""
    entity = QuotaEntity(
        user=_name("user", user, default_user),
        client_id=_name("client-id", client_id, default_client_id),
        ip=_name("ip", ip, default_ip),
    )
    if not entity.parts():
        raise ConfigError("name what the quota is for: --user, --client-id, --ip, or --default-user and the like")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise ConfigError("--ip stands alone: quotas of addresses are not per user or client id")
    return entity


def check_keys(entity: QuotaEntity, keys: Mapping[str, object]) -> None:
    """Raise ConfigError if a quota has no meaning for an entity."""
    for key in keys:
        if (key == _IP_KEY) != (entity.ip is not None):
            suited = _IP_KEY if entity.ip is not None else ", ".join(key for key in KEYS if key != _IP_KEY)
            raise ConfigError(f"{key} does not apply to {entity}: set {suited}")


def parse_rate(text: str, option: str) -> float:
    """Return bytes per second from a number, or from a text as `10MB` or `512KiB`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{option}: '{text}' must be bytes per second, for example 1048576, 10MB or 512KiB")
    unit = (match[2] or "").replace("K", "k") if match[2] in ("k", "K") else match[2]
    return float(match[1]) * (_UNITS[unit] if unit else 1)


def rate_text(key: str, value: float) -> str:
    """Return the value of a quota for a table."""
    number = f"{value:,.0f}" if value == int(value) else f"{value:,}"
    if key in BYTE_RATES:
        return f"{number} bytes/s"
    return f"{number} %" if key == "request_percentage" else f"{number} per second"


def _name(kind: str, name: str | None, is_default: bool) -> QuotaName | None:
    if name is not None and is_default:
        raise ConfigError(f"give only one of --{kind} and --default-{kind}")
    if name == "":
        raise ConfigError(
            f"--{kind}: the name is empty; --default-{kind} stands for all that have no quota of their own"
        )
    return DEFAULT if is_default else name
