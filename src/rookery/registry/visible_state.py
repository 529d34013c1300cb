"""The registry's state as one user sees it: lists and look-ups by id leave out the subjects that the user may not read.

It shares the collections of the whole state, so it costs nothing to make and is always current. Schemas that a visible
schema refers to are still found by their names: without them, it could not be parsed.
"""

from collections.abc import Callable, Iterable

from rookery.registry.records import SchemaValue
from rookery.registry.state import State
from rookery.registry.subjects import context_of, qualified_context


class VisibleState(State):
    """For queries only: commands need the whole state."""

    def __init__(self, whole: State, is_visible: Callable[[str], bool]) -> None:
        vars(self).update(vars(whole))
        self._whole = whole
        self._is_visible = is_visible

    def is_visible(self, subject: str) -> bool:
        return self._is_visible(subject)

    def listed_contexts(self) -> set[str]:
        """Return the contexts that the user may read as a whole, and those in which it may read a subject."""
        named = {context for context in self.contexts if self._is_visible(qualified_context(context))}
        return named | {context_of(subject) for subject in self.subjects()}

    def subjects(self) -> Iterable[str]:
        return filter(self._is_visible, self._whole.subjects())

    def with_id(self, context: str, schema_id: int) -> list[SchemaValue]:
        return [value for value in self._whole.with_id(context, schema_id) if self._is_visible(value.subject)]

    def any_with_id(self, context: str, schema_id: int) -> SchemaValue | None:
        return next(iter(self.with_id(context, schema_id)), None)

    def referrers(self, subject: str, version: int, *, deleted: bool) -> list[SchemaValue]:
        values = self._whole.referrers(subject, version, deleted=deleted)
        return [value for value in values if self._is_visible(value.subject)]
