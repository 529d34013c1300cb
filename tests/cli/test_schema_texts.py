import pytest

from rookery.cli.schema_texts import explain_message, readable
from rookery.serdes.entities import Schema


@pytest.mark.parametrize(
    ("message", "explained"),
    [
        (
            "{errorType:'NAME_MISMATCH', description:'The name of 'x' has changed (path '/name')', additionalInfo:'y'}",
            "The name of 'x' has changed (path '/name') (NAME_MISMATCH)",
        ),
        ("{errorType:'A', description:'no more', }", "{errorType:'A', description:'no more', }"),
        (
            """{errorType:"TYPE_CHANGED", description:"The type at path '#/a' changed'}""",
            "The type at path '#/a' changed (TYPE_CHANGED)",
        ),
        ("{oldSchemaVersion: 3}", None),
        ("{oldSchema: '\"string\"'}", None),
        ("{validateFields: 'false', compatibility: 'FULL'}", None),
        ("Incompatible because of different schema type", "Incompatible because of different schema type"),
    ],
)
def test_messages_become_sentences(message: str, explained: str | None) -> None:
    assert explain_message(message) == explained


def test_schemas_on_several_lines() -> None:
    assert readable(Schema('{"type":"record"}')) == '{\n  "type": "record"\n}'
    assert readable(Schema("{", "JSON")) == "{"
    assert readable(Schema('syntax = "proto3";\n', "PROTOBUF")) == 'syntax = "proto3";'
