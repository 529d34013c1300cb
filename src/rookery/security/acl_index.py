"""The ACL entries of a cluster, found by the resource that they touch. Pure.

An entry touches a resource if its pattern matches the resource's name: a LITERAL pattern the equal name, the wildcard
`*` every name, a PREFIXED pattern every name that begins with it. The entries of a pattern are a `Section`, by
principal, so that an entry of another principal costs nothing but the knowledge that the resource has entries.

A look-up takes one step per distinct length of prefixes, never one per entry: a cluster with thousands of entries has
few such lengths.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias
from uuid import UUID

from rookery.base.codes import AclResourceType, PatternType
from rookery.security.acls import WILDCARD, AclBinding

# The entries of one pattern, by principal.
Section: TypeAlias = Mapping[str, list[AclBinding]]


class _TypeIndex:
    """The entries about one type of resources."""

    __slots__ = ("by_principal", "lengths", "literal", "prefix_counts", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, dict[str, list[AclBinding]]] = {}
        self.prefixed: dict[str, dict[str, list[AclBinding]]] = {}
        # The lengths of the names in `prefixed`, and how many names have each.
        self.prefix_counts: Counter[int] = Counter()
        self.lengths: tuple[int, ...] = ()
        self.by_principal: dict[str, list[AclBinding]] = {}

    def _sections(self, binding: AclBinding) -> dict[str, dict[str, list[AclBinding]]]:
        return self.prefixed if binding.pattern.pattern_type == PatternType.PREFIXED else self.literal

    def add(self, binding: AclBinding) -> None:
        sections, name = self._sections(binding), binding.pattern.name
        if name not in sections:
            sections[name] = {}
            if sections is self.prefixed:
                self._count_prefix(len(name), 1)
        sections[name].setdefault(binding.principal, []).append(binding)
        self.by_principal.setdefault(binding.principal, []).append(binding)

    def remove(self, binding: AclBinding) -> None:
        sections, name = self._sections(binding), binding.pattern.name
        _remove(sections[name], binding)
        _remove(self.by_principal, binding)
        if not sections[name]:
            del sections[name]
            if sections is self.prefixed:
                self._count_prefix(len(name), -1)

    def _count_prefix(self, length: int, change: int) -> None:
        self.prefix_counts[length] += change
        if not self.prefix_counts[length]:
            del self.prefix_counts[length]
        self.lengths = tuple(sorted(self.prefix_counts))

    def touching(self, name: str) -> Iterator[Section]:
        found = self.literal.get(name)
        if found is not None:
            yield found
        for length in self.lengths:
            if length > len(name):
                break
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found
        found = self.literal.get(WILDCARD)
        if found is not None and name != WILDCARD:
            yield found


def _remove(lists: dict[str, list[AclBinding]], binding: AclBinding) -> None:
    """Remove one entry from the list of its principal, and the list if it is empty then."""
    entries = lists[binding.principal]
    entries.remove(binding)
    if not entries:
        del lists[binding.principal]


_NO_ENTRIES = _TypeIndex()


class AclIndex:
    """All entries, by id and by resource."""

    def __init__(self) -> None:
        self._by_id: dict[UUID, AclBinding] = {}
        self._types: dict[AclResourceType, _TypeIndex] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def entries(self) -> Mapping[UUID, AclBinding]:
        return self._by_id

    def put(self, entry_id: UUID, binding: AclBinding) -> None:
        """Add an entry, or replace the one with this id."""
        self.remove(entry_id)
        self._by_id[entry_id] = binding
        self._types.setdefault(binding.pattern.type, _TypeIndex()).add(binding)

    def remove(self, entry_id: UUID) -> None:
        """Remove an entry if it exists."""
        binding = self._by_id.pop(entry_id, None)
        if binding is not None:
            self._types[binding.pattern.type].remove(binding)

    def touching(self, resource_type: AclResourceType, name: str) -> Iterator[Section]:
        """Yield the sections of the patterns that match a resource: its own name first, then prefixes, then `*`."""
        return self._types.get(resource_type, _NO_ENTRIES).touching(name)

    def of_principals(self, resource_type: AclResourceType, principals: Iterable[str]) -> Iterator[AclBinding]:
        """Yield the entries about a type of resources that these principals have."""
        by_principal = self._types.get(resource_type, _NO_ENTRIES).by_principal
        for principal in principals:
            yield from by_principal.get(principal, ())
