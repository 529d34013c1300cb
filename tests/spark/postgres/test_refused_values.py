from typing import Any

import pyarrow as pa
import pytest

from rookery.spark.postgres.refused_values import Limits, RefusedValue, describe, find_refused_values

EARLY = "is before 4713 BC, where PostgreSQL's times begin"


def times(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    ("column", "row", "why"),
    [
        (pa.array([None, "a", "\0"]), 2, "has a NUL character, which PostgreSQL's texts cannot hold"),
        (pa.array([b"\0", b"\0", b""]), None, ""),
        (pa.array([["a"], None, ["b", "c\0"]]), 2, "has an element that has a NUL character, which PostgreSQL's"),
        (times(0, -210_866_803_200_000_001, None), 1, EARLY),
        (times(-210_866_803_200_000_000, 2**63 - 1, None), None, ""),
        (pa.array([0, -2_440_589, None], pa.int32()).cast(pa.date32()), 1, EARLY),
        (pa.array([0, 2_145_042_905, 2_145_042_906], pa.int32()).cast(pa.date32()), 2, "is after the year 5874897"),
    ],
)
def test_values_that_postgres_cannot_hold(column: Any, row: int | None, why: str) -> None:
    found = find_refused_values(pa.record_batch({"v": column}), {})
    assert [(refusal.row, refusal.column) for refusal in found] == ([] if row is None else [(row, "v")])
    assert all(refusal.why.startswith(why) for refusal in found)


def test_the_limits_of_a_table_do_not_apply_to_rows_that_delete() -> None:
    batch = pa.record_batch({"k": pa.array([None, None, "ab"]), "d": pa.array([False, True, False])})
    required, short = {"k": Limits(is_required=True)}, {"k": Limits(length_max=1)}
    assert find_refused_values(batch, required, "d") == [RefusedValue(0, "k", "is null, and must not be")]
    assert [refusal.row for refusal in find_refused_values(batch, required)] == [0, 1]
    assert [refusal.row for refusal in find_refused_values(batch, short)] == [2]
    assert find_refused_values(batch, {"k": Limits(length_max=2)}) == []


@pytest.mark.parametrize(
    ("json", "has_nul"),
    [(r"\u0000", True), (r"\\u0000", False), (r"\\\u0000", True), (r"a\\\u0000", True), (r"\\\\u0000", False)],
)
def test_a_nul_in_json(json: str, has_nul: bool) -> None:
    batch = pa.record_batch({"j": pa.array([f'"{json}"'])})
    assert bool(find_refused_values(batch, {"j": Limits(is_jsonb=True)})) is has_nul
    assert not find_refused_values(batch, {"j": Limits()})


def test_the_message_identifies_the_row() -> None:
    batch = pa.record_batch({"at": times(0, 1_700_000_000_000_000_000), "t": pa.array(["x" * 99, "\0"])})
    (refusal,) = find_refused_values(batch, {})
    assert describe(refusal, batch, ["at"]).endswith("in the row with at = 1700000000000000000")
    text = describe(RefusedValue(0, "t", "is bad"), batch, [])
    assert text.startswith("column t (string) is bad, in the row with at = datetime.datetime(1970, ")
    assert text.endswith("xxx…")
