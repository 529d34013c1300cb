"""Which tables are kept, and for how long."""

from uuid import UUID

import pyarrow as pa

from rookery.base.clock import ManualClock
from rookery.pipelines.table_cache import AGE_S_MAX, IDLE_S_MAX, Incarnation, TableCache
from rookery.pipelines.table_rows import KeyTable

FIRST = Incarnation(UUID(int=1), 0)


def table_of(size_bytes: int, *, end: int = 10) -> KeyTable:
    return KeyTable(0, end, pa.table({"value": pa.array([0] * (size_bytes // 8), pa.int64())}))


def kept(tables: TableCache, name: str, incarnation: Incarnation = FIRST) -> bool:
    return tables.find(name, incarnation, 0, 10) is not None


def test_another_topic_and_another_leader_begin_anew() -> None:
    for other in (Incarnation(UUID(int=2), 0), Incarnation(UUID(int=1), 1)):
        tables = TableCache(clock=ManualClock())
        tables.keep("t", FIRST, table_of(8))
        assert kept(tables, "t")
        assert not kept(tables, "t", other)
        assert not kept(tables, "t"), "it is forgotten"


def test_a_table_that_holds_what_is_gone_is_forgotten() -> None:
    tables = TableCache(clock=ManualClock())
    tables.keep("t", FIRST, table_of(8, end=11))
    assert not kept(tables, "t")
    assert tables.find("t", FIRST, 0, 11) is None


def test_an_idle_table_is_forgotten() -> None:
    clock = ManualClock()
    tables = TableCache(clock=clock)
    tables.keep("t", FIRST, table_of(8))
    clock.advance(int(IDLE_S_MAX * 1000) - 1)
    assert kept(tables, "t")
    clock.advance(1)
    assert not kept(tables, "t"), "it was not brought up to date"


def test_a_table_is_read_wholly_now_and_then() -> None:
    clock = ManualClock()
    tables = TableCache(clock=clock)
    step_ms = int(IDLE_S_MAX * 1000) // 2
    uses = 0
    tables.keep("t", FIRST, table_of(8))
    while kept(tables, "t"):
        tables.keep("t", FIRST, table_of(8))
        clock.advance(step_ms)
        uses += 1
    assert uses * step_ms == AGE_S_MAX * 1000


def test_tables_in_use_stay_and_what_does_not_fit_is_not_kept() -> None:
    clock = ManualClock()
    tables = TableCache(clock=clock, size_bytes_max=100)
    tables.keep("a", FIRST, table_of(64))
    assert (tables.room_for("a"), tables.room_for("b")) == (100, 36)
    tables.keep("b", FIRST, table_of(40))
    tables.keep("c", FIRST, table_of(32))
    assert [kept(tables, name) for name in "abc"] == [True, False, True]
    tables.keep("c", FIRST, table_of(40))
    assert not kept(tables, "c"), "it has grown"
    clock.advance(int(IDLE_S_MAX * 1000))
    assert not kept(tables, "b")
    assert tables.room_for("b") == 100, "idle ones make room"
