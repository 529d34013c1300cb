import gc

import pytest

from rookery.base.garbage import collector_paused


def test_the_collector_rests_inside_and_works_again_after() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_inside_does_not_leave_it_off() -> None:
    with pytest.raises(ValueError, match="no"), collector_paused():
        raise ValueError("no")
    assert gc.isenabled()


def test_who_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
