"""One row per configuration key: its type, default, limits and meaning; and the conversion of its text to a value.

The tables are `config_topic` for topics; for brokers `config_broker` and `config_cluster` (keys that have an effect
here), and `config_coordinator`, `config_security` and `config_inert` (keys most of which are known and checked but have
no effect here). Types, defaults and limits are Kafka's, except where the text of a row says so.
"""

import re
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import TypeAlias

from rookery.base.errors import ConfigError
from rookery.base.values import value_class

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The numbers of types in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """Whether a broker key can be changed while the broker runs, for one broker or for all."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@value_class(kw_only=True)
class ConfigKey:
    """A key. `choices` limits a string, or each item of a list; `also` is allowed outside of minimum..maximum."""

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    check: Callable[[ConfigValue], str | None] | None = None
    update: Update = Update.READ_ONLY
    synonyms: tuple[str, ...] = ()
    effective: bool = True
    internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD


def broker_row(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    also: int | None = None,
    choices: tuple[str, ...] = (),
    any_case: bool = False,
    check: Callable[[ConfigValue], str | None] | None = None,
    update: Update = Update.READ_ONLY,
    internal: bool = False,
    effective: bool = True,
) -> ConfigKey:
    """Return a row of a broker table; its calls take one or two lines."""
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        also=also,
        choices=choices,
        any_case=any_case,
        check=check,
        update=update,
        internal=internal,
        effective=effective,
    )


inert_row = partial(broker_row, effective=False)

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Infinity", re.ASCII)
_WHOLE_LIMITS = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}


def parse_value(key: ConfigKey, text: str) -> ConfigValue:
    """Convert and check the text of a key's value; raises ConfigError with the reason."""
    value = _convert(key, text)
    problem = _problem(key, value)
    if problem:
        shown = "[hidden]" if key.is_sensitive else text
        raise ConfigError(f"Invalid value {shown} for configuration {key.name}: {problem}")
    return value


def format_value(value: ConfigValue) -> str | None:
    """Format a value as Kafka does, for DescribeConfigs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


def _convert(key: ConfigKey, text: str) -> ConfigValue:
    trimmed = text.strip()
    if key.type is ConfigType.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise ConfigError(f"Invalid value {text} for configuration {key.name}: expected true or false")
        return trimmed.lower() == "true"
    if key.type in _WHOLE_LIMITS:
        return _convert_whole(key, trimmed)
    if key.type is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(trimmed):
            raise ConfigError(f"Invalid value {text} for configuration {key.name}: not a number of type DOUBLE")
        return float(trimmed)
    if key.type is ConfigType.LIST:
        return tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
    return text if key.type is ConfigType.STRING else trimmed


def _convert_whole(key: ConfigKey, text: str) -> int:
    limit = _WHOLE_LIMITS[key.type]
    # The length is checked first: Python rejects thousands of digits, and takes long to convert hundreds.
    if _NUMBER.fullmatch(text) and len(text) <= 20 and -limit - 1 <= int(text) <= limit:
        return int(text)
    raise ConfigError(f"Invalid value {text} for configuration {key.name}: not a number of type {key.type.name}")


def _problem(key: ConfigKey, value: ConfigValue) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value != key.also:
        if key.minimum is not None and value < key.minimum:
            return f"must be at least {key.minimum}"
        if key.maximum is not None and value > key.maximum:
            return f"must be at most {key.maximum}"
    if key.choices:
        for item in value if isinstance(value, tuple) else (str(value),):
            if (item.lower() if key.any_case else item) not in key.choices:
                return f"must be one of: {', '.join(key.choices)}"
    return key.check(value) if key.check else None


def _format_double(value: float) -> str:
    """Format a double as Java does: plain from 0.001 up to ten million, scientific beyond."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or value != value or value in (float("inf"), float("-inf")):
        return repr(value)
    mantissa, exponent = f"{value!r}e0".split("e")[:2]
    if "e" not in repr(value):
        mantissa, exponent = f"{value:.17e}".split("e")
        mantissa = repr(float(mantissa))
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
