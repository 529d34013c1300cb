from pathlib import Path

from rookery.coordinators.group.classic.states import TRANSITIONS, State, diagram

GROUPS_PAGE = Path(__file__).parents[4] / "docs" / "groups.md"


def test_every_state_has_its_ways() -> None:
    assert TRANSITIONS.keys() == set(State)
    reached = {after for ways in TRANSITIONS.values() for after in ways}
    assert reached == set(State)
    assert all(before not in ways for before, ways in TRANSITIONS.items())


def test_the_diagram_in_the_documentation_is_up_to_date() -> None:
    assert f"```mermaid\n{diagram()}```" in GROUPS_PAGE.read_text()
