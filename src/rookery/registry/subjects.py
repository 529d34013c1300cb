"""The names of subjects and contexts.

    orders-value           the subject `orders-value` in the default context, whose name is "."
    :.test:orders-value    the same in the context `.test`
    :.test:                the context `.test` itself, where a context is allowed (configs, modes, prefixes)
    :*:orders              any context, in prefixes only
    :.__GLOBAL:            all contexts, for configs and modes that apply where no subject or context has its own

Ids are assigned per context. A name has one normal form, which never contains the default context.
"""

import re
from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
ANY_CONTEXT: Final = ":*:"
_ANY: Final = "*"
GLOBAL_CONTEXT: Final = ".__GLOBAL"
# Confluent's registry itself has no limit, but its HTTP server accepts no longer request line.
SUBJECT_LENGTH_MAX: Final = 8192
# Control characters, and lone surrogates, which cannot be encoded in UTF-8.
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
    """Return the prefix of subject names in this context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def normalize(name: str) -> str:
    return split(name).name


def context_of(name: str) -> str:
    return split(name).context


def is_default_context(name: str | None) -> bool:
    """Whether the name of a config or a mode means the whole registry."""
    return name is None or split(name) == (DEFAULT_CONTEXT, "")


def qualify(name: str, parent: str) -> str:
    """Return a name qualified with the parent's context, unless it has a context itself."""
    qualified = split(name)
    if qualified.context == DEFAULT_CONTEXT:
        qualified = QualifiedSubject(context_of(parent), qualified.subject)
    return qualified.name


def is_valid(name: str, *, for_settings: bool = False) -> bool:
    """Whether the name is a valid subject or, with `for_settings`, the name of a config or a mode."""
    if len(name) > SUBJECT_LENGTH_MAX or _NOT_TEXT.search(name):
        return False
    context, subject = split(name)
    if subject in _RESERVED_SUBJECTS:
        return False
    return context != _ANY and (for_settings or context != GLOBAL_CONTEXT)


def covers(name: str | None, subject: str) -> bool:
    """Whether the scope `name` contains the subject: the subject itself, its context, or the whole registry."""
    if name is None or name == subject:
        return True
    context, own = split(name)
    return not own and context in (GLOBAL_CONTEXT, context_of(subject))


def has_prefix(subject: str, prefix: str) -> bool:
    """Whether a subject has the prefix. A prefix without a context matches subjects of the default context only.

    A prefix may also be a context, the beginning of a context's name, or ":*:" for any context.
    """
    context, own = split(subject)
    if prefix.startswith(":.") and ":" not in prefix[1:]:
        return context.startswith(prefix[1:])
    prefix_context, own_prefix = split(prefix)
    return prefix_context in (context, _ANY) and own.startswith(own_prefix)
