"""Which config and which mode hold for a subject: its own, else its context's, else those of all contexts.

A name of None, or of the default context, is the registry as a whole.
"""

from typing import Final, TypeVar

from msgspec.structs import replace

from rookery.registry.entities import Config, ModeName
from rookery.registry.errors import operation_not_permitted
from rookery.registry.state import State
from rookery.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    context_of,
    is_default_context,
    normalize,
    qualified_context,
    qualify,
)

T = TypeVar("T")
_OVERRIDE: Final = "READONLY_OVERRIDE"


def setting_name(subject: str | None) -> str | None:
    """Under which a config or mode is kept."""
    return None if subject is None or is_default_context(subject) else normalize(subject)


def actual_subject(state: State, subject: str) -> str:
    """The normal form of a subject's name, or what it is an alias for."""
    name = normalize(subject)
    config = state.configs.get(name)
    return qualify(config.alias, name) if config is not None and config.alias else name


def own_config(state: State, name: str | None) -> Config | None:
    """None if it has none; the registry as a whole always has one."""
    config = state.configs.get(name)
    if config is None:
        return Config(compatibility_level=state.default_level) if name is None else None
    return _with_level(config, state.default_level)


def config_in_scope(state: State, name: str | None) -> Config:
    """Its own, with what it leaves open from the nearest scope around it that is configured."""
    around = _with_level(_around(state.configs, name) or Config(), state.default_level)
    own = state.configs.get(name)
    if own is None:
        return around
    return replace(
        own,
        normalize=around.normalize if own.normalize is None else own.normalize,
        validate_fields=around.validate_fields if own.validate_fields is None else own.validate_fields,
        validate_rules=around.validate_rules if own.validate_rules is None else own.validate_rules,
        compatibility_level=own.compatibility_level or around.compatibility_level,
        compatibility_policy=own.compatibility_policy or around.compatibility_policy,
        compatibility_group=own.compatibility_group or around.compatibility_group,
    )


def own_mode(state: State, name: str | None) -> ModeName | None:
    """None if it has none; the registry as a whole always has one, and may override all others."""
    whole = state.modes.get(None, state.default_mode)
    return whole if name is None or whole == _OVERRIDE else state.modes.get(name)


def mode_in_scope(state: State, name: str | None) -> ModeName:
    return own_mode(state, name) or _around(state.modes, name) or state.default_mode


def check_writable(state: State, name: str | None) -> None:
    if mode_in_scope(state, name) in ("READONLY", _OVERRIDE):
        raise operation_not_permitted(f"{described(name)} is in read-only mode")


def described(name: str | None) -> str:
    return f"Subject {name or 'null'} in context {qualified_context(context_of(name or ''))}"


def _around(settings: dict[str | None, T], name: str | None) -> T | None:
    context = context_of(name or "")
    nearest = settings.get(None if context == DEFAULT_CONTEXT else qualified_context(context))
    return settings.get(qualified_context(GLOBAL_CONTEXT)) if nearest is None else nearest


def _with_level(config: Config, level: str) -> Config:
    return config if config.compatibility_level else replace(config, compatibility_level=level)
