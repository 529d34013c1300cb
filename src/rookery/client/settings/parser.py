"""Parses a mapping of Kafka's client keys into checked values.

Each client has a table of `ConfigKey` rows: names, types, defaults and limits are those of Kafka 4. A value may be a
Python value or its text in a properties file. One ConfigError lists all mistakes in a mapping, one per line, and each
line names its key. There are three kinds of keys:

- with effect;
- without effect (`effective=False`): known and checked, so that a Kafka client's properties are accepted;
- not supported (`unsupported_row`): the feature is missing, or is configured in another way. Only the default is
  accepted; the error for any other value says what to do instead.

The modules of the clients read the values through `Values`, and check combinations of keys.
"""

from collections.abc import Iterable, Mapping

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue, parse_value
from rookery.base.errors import ConfigError
from rookery.base.values import value_class


@value_class
class DefaultOnly:
    """The check of a key that is not supported: every value but the default is an error, with `reason`."""

    default: ConfigValue
    reason: str

    def __call__(self, value: ConfigValue) -> str | None:
        return None if _fold(value) == _fold(self.default) else self.reason


def _fold(value: ConfigValue) -> ConfigValue:
    # Kafka ignores the case of names of protocols and modes.
    return value.lower() if isinstance(value, str) else value


def unsupported_row(name: str, kind: ConfigType, default: ConfigValue, *, doc: str, reason: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=kind, default=default, doc=doc, check=DefaultOnly(default, reason), effective=False
    )


def is_unsupported(key: ConfigKey) -> bool:
    return isinstance(key.check, DefaultOnly)


def table(*groups: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """Return the rows sorted by name; a later group's row replaces an earlier one's, for defaults of one client."""
    rows = {row.name: row for group in groups for row in group}
    return {name: rows[name] for name in sorted(rows)}


class Values:
    """The values of a client's keys: the given ones, and the defaults of the others."""

    def __init__(self, keys: Mapping[str, ConfigKey], config: Mapping[str, object]) -> None:
        """Raises one ConfigError that lists the errors of all keys."""
        self._keys = keys
        self._given: dict[str, ConfigValue] = {}
        problems = []
        for name, value in config.items():
            try:
                key = _find(keys, name)
                self._given[name] = _parse(key, value)
            except ConfigError as error:
                problems.append(str(error))
        if problems:
            raise ConfigError("\n".join(problems))

    def is_given(self, name: str) -> bool:
        """Return whether the key was set to any value but None."""
        return self._given.get(name) is not None

    def value(self, name: str) -> ConfigValue:
        return self._given[name] if name in self._given else self._keys[name].default

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert type(value) is int, name
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.value(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, float), name
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        assert isinstance(value, str), name
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value

    def items(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        assert isinstance(value, tuple), name
        return value


def ineffective(keys: Mapping[str, ConfigKey], config: Mapping[str, object]) -> list[str]:
    """Return the keys in `config` that have no effect, so that a program can report them."""
    return sorted(name for name in config if name in keys and not keys[name].effective)


def check_together(problems: Iterable[str]) -> None:
    """Raise one ConfigError for all conflicts between keys."""
    found = list(problems)
    if found:
        raise ConfigError("\n".join(found))


def _find(keys: Mapping[str, ConfigKey], name: str) -> ConfigKey:
    key = keys.get(name) if isinstance(name, str) else None
    if key is None:
        raise ConfigError(f"unknown configuration {name!r}{_guess(keys, str(name))}")
    return key


def _guess(keys: Mapping[str, ConfigKey], name: str) -> str:
    # Imported here, because only mistakes need it.
    import difflib

    similar = difflib.get_close_matches(name.lower().replace("_", "."), keys, n=1, cutoff=0.75)
    return f"; did you mean {similar[0]}?" if similar else ""


def _parse(key: ConfigKey, value: object) -> ConfigValue:
    if value is None:
        if key.default is None:
            return None
        raise ConfigError(f"Invalid value None for configuration {key.name}: omit it for the default")
    return parse_value(key, _text(key, value))


def _text(key: ConfigKey, value: object) -> str:
    """Return a value as the text of a properties file. Raises ConfigError for a value of the wrong type."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        if key.type is ConfigType.BOOLEAN:
            return str(value).lower()
    elif isinstance(value, int | float):
        if key.type not in (ConfigType.BOOLEAN, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD):
            # Converting a huge number to text is slow (and limited), and it is out of every range.
            return str(value) if isinstance(value, float) or value.bit_length() < 128 else "a very long number"
    elif isinstance(value, list | tuple) and key.type is ConfigType.LIST:
        return ",".join(item if isinstance(item, str) else _name(item) for item in value)
    elif key.type is ConfigType.CLASS:
        return _name(value)
    raise ConfigError(
        f"Invalid value of type {type(value).__name__} for configuration {key.name}: expected a {key.type.name.lower()}"
    )


def _name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
