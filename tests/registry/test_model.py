"""Any history of a registry: schemas are registered, deleted and imported, settings change, in two contexts.

What must hold at any time: the log makes the state again, whole or compacted; an id never stands for two schemas, not
even after what had it is gone; a schema that is there keeps its id; what was refused changed nothing; what schemas
refer to is there, and is never they themselves. And who asks for a schema that was registered gets it.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar
from unittest.mock import patch

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.registry import candidates, decisions, queries
from rookery.registry.errors import RegistryError
from rookery.registry.records import Record, SchemaValue
from rookery.registry.state import State, fingerprint, reference_keys
from rookery.registry.subjects import context_of
from rookery.schemas import levels
from tests.registry.fake_format import FakeFormat
from tests.registry.stage import Stage, compacted, properties, replayed, schema

T = TypeVar("T")
SUBJECTS = ("s", "t", ":.c:s")
CONTEXTS = (".", ".c")

subjects_of = st.sampled_from(SUBJECTS)
texts_of = st.sampled_from(("a", "b?", "a,b?"))
ids_of = st.sampled_from((1, 2, 3, 9, 20))
versions_of = st.sampled_from(("latest", "1", "2"))
names_of = st.sampled_from((None, *SUBJECTS, ":.c:", ":.__GLOBAL:"))
levels_of = st.sampled_from((None, "NONE", "BACKWARD", "FULL_TRANSITIVE"))
modes_of = st.sampled_from((None, None, None, "READWRITE", "IMPORT", "READONLY"))
metadata_of = st.sampled_from((None, None, properties(owner="me")))


class RegistryModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(module, "find_format", FakeFormat) for module in (candidates, levels)]
        for each in self.patches:
            each.start()
        candidates.parse_text.cache_clear()
        self.stage = Stage(default_level="NONE")
        # The meaning of each id that was ever given.
        self.given: dict[tuple[str, int], object] = {}
        # The subjects' versions, and whether they are deleted, as someone would keep them who knows no ids.
        self.versions: dict[str, dict[int, tuple[str, bool]]] = {subject: {} for subject in SUBJECTS}

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()
        candidates.parse_text.cache_clear()

    @rule(subject=subjects_of, text=texts_of, metadata=metadata_of)
    def register(self, subject: str, text: str, metadata: object) -> None:
        before = self.stage.state.max_id(context_of(subject))
        schema_id = self._attempt(lambda: self.stage.register(subject, text, metadata=metadata), 409, 42205)
        self._note_registration(subject)
        if schema_id is not None:
            assert schema_id <= before + 1
            # It may be there with a reference to what is in this text.
            request = schema(text, metadata=metadata)
            found = queries.look_up(self.stage.state, subject, request, format="resolved")
            assert (found.id, found.schema) == (schema_id, text)

    @rule(subject=subjects_of, text=texts_of, other=subjects_of, version=st.sampled_from((-1, 1, 2)))
    def register_with_a_reference(self, subject: str, text: str, other: str, version: int) -> None:
        self._attempt(lambda: self.stage.register(subject, f"{text},@x", ("x", other, version)), 409, 42201, 42205)
        self._note_registration(subject)

    @rule(
        subject=subjects_of,
        text=texts_of,
        schema_id=ids_of,
        version=st.none() | st.integers(1, 3),
        other=st.none() | subjects_of,
    )
    def import_(self, subject: str, text: str, schema_id: int, version: int | None, other: str | None) -> None:
        before = self.stage.state.modes.get(subject)
        self.stage.set_mode(subject, "IMPORT", force=True)
        if self.stage.state.any_with_id(context_of(subject), schema_id) is None:
            # Whoever says which id a schema has may say so again when nothing has it any more.
            self.given.pop((context_of(subject), schema_id), None)
        references = () if other is None else (("x", other, 1),)
        sent = f"{text},@x" if references else text
        given = self._attempt(
            lambda: self.stage.register(subject, sent, *references, id=schema_id, version=version), 42201, 42205, 42206
        )
        assert given in (None, schema_id)
        self._note_registration(subject, version)
        self.set_mode(subject, before, force=True)

    @rule(subject=subjects_of, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        known = self.versions[subject]
        expected = [number for number, (_, deleted) in sorted(known.items()) if permanent or not deleted]
        codes = (40404, 40405, 42205, 42206) if known else (40401,)
        numbers = self._attempt(lambda: self.stage.delete(subject, permanent=permanent), *codes)
        if numbers is not None:
            assert numbers == expected
            deleted = {number: (text, True) for number, (text, _) in known.items()}
            self.versions[subject] = {} if permanent else deleted

    @rule(subject=subjects_of, version=versions_of, permanent=st.booleans())
    def delete_version(self, subject: str, version: str, permanent: bool) -> None:
        known = self.versions[subject]
        codes = (40402, 40406, 40407, 42205, 42206) if known else (40401,)
        numbers = self._attempt(lambda: self.stage.delete(subject, version, permanent=permanent), *codes)
        if numbers is not None:
            text, deleted = known.pop(numbers[0])
            assert deleted == permanent
            if not permanent:
                known[numbers[0]] = text, True

    @rule(subject=subjects_of)
    def delete_for_good(self, subject: str) -> None:
        self.delete_subject(subject, permanent=False)
        self.delete_subject(subject, permanent=True)

    @rule(name=names_of, level=levels_of)
    def configure(self, name: str | None, level: str | None) -> None:
        """Without a level, the config goes."""
        if level is not None:
            self._attempt(lambda: self.stage.configure(name, compatibility_level=level), 42205)
        else:
            self._attempt(lambda: self.stage.carry_out(decisions.delete_config(self.stage.state, name)), 40401, 42205)

    @rule(name=names_of, mode=modes_of, force=st.booleans())
    def set_mode(self, name: str | None, mode: str | None, force: bool) -> None:
        """Without a mode, the one that there is goes."""
        if mode is not None:
            self._attempt(lambda: self.stage.set_mode(name, mode, force=force), 42205, 42206)
        else:
            self._attempt(lambda: self.stage.carry_out(decisions.delete_mode(self.stage.state, name)), 40401)
        for subject, known in self.versions.items():
            # An import may clear what is deleted already, and nothing else.
            left = self._versions(subject)
            assert left in ({}, known)
            assert left == known or all(deleted for _, deleted in known.values())
            self.versions[subject] = left

    @precondition(lambda self: len(self.stage.log) > 3)
    @rule()
    def restart_after_compaction(self) -> None:
        self.stage.log = compacted(self.stage.log)
        self.stage.state = self._replayed(self.stage.log)

    @invariant()
    def the_log_makes_the_state(self) -> None:
        assert self._replayed(self.stage.log) == self.stage.state
        assert self._replayed(compacted(self.stage.log)) == self.stage.state

    @invariant()
    def references_lead_somewhere(self) -> None:
        """Those of deleted versions too, and nothing leads to itself."""
        for value in self._all():
            targets = [self.stage.state.find(*key) for key in reference_keys(value)]
            assert None not in targets
            for depth in range(len(self.given) + 1):
                if not targets:
                    break
                assert value not in targets, depth
                found = [target for target in targets if target is not None]
                targets = [self.stage.state.find(*key) for target in found for key in reference_keys(target)]

    @invariant()
    def an_id_never_changes_its_meaning(self) -> None:
        for value in self._all():
            key = context_of(value.subject), value.id
            assert self.given.setdefault(key, fingerprint(value)) == fingerprint(value)

    @invariant()
    def the_versions_are_those_that_someone_would_expect(self) -> None:
        for subject, known in self.versions.items():
            assert known == self._versions(subject)

    @invariant()
    def the_highest_id_is_known(self) -> None:
        for context in CONTEXTS:
            ids = [schema_id for other, schema_id in self.given if other == context]
            assert self.stage.state.max_id(context) >= max(ids, default=0)

    def _attempt(self, act: Callable[[], T], *codes: int) -> T | None:
        """None if it was refused, which must be with one of the codes, and then nothing was written."""
        before = len(self.stage.log)
        try:
            return act()
        except RegistryError as error:
            refusal = error
        assert refusal.code in codes, refusal.message
        assert len(self.stage.log) == before
        return None

    def _replayed(self, log: list[Record]) -> State:
        return replayed(log, default_level="NONE")

    def _all(self) -> Iterator[SchemaValue]:
        for subject in self.stage.state.subjects():
            yield from self.stage.state.versions(subject)

    def _versions(self, subject: str) -> dict[int, tuple[str, bool]]:
        return {value.version: (value.schema, value.deleted) for value in self.stage.state.versions(subject)}

    def _note_registration(self, subject: str, wanted: int | None = None) -> None:
        """Live versions stay as they are, deleted ones may give way; there is one more version, or none."""
        known, left = self.versions[subject], self._versions(subject)
        added = {number for number in left if left[number] != known.get(number)}
        assert added <= {wanted or max(known, default=0) + 1}
        assert all(known[number][1] for number in known.keys() - left.keys())
        self.versions[subject] = left


TestRegistry = RegistryModel.TestCase
TestRegistry.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
