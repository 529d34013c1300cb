"""Kafka's rule for the names of topics, and the messages for names that break it."""

import re

from rookery.base.types import TopicName

_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def name_problem(name: TopicName) -> str | None:
    """Return why a topic cannot have this name, None if it can."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > _LENGTH_MAX:
        return f"Topic name is invalid: it is longer than {_LENGTH_MAX} characters"
    if not _NAME.fullmatch(name):
        return f"Topic name is invalid: '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None
