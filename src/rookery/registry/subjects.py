"""Subjects and the contexts that they are in.

    orders-value           the subject `orders-value` in the default context, whose name is "."
    :.test:orders-value    the same in the context `.test`
    :.test:                the context `.test` itself, in places that take a context too (configs, modes, prefixes)
    :*:orders              any context, in prefixes only
    :.__GLOBAL:            all contexts, for configs and modes that hold where nothing nearer is set

Ids are given per context. A name has one normal form: the default context is never written out.
"""

import re
from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
ANY_CONTEXT: Final = ":*:"
_ANY: Final = "*"
GLOBAL_CONTEXT: Final = ".__GLOBAL"
# Confluent's registry has no limit of its own, but its HTTP server takes no longer line.
SUBJECT_LENGTH_MAX: Final = 8192
# Control characters, and halves of characters, which no file can hold.
_NOT_TEXT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RESERVED_SUBJECTS: Final = frozenset({"__GLOBAL", "__EMPTY"})


class QualifiedSubject(NamedTuple):
    context: str
    subject: str

    @property
    def name(self) -> str:
        return qualified_context(self.context) + self.subject


def split(name: str) -> QualifiedSubject:
    if name.startswith(":."):
        context, _, subject = name[1:].partition(":")
        return QualifiedSubject(context, subject)
    if name.startswith(ANY_CONTEXT):
        return QualifiedSubject(_ANY, name[len(ANY_CONTEXT) :])
    return QualifiedSubject(DEFAULT_CONTEXT, name)


def qualified_context(context: str) -> str:
    """What a subject's name starts with in that context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def normalize(name: str) -> str:
    return split(name).name


def context_of(name: str) -> str:
    return split(name).context


def is_default_context(name: str | None) -> bool:
    """Whether the name means the registry as a whole where a config or a mode is meant."""
    return name is None or split(name) == (DEFAULT_CONTEXT, "")


def qualify(name: str, parent: str) -> str:
    """As it is meant by someone in the parent's context; a name with a context is meant as it is."""
    qualified = split(name)
    if qualified.context == DEFAULT_CONTEXT:
        qualified = QualifiedSubject(context_of(parent), qualified.subject)
    return qualified.name


def is_valid(name: str, *, for_settings: bool = False) -> bool:
    """`for_settings`: as the subject of a config or a mode, which may be a context."""
    if len(name) > SUBJECT_LENGTH_MAX or _NOT_TEXT.search(name):
        return False
    context, subject = split(name)
    if subject in _RESERVED_SUBJECTS:
        return False
    return context != _ANY and (for_settings or context != GLOBAL_CONTEXT)


def covers(name: str | None, subject: str) -> bool:
    """Whether a setting of `name` is one of the subject: its own, its context's, or the whole registry's."""
    if name is None or name == subject:
        return True
    context, own = split(name)
    return not own and context in (GLOBAL_CONTEXT, context_of(subject))


def has_prefix(subject: str, prefix: str) -> bool:
    """Of the default context, unless the prefix names one, or the beginning of one, or any."""
    context, own = split(subject)
    if prefix.startswith(":.") and ":" not in prefix[1:]:
        return context.startswith(prefix[1:])
    prefix_context, own_prefix = split(prefix)
    return prefix_context in (context, _ANY) and own.startswith(own_prefix)
