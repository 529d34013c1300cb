from pathlib import Path

from rookery.coordinators.group.classic.states import TRANSITIONS, State, diagram

GROUPS_PAGE = Path(__file__).parents[4] / "docs" / "groups.md"


def test_every_state_has_transitions() -> None:
    assert TRANSITIONS.keys() == set(State)
    reached = {after for targets in TRANSITIONS.values() for after in targets}
    assert reached == set(State)
    assert all(before not in targets for before, targets in TRANSITIONS.items())


def test_the_diagram_in_the_documentation_is_up_to_date() -> None:
    assert f"```mermaid\n{diagram()}```" in GROUPS_PAGE.read_text()
