import base64

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf import check, parse
from rookery.schemas.protobuf.printer import quote
from tests.schemas.protobuf.generated import texts
from tests.schemas.protobuf.golden_files import NAMES, read_text
from tests.schemas.protobuf.ordering import in_order

# Shrinking the large texts would take minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
FEW = settings(max_examples=30, deadline=None, phases=PHASES)
MANY = settings(max_examples=150, deadline=None, phases=PHASES)


# Fragments that are inserted to damage texts.
PIECES = (
    *("", "{", "}", "[", "(", ".", "-", '"', "\x00", "\u00e9", "0", "1", "1e400", "inf", "max", "A", "string", "oneof"),
    *("0x" + "f" * 5_000, "9" * 5_000, '"\\377"', "[default = 5]", "reserved 1 to 9;", "extensions 1 to 9;"),
    *("option (a.b).c = { x: [1, {}] };", "optional group G = 99 {}", 'import "google/protobuf/descriptor.proto";'),
    "extend google.protobuf.FieldOptions { optional double z = 50001; }",
)


def _use_or_reject(text: str) -> None:
    """Only parsing may raise, and only InvalidSchemaError."""
    try:
        schema = parse(text)
    except InvalidSchemaError:
        return
    normal = schema.normalized()
    assert parse(schema.canonical).canonical == schema.canonical
    assert parse(normal.canonical).normalized().canonical == normal.canonical
    assert parse(schema.formatted("serialized")).name == schema.name
    assert check(schema, normal) == check(normal, schema) == []


@FEW
@given(texts())
def test_the_canonical_text_is_a_fixed_point(text: str) -> None:
    schema = parse(text)
    again = parse(schema.canonical)
    assert again.canonical == schema.canonical
    assert in_order(again.descriptor) == in_order(schema.descriptor)


@FEW
@given(texts())
def test_a_schema_reads_its_own_data(text: str) -> None:
    schema = parse(text)
    assert check(schema, schema) == []
    assert check(schema, schema.normalized()) == []
    assert check(schema.normalized(), schema) == []


@FEW
@given(texts())
def test_text_and_descriptor_convert_to_each_other(text: str) -> None:
    schema = parse(text)
    from_descriptor = parse(schema.formatted("serialized"))
    assert in_order(from_descriptor.descriptor) == in_order(schema.descriptor)
    assert in_order(parse(from_descriptor.canonical).descriptor) == in_order(schema.descriptor)
    assert check(schema, from_descriptor) == check(from_descriptor, schema) == []


@FEW
@given(texts())
def test_normal_forms(text: str) -> None:
    normal = parse(text).normalized()
    assert parse(normal.canonical).normalized().canonical == normal.canonical
    assert in_order(normal.descriptor) == in_order(parse(text).descriptor)


@FEW
@given(texts())
def test_protobufs_own_library_accepts_valid_schemas(text: str) -> None:
    schema = parse(text)
    assert schema.name is not None
    assert schema.pool.FindMessageTypeByName(schema.name).full_name == schema.name


@MANY
@given(st.text(max_size=60) | st.text(alphabet="message Mstring={}[]();.,:<>\"'\\/-*0123 \n", max_size=200))
def test_any_text_is_valid_or_rejected(text: str) -> None:
    _use_or_reject(text)


@MANY
@given(st.sampled_from(NAMES), st.data())
def test_a_damaged_text_is_valid_or_rejected(name: str, data: st.DataObject) -> None:
    text = read_text(name)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    _use_or_reject(text[:start] + data.draw(st.sampled_from(PIECES)) + text[end:])


@MANY
@given(st.sampled_from(NAMES), st.data())
def test_a_damaged_descriptor_is_valid_or_rejected(name: str, data: st.DataObject) -> None:
    raw = bytearray(parse(read_text(name)).descriptor.SerializeToString())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _use_or_reject(base64.b64encode(raw).decode())


@MANY
@given(st.binary(max_size=60))
def test_any_descriptor_is_valid_or_rejected(raw: bytes) -> None:
    _use_or_reject(base64.b64encode(raw).decode())


@MANY
@given(st.binary(max_size=40))
def test_strings_survive_a_round_trip(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    schema = parse(f'syntax = "proto2"; message M {{ optional bytes a = 1 [default = {quote(text)}]; }}')
    assert schema.raw.messages[0].fields[0].default == text
    assert schema.message_class("M")().a == data
