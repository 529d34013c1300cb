import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.registry import records
from rookery.registry.entities import Config, Metadata, Rule, RuleSet, SchemaReference
from rookery.registry.records import Key, Record, SchemaValue, UnreadableSchemaValue, decode

# As Confluent's registry writes them. Its JSON has no spaces, and omits empty fields and the schema type AVRO.
GOLDEN: list[tuple[Record, bytes, bytes | None]] = [
    (
        records.schema_record(SchemaValue(subject="orders-value", version=1, id=7, schema='"string"')),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
        b'{"subject":"orders-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}',
    ),
    (
        records.schema_record(
            SchemaValue(
                subject=":.c:s",
                version=2,
                id=8,
                schema_type="PROTOBUF",
                references=(SchemaReference(name="a.proto", subject="a", version=1),),
                metadata=Metadata(properties={"owner": "me"}),
                rule_set=RuleSet(domain_rules=(Rule(name="r", kind="CONDITION", mode="WRITE", type="CEL"),)),
                schema='syntax = "proto3";\n',
                deleted=True,
            )
        ),
        b'{"keytype":"SCHEMA","subject":":.c:s","version":2,"magic":1}',
        b'{"subject":":.c:s","version":2,"id":8,"schemaType":"PROTOBUF",'
        b'"references":[{"name":"a.proto","subject":"a","version":1}],"metadata":{"properties":{"owner":"me"}},'
        b'"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","mode":"WRITE","type":"CEL","disabled":false}]},'
        b'"schema":"syntax = \\"proto3\\";\\n","deleted":true}',
    ),
    (
        records.schema_tombstone("s", 3),
        b'{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}',
        None,
    ),
    (
        records.config_record("s", Config(alias="t", normalize=True, compatibility_level="FULL_TRANSITIVE")),
        b'{"keytype":"CONFIG","subject":"s","magic":0}',
        b'{"subject":"s","alias":"t","normalize":true,"compatibilityLevel":"FULL_TRANSITIVE"}',
    ),
    (
        records.config_record(None, Config(compatibility_level="NONE")),
        b'{"keytype":"CONFIG","magic":0}',
        b'{"compatibilityLevel":"NONE"}',
    ),
    (records.config_record("s", None), b'{"keytype":"CONFIG","subject":"s","magic":0}', None),
    (
        records.mode_record("s", "IMPORT"),
        b'{"keytype":"MODE","subject":"s","magic":0}',
        b'{"subject":"s","mode":"IMPORT"}',
    ),
    (records.mode_record(None, None), b'{"keytype":"MODE","magic":0}', None),
    (
        records.delete_subject_record("s", 4),
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":4}',
    ),
    (
        records.clear_subject_record("s"),
        b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s"}',
    ),
    (
        records.context_record(".c"),
        b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
        b'{"tenant":"default","context":".c"}',
    ),
    (records.max_id_record(".", 9), b'{"keytype":"NOOP","context":".","magic":0}', b'{"maxId":9}'),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_golden_bytes(record: Record, key: bytes, value: bytes | None) -> None:
    assert record == (key, value)


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_records_survive_a_round_trip(record: Record, key: bytes, value: bytes | None) -> None:
    decoded = decode(*record)
    assert decoded is not None
    assert msgspec.json.encode(decoded[0]) == key
    assert (decoded[1] is None) == (value is None)
    # Fields of later versions are ignored.
    assert decode(key[:-1] + b',"new":1}', None if value is None else value[:-1] + b',"new":{}}') == decoded


def test_fields_of_older_registries() -> None:
    key, value = (
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}',
        b'{"subject":"s","version":1,"id":1,"schema":"x"}',
    )
    assert decode(key, value) == (
        Key("SCHEMA", "s", 1, magic=0),
        SchemaValue(subject="s", version=1, id=1, schema="x"),
    )
    assert decode(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}') == (
        Key("CONFIG"),
        Config(compatibility_level="FULL"),
    )


SCHEMA_KEY = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'


def schema_value(extra: bytes) -> bytes:
    return b'{"subject":"s","version":1,"id":7,"schema":"x",' + extra + b',"deleted":false}'


def test_unknown_kinds_of_rules() -> None:
    rules = b'{"domainRules":[{"name":"r","kind":"NEW","mode":"NEWER","params":{"p":null},"disabled":false}]}'
    decoded = decode(SCHEMA_KEY, schema_value(b'"metadata":{"properties":{"p":null}},"ruleSet":' + rules))
    assert decoded is not None
    assert isinstance(decoded[1], SchemaValue)
    assert decoded[1].metadata == Metadata(properties={"p": None})
    assert msgspec.json.encode(decoded[1].rule_set) == rules


@pytest.mark.parametrize(
    "extra", [b'"metadata":5', b'"ruleSet":{"domainRules":[7]}', b'"metadata":{"sensitive":[null]}']
)
def test_a_schema_is_decoded_without_undecodable_metadata_and_rules(extra: bytes) -> None:
    expected = SchemaValue(subject="s", version=1, id=7, schema="x")
    assert decode(SCHEMA_KEY, schema_value(extra)) == (Key("SCHEMA", "s", 1, magic=1), expected)


@pytest.mark.parametrize(
    "value",
    [
        b'{"subject":"s","version":1,"id":7}',
        b'{"subject":"s","version":0,"id":7,"schema":"x"}',
        schema_value(b'"references":[5]'),
    ],
)
def test_of_an_undecodable_schema_the_id_is_decoded(value: bytes) -> None:
    assert decode(SCHEMA_KEY, value) == (Key("SCHEMA", "s", 1, magic=1), UnreadableSchemaValue(id=7))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (SCHEMA_KEY, b'{"subject":"s","version":1,"id":-1,"schema":"x"}'),
        (SCHEMA_KEY, b'{"subject":"s","version":1,"id":2147483648,"schema":"x"}'),
        (SCHEMA_KEY, b'{"x":' + b"[" * 100_000),
        (b'{"x":' + b"[" * 100_000, b"{}"),
        (b'{"keytype":"NOOP","magic":0}', b'{"maxId":2147483648}'),
        (b"garbage", b"garbage"),
        (b"\xff\xfe", b"{}"),
        (b"[]", b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype":"ASSOC","magic":0}', b"{}"),
        (SCHEMA_KEY, b"{}"),
        (SCHEMA_KEY, b"[]"),
        (SCHEMA_KEY, b"not json"),
        (SCHEMA_KEY, b'{"metadata":"\xff"}'),
        (b'{"keytype":"SCHEMA","subject":5}', None),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"SIDEWAYS"}'),
    ],
)
def test_undecodable_records_are_none(key: bytes, value: bytes | None) -> None:
    assert decode(key, value) is None


@given(st.binary(), st.none() | st.binary())
def test_any_bytes_can_be_read(key: bytes, value: bytes | None) -> None:
    assert decode(key, value) is None
