"""Which records of a batch the check of schema ids rejects."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.broker.schema_checks import NoSchemas, SchemaChecks
from rookery.records.batch import HEADER_SIZE, read_header
from rookery.records.batch_reader import unpack_records
from rookery.records.record import Headers, Record, build_batch
from rookery.storage.config import SchemaRules


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8)), min_size=1, max_size=20),
    st.sampled_from([SchemaRules("TopicNameStrategy", None), SchemaRules(None, "TopicNameStrategy")]),
    st.sampled_from([(), (("name", b"text"),)]),
)
def test_rejected_records(
    bodies: list[tuple[bytes | None, bytes | None]], rules: SchemaRules, headers: Headers
) -> None:
    records = [Record(index, 0, key, value, headers) for index, (key, value) in enumerate(bodies)]
    checked = [record.key if rules.key else record.value for record in records]
    judge = SchemaChecks(NoSchemas()).judge("orders", rules)
    data = build_batch(records)
    assert judge(unpack_records(read_header(data), bytes(data[HEADER_SIZE:]))).keys() == {
        index for index, body in enumerate(checked) if body is not None
    }
    assert judge.found_unknown == any(body is not None and len(body) >= 5 and body[0] == 0 for body in checked)
