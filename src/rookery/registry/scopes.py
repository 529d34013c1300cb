"""Finds the config and the mode that apply to a subject: its own, or its context's, or those of all contexts.

A name of None, or of the default context, means the whole registry.
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
    """Return the name under which a config or mode is stored."""
    return None if subject is None or is_default_context(subject) else normalize(subject)


def actual_subject(state: State, subject: str) -> str:
    """Return the normal form of a subject's name, or the subject that it is an alias for."""
    name = normalize(subject)
    config = state.configs.get(name)
    return qualify(config.alias, name) if config is not None and config.alias else name


def own_config(state: State, name: str | None) -> Config | None:
    """Return the config that is set for `name`, or None. The whole registry always has one."""
    config = state.configs.get(name)
    if config is None:
        return Config(compatibility_level=state.default_level) if name is None else None
    return _with_level(config, state.default_level)


def config_in_scope(state: State, name: str | None) -> Config:
    """Return the config that applies to `name`: its own, with unset fields from the nearest enclosing scope."""
    outer = _with_level(_enclosing(state.configs, name) or Config(), state.default_level)
    own = state.configs.get(name)
    if own is None:
        return outer
    return replace(
        own,
        normalize=outer.normalize if own.normalize is None else own.normalize,
        validate_fields=outer.validate_fields if own.validate_fields is None else own.validate_fields,
        validate_rules=outer.validate_rules if own.validate_rules is None else own.validate_rules,
        compatibility_level=own.compatibility_level or outer.compatibility_level,
        compatibility_policy=own.compatibility_policy or outer.compatibility_policy,
        compatibility_group=own.compatibility_group or outer.compatibility_group,
    )


def own_mode(state: State, name: str | None) -> ModeName | None:
    """Return the mode that is set for `name`, or None. The whole registry always has one, which may override others."""
    whole = state.modes.get(None, state.default_mode)
    return whole if name is None or whole == _OVERRIDE else state.modes.get(name)


def mode_in_scope(state: State, name: str | None) -> ModeName:
    return own_mode(state, name) or _enclosing(state.modes, name) or state.default_mode


def check_writable(state: State, name: str | None) -> None:
    if mode_in_scope(state, name) in ("READONLY", _OVERRIDE):
        raise operation_not_permitted(f"{described(name)} is in read-only mode")


def described(name: str | None) -> str:
    return f"Subject {name or 'null'} in context {qualified_context(context_of(name or ''))}"


def _enclosing(settings: dict[str | None, T], name: str | None) -> T | None:
    context = context_of(name or "")
    nearest = settings.get(None if context == DEFAULT_CONTEXT else qualified_context(context))
    return settings.get(qualified_context(GLOBAL_CONTEXT)) if nearest is None else nearest


def _with_level(config: Config, level: str) -> Config:
    return config if config.compatibility_level else replace(config, compatibility_level=level)
