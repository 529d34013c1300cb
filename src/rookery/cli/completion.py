"""Shell completion of topics, groups, users, subjects and settings.

A completion must never print anything or fail: if the cluster cannot be reached, nothing is offered.
"""

from collections.abc import Collection, Iterable

import typer

from rookery.base.errors import RookeryError
from rookery.cli.command_config import use_command_config


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    from rookery.cli.cluster_names import topic_names

    _use_command_config(ctx)
    try:
        return _starting(topic_names(ctx.params), incomplete)
    except (RookeryError, OSError, TimeoutError):
        return []


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    from rookery.cli.cluster_names import group_names

    _use_command_config(ctx)
    try:
        return _starting(group_names(ctx.params), incomplete)
    except (RookeryError, OSError, TimeoutError):
        return []


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    from rookery.cli.cluster_names import user_names

    _use_command_config(ctx)
    try:
        return _starting(user_names(ctx.params), incomplete)
    except (RookeryError, OSError, TimeoutError):
        return []


def subjects(ctx: typer.Context, incomplete: str) -> list[str]:
    from rookery.cli.cluster_names import subject_names

    try:
        return _starting(subject_names(ctx.params), incomplete)
    except (RookeryError, OSError, ImportError):
        return []


def resources(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the names that `configs` takes: topics, or `default` for all brokers."""
    return topics(ctx, incomplete) if str(ctx.params.get("kind")) == "topic" else _starting(["default"], incomplete)


def topic_settings(incomplete: str) -> list[str]:
    from rookery.base.config_topic import TOPIC_KEYS

    return _assignments(TOPIC_KEYS, incomplete)


def broker_settings(incomplete: str) -> list[str]:
    from rookery.base.config import BROKER_KEYS

    return _assignments(BROKER_KEYS, incomplete)


def resource_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete settings of a topic or of a broker; of both if the kind is not known yet."""
    match str(ctx.params.get("kind")):
        case "topic":
            return topic_settings(incomplete)
        case "broker":
            return broker_settings(incomplete)
    return topic_settings(incomplete) + broker_settings(incomplete)


def client_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete settings of a producer or of a consumer, depending on the command."""
    from rookery.client.settings import CONSUMER_KEYS, PRODUCER_KEYS

    return _assignments(PRODUCER_KEYS if ctx.info_name == "produce" else CONSUMER_KEYS, incomplete)


def doctor_checks(incomplete: str) -> list[str]:
    from rookery.doctor import CHECKS

    return _starting([check.id for check in CHECKS], incomplete)


def _use_command_config(ctx: typer.Context) -> None:
    """Use the --command-config of the line, as the command would: its callback does not run during completion."""
    use_command_config(ctx.find_root().params.get("command_config"))


def _assignments(names: Collection[str], incomplete: str) -> list[str]:
    return _starting([f"{name}=" for name in sorted(names)], incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
