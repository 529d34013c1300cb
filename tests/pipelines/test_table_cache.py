"""Which tables the cache returns, and for how long."""

from uuid import UUID

import pyarrow as pa

from rookery.base.clock import ManualClock
from rookery.pipelines.table_cache import AGE_S_MAX, IDLE_S_MAX, Incarnation, TableCache
from rookery.pipelines.table_rows import KeyTable

FIRST = Incarnation(UUID(int=1), 0)


def table_of(size_bytes: int, *, end: int = 10) -> KeyTable:
    return KeyTable(0, end, pa.table({"value": pa.array([0] * (size_bytes // 8), pa.int64())}))


def is_cached(tables: TableCache, name: str, incarnation: Incarnation = FIRST) -> bool:
    return tables.find(name, incarnation, 0, 10) is not None


def test_a_new_topic_or_a_new_leader_removes_the_table() -> None:
    for other in (Incarnation(UUID(int=2), 0), Incarnation(UUID(int=1), 1)):
        tables = TableCache(clock=ManualClock())
        tables.put("t", FIRST, table_of(8))
        assert is_cached(tables, "t")
        assert not is_cached(tables, "t", other)
        assert not is_cached(tables, "t"), "it was removed"


def test_a_table_that_ends_after_the_range_is_removed() -> None:
    tables = TableCache(clock=ManualClock())
    tables.put("t", FIRST, table_of(8, end=11))
    assert not is_cached(tables, "t")
    assert tables.find("t", FIRST, 0, 11) is None


def test_an_idle_table_is_removed() -> None:
    clock = ManualClock()
    tables = TableCache(clock=clock)
    tables.put("t", FIRST, table_of(8))
    clock.advance(int(IDLE_S_MAX * 1000) - 1)
    assert is_cached(tables, "t")
    clock.advance(1)
    assert not is_cached(tables, "t"), "it was not updated in time"


def test_a_table_expires_some_time_after_its_full_read() -> None:
    clock = ManualClock()
    tables = TableCache(clock=clock)
    step_ms = int(IDLE_S_MAX * 1000) // 2
    uses = 0
    tables.put("t", FIRST, table_of(8))
    while is_cached(tables, "t"):
        tables.put("t", FIRST, table_of(8))
        clock.advance(step_ms)
        uses += 1
    assert uses * step_ms == AGE_S_MAX * 1000


def test_tables_in_use_stay_and_tables_that_do_not_fit_are_not_cached() -> None:
    clock = ManualClock()
    tables = TableCache(clock=clock, size_bytes_max=100)
    tables.put("a", FIRST, table_of(64))
    assert (tables.free_bytes("a"), tables.free_bytes("b")) == (100, 36)
    tables.put("b", FIRST, table_of(40))
    tables.put("c", FIRST, table_of(32))
    assert [is_cached(tables, name) for name in "abc"] == [True, False, True]
    tables.put("c", FIRST, table_of(40))
    assert not is_cached(tables, "c"), "it has grown"
    clock.advance(int(IDLE_S_MAX * 1000))
    assert not is_cached(tables, "b")
    assert tables.free_bytes("b") == 100, "idle tables are removed"
