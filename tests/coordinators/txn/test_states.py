from pathlib import Path

from rookery.coordinators.txn import states
from rookery.coordinators.txn.states import IDLE, PREPARED, STATES_BY_LABEL, TRANSITIONS, State, can_move, diagram

PAGE = Path(__file__).parents[3] / "docs" / "transactions.md"


def test_every_state_has_transitions() -> None:
    assert TRANSITIONS.keys() == set(State)
    assert {after for targets in TRANSITIONS.values() for after in targets} == set(State)
    assert {State.ONGOING} | PREPARED | IDLE == set(State)


def test_labels_are_kafkas() -> None:
    assert list(STATES_BY_LABEL) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
    ]


def test_a_prepared_outcome_is_fixed() -> None:
    assert list(TRANSITIONS[State.PREPARE_COMMIT]) == [State.COMPLETE_COMMIT]
    assert list(TRANSITIONS[State.PREPARE_ABORT]) == [State.COMPLETE_ABORT]


def test_the_table_in_the_docstring_matches_the_transitions() -> None:
    assert states.__doc__ is not None
    lines = [line for line in states.__doc__.splitlines() if line.startswith("    ")]
    header, *rows = lines
    columns = {state: header.index(f" {state.name}") + 1 for state in State}
    assert [row.split()[0] for row in rows] == ["(none)", *(state.name for state in State)]
    for before, row in zip((None, *State), rows, strict=True):
        marks = {position for position, letter in enumerate(row) if letter == "x"}
        drawn = {state for state, start in columns.items() if marks & set(range(start, start + len(state.name)))}
        assert drawn == {after for after in State if can_move(before, after)}, row


def test_the_diagram_in_the_documentation_is_up_to_date() -> None:
    assert f"```mermaid\n{diagram()}```" in PAGE.read_text()
