"""Texts of schemas with their canonical text, and texts that are invalid. Java's library has the same results."""

from typing import NamedTuple


class Canonical(NamedTuple):
    rule: str
    text: str
    canonical: str


class Invalid(NamedTuple):
    rule: str
    text: str
    message: str


CANONICAL = [
    Canonical("a primitive", '"string"', '"string"'),
    Canonical("a primitive as an object", '{"type": "string"}', '"string"'),
    Canonical("white space is dropped", ' [ "null" ,\n"int" ] ', '["null","int"]'),
    Canonical("comments are dropped", '/* a "b" */ ["null", // c\n "int"]', '["null","int"]'),
    Canonical("no comment in a text", '{"type":"int","x":"a//b"}', '{"type":"int","x":"a//b"}'),
    Canonical("a primitive keeps attributes", '{"a":1,"type":"int","b":[]}', '{"type":"int","a":1,"b":[]}'),
    Canonical(
        "reserved attributes without meaning are dropped", '{"type":"int","name":"x","doc":"y","size":1}', '"int"'
    ),
    Canonical(
        "a logical type",
        '{"precision":4,"logicalType":"decimal","type":"bytes","scale":2}',
        '{"type":"bytes","precision":4,"logicalType":"decimal","scale":2}',
    ),
    Canonical("an unknown logical type", '{"type":"int","logicalType":"mine"}', '{"type":"int","logicalType":"mine"}'),
    Canonical("an array", '{"items":"int","type":"array","x":1}', '{"type":"array","items":"int","x":1}'),
    Canonical("a map", '{"values":{"type":"long"},"type":"map"}', '{"type":"map","values":"long"}'),
    Canonical(
        "an array's default is an attribute",
        '{"type":"array","items":"int","default":[]}',
        '{"type":"array","items":"int","default":[]}',
    ),
    Canonical(
        "a record",
        '{"namespace":"n","aliases":["B"],"x":1,"fields":[],"doc":"d","name":"A","type":"record"}',
        '{"type":"record","name":"A","namespace":"n","doc":"d","fields":[],"x":1,"aliases":["B"]}',
    ),
    Canonical("an error", '{"name":"A","type":"error","fields":[]}', '{"type":"error","name":"A","fields":[]}'),
    Canonical(
        "a field",
        '{"type":"record","name":"A","fields":[{"x":1,"aliases":["g","g"],"order":"DESCENDING","default":1,"doc":"",'
        '"type":"int","name":"f"}]}',
        '{"type":"record","name":"A","fields":[{"name":"f","type":"int","doc":"","default":1,"order":"descending",'
        '"aliases":["g"],"x":1}]}',
    ),
    Canonical(
        "the default order of a field is dropped",
        '{"type":"record","name":"A","fields":[{"name":"f","type":"int","order":"ascending","aliases":[]}]}',
        '{"type":"record","name":"A","fields":[{"name":"f","type":"int"}]}',
    ),
    Canonical(
        "null is a default",
        '{"type":"record","name":"A","fields":[{"name":"f","type":["null","int"],"default":null}]}',
        '{"type":"record","name":"A","fields":[{"name":"f","type":["null","int"],"default":null}]}',
    ),
    Canonical(
        "an enum",
        '{"default":"X","symbols":["X","Y"],"name":"E","type":"enum","x":1,"doc":"d"}',
        '{"type":"enum","name":"E","doc":"d","symbols":["X","Y"],"default":"X","x":1}',
    ),
    Canonical(
        "an enum without symbols", '{"type":"enum","name":"E","symbols":[]}', '{"type":"enum","name":"E","symbols":[]}'
    ),
    Canonical(
        "a fixed",
        '{"size":16,"name":"F","type":"fixed","aliases":["a.G","H"]}',
        '{"type":"fixed","name":"F","size":16,"aliases":["a.G","H"]}',
    ),
    Canonical(
        "a full name",
        '{"type":"fixed","name":"a.b.F","namespace":"c","size":1}',
        '{"type":"fixed","name":"F","namespace":"a.b","size":1}',
    ),
    Canonical(
        "an alias is written relative to its type",
        '{"type":"fixed","name":"a.F","size":1,"aliases":["a.G","b.G","H"]}',
        '{"type":"fixed","name":"F","namespace":"a","size":1,"aliases":["G","b.G","H"]}',
    ),
    Canonical(
        "a namespace is inherited",
        '{"type":"record","name":"a.R","fields":[{"name":"f","type":{"type":"fixed","name":"F","namespace":"a","size":1}}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F","size":1}}]}',
    ),
    Canonical(
        "no namespace inside of one",
        '{"type":"record","name":"a.R","fields":[{"name":"f","type":{"type":"fixed","name":"F","namespace":"","size":1}}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F","namespace":"","size":1}}]}',
    ),
    Canonical(
        "a type is named from its second use on",
        '{"type":"record","name":"a.R","fields":[{"name":"f","type":{"type":"fixed","name":"b.F","size":1}},'
        '{"name":"g","type":"b.F"},{"name":"h","type":["null","a.R"]},{"name":"i","type":{"type":"R"}}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F",'
        '"namespace":"b","size":1}},{"name":"g","type":"b.F"},{"name":"h","type":["null","R"]},{"name":"i","type":"R"}]}',
    ),
    Canonical(
        "a name without namespace is found from inside of one",
        '[{"type":"fixed","name":"F","size":1},{"type":"record","name":"a.R","fields":[{"name":"f","type":"F"}]}]',
        '[{"type":"fixed","name":"F","size":1},{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":"F"}]}]',
    ),
    Canonical(
        "a name that is also a type's is written in full",
        '{"type":"record","name":"a.map","fields":[{"name":"f","type":["null","a.map"]}]}',
        '{"type":"record","name":"map","namespace":"a","fields":[{"name":"f","type":["null","a.map"]}]}',
    ),
    Canonical(
        "a namespace is not checked",
        '{"type":"fixed","name":"F","namespace":"my-company.x","size":1}',
        '{"type":"fixed","name":"F","namespace":"my-company.x","size":1}',
    ),
    Canonical(
        "a doc that is not a string is dropped",
        '{"type":"fixed","name":"F","doc":1,"size":1}',
        '{"type":"fixed","name":"F","size":1}',
    ),
    Canonical(
        "the last of two attributes counts, at the position of the first",
        '{"type":"int","a":1,"b":2,"a":3}',
        '{"type":"int","a":3,"b":2}',
    ),
    Canonical(
        "numbers are written as Java does",
        '{"type":"int","x":[1.0,1e3,1E7,12345678.9,0.001,0.00012,-1.5e-9,1e300,-0.0,12345678901234567890,5]}',
        '{"type":"int","x":[1.0,1000.0,1.0E7,1.23456789E7,0.001,1.2E-4,-1.5E-9,1.0E300,-0.0,12345678901234567890,5]}',
    ),
    Canonical(
        "texts are written as Java does",
        '{"type":"int","x":"\\u0001\\u001f\\u007f\\n\\t\\"\\\\\\/\\u00e9\\u2028\\ud83d\\ude00"}',
        '{"type":"int","x":"\\u0001\\u001F\x7f\\n\\t\\"\\\\/\u00e9\u2028\U0001f600"}',
    ),
    Canonical(
        "a text is a default of a float",
        '{"type":"record","name":"A","fields":[{"name":"f","type":"float","default":"1.5"},'
        '{"name":"g","type":"double","default":"NaN"},{"name":"h","type":"double","default":"-Infinity"}]}',
        '{"type":"record","name":"A","fields":[{"name":"f","type":"float","default":1.5},'
        '{"name":"g","type":"double","default":"NaN"},{"name":"h","type":"double","default":"-Infinity"}]}',
    ),
    Canonical(
        "a default may leave out what has a default",
        '{"type":"record","name":"A","fields":[{"name":"f","type":{"type":"record","name":"B","fields":['
        '{"name":"x","type":"int","default":1},{"name":"y","type":["int","null"]}]},"default":{"y":2}}]}',
        '{"type":"record","name":"A","fields":[{"name":"f","type":{"type":"record","name":"B","fields":['
        '{"name":"x","type":"int","default":1},{"name":"y","type":["int","null"]}]},"default":{"y":2}}]}',
    ),
]


def _field(field: str) -> str:
    return f'{{"type":"record","name":"A","fields":[{field}]}}'


INVALID = [
    Invalid("nothing", "", "not JSON"),
    Invalid("no JSON", "{", "not JSON"),
    Invalid("a bare word", "string", "not JSON"),
    Invalid("more than one schema", '"int" "string"', "not JSON"),
    Invalid("an open comment", '"int" /* x', "not JSON"),
    Invalid("a number", "1", "Schema not yet supported: 1"),
    Invalid("null", "null", "Schema not yet supported: null"),
    Invalid("no type", "{}", "No type: {}"),
    Invalid("a type that is an object", '{"type":{"type":"int"}}', "No type"),
    Invalid("an unknown name", '"strnig"', 'Undefined name: "strnig" (at /)'),
    Invalid("an unknown type", '{"type":"strnig"}', 'Undefined name: "strnig"'),
    Invalid("types have a case", '"String"', "Undefined name"),
    Invalid("an array without items", '{"type":"array"}', "Array has no items type"),
    Invalid("a map without values", '{"type":"map"}', "Map has no values type"),
    Invalid("an unknown name far inside", '{"type":"map","values":{"type":"array","items":"X"}}', "(at /values/items)"),
    Invalid("a record without name", '{"type":"record","fields":[]}', "No name in schema"),
    Invalid("a name that is no text", '{"type":"record","name":1,"fields":[]}', "No name in schema"),
    Invalid("a record without fields", '{"type":"record","name":"A"}', "Record has no fields"),
    Invalid("fields that are no list", '{"type":"record","name":"A","fields":{}}', "Record has no fields"),
    Invalid("a field that is a text", _field('"f"'), "No field name"),
    Invalid("a field without name", _field('{"type":"int"}'), "No field name"),
    Invalid("a field without type", _field('{"name":"f"}'), "No field type"),
    Invalid("a field of an unknown type", _field('{"name":"f","type":"X"}'), "(at /fields/0/type)"),
    Invalid(
        "two fields of the same name",
        _field('{"name":"f","type":"int"},{"name":"f","type":"int"}'),
        "Duplicate field f in record A (at /fields/1)",
    ),
    Invalid("an unknown order", _field('{"name":"f","type":"int","order":"up"}'), "Invalid order"),
    Invalid("an order that is no text", _field('{"name":"f","type":"int","order":1}'), "Invalid order"),
    Invalid("aliases that are no list", _field('{"name":"f","type":"int","aliases":"g"}'), "aliases not an array"),
    Invalid("an alias that is no text", '{"type":"fixed","name":"F","size":1,"aliases":[1]}', "alias not a string: 1"),
    Invalid("an alias that is no name", '{"type":"fixed","name":"F","size":1,"aliases":["a-b"]}', "Illegal character"),
    Invalid("an empty name", '{"type":"fixed","name":"","size":1}', "Empty name"),
    Invalid("a name with a digit in front", '{"type":"fixed","name":"1F","size":1}', "Illegal initial character: 1F"),
    Invalid("a name with a hyphen", '{"type":"fixed","name":"F-1","size":1}', "Illegal character in: F-1"),
    Invalid("a field's name with a dot", _field('{"name":"a.b","type":"int"}'), "Illegal character in: a.b"),
    Invalid("a name of a primitive type", '{"type":"fixed","name":"int","size":1}', "named after primitives: int"),
    Invalid("an enum without symbols", '{"type":"enum","name":"E"}', "Enum has no symbols"),
    Invalid("a symbol that is no text", '{"type":"enum","name":"E","symbols":[1]}', "Null name"),
    Invalid("a symbol that is no name", '{"type":"enum","name":"E","symbols":["a b"]}', "Illegal character in: a b"),
    Invalid("a symbol twice", '{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate enum symbol: A"),
    Invalid(
        "a default that is no symbol",
        '{"type":"enum","name":"E","symbols":["A","B"],"default":"C"}',
        "The Enum Default: C is not in the enum symbol set: [A, B]",
    ),
    Invalid("a fixed without size", '{"type":"fixed","name":"F"}', "Invalid or no size"),
    Invalid("a size that is no integer", '{"type":"fixed","name":"F","size":1.0}', "Invalid or no size"),
    Invalid("a size that is a text", '{"type":"fixed","name":"F","size":"1"}', "Invalid or no size"),
    Invalid("a negative size", '{"type":"fixed","name":"F","size":-1}', "Invalid or no size"),
    Invalid("a huge size", '{"type":"fixed","name":"F","size":4294967296}', "Invalid or no size"),
    Invalid("a union in a union", '["null",["int"]]', "Nested union"),
    Invalid("a type twice in a union", '["int","null","int"]', "Duplicate in union:int"),
    Invalid(
        "two arrays in a union",
        '[{"type":"array","items":"int"},{"type":"array","items":"string"}]',
        "Duplicate in union:array",
    ),
    Invalid("logical types do not distinguish branches", '["int",{"type":"int","logicalType":"date"}]', "Duplicate in"),
    Invalid(
        "a name defined twice",
        _field(
            '{"name":"f","type":{"type":"fixed","name":"F","size":1}},{"name":"g","type":{"type":"fixed","name":"F","size":2}}'
        ),
        "Can't redefine: F (at /fields/1/type)",
    ),
    Invalid(
        "a name defined inside of itself",
        _field('{"name":"f","type":{"type":"fixed","name":"A","size":1}}'),
        "Can't redefine: A",
    ),
]

# The type of a field, a valid default and an invalid one.
DEFAULTS = [
    ('"null"', "null", "0"),
    ('"boolean"', "false", '"false"'),
    ('"int"', "-2147483648", "2147483648"),
    ('"int"', "1", "1.0"),
    ('"int"', "1", "true"),
    ('"long"', "9223372036854775807", "9223372036854775808"),
    ('"long"', "0", '"0"'),
    ('"float"', "1", "null"),
    ('"float"', "1.5", '"one"'),
    ('"double"', "1e100", "true"),
    ('"bytes"', '"\\u00ff"', "1"),
    ('"string"', '""', "null"),
    ('{"type":"enum","name":"E","symbols":["X"]}', '"X"', "0"),
    ('{"type":"fixed","name":"F","size":1}', '"a"', "1"),
    ('{"type":"array","items":"int"}', "[1,2]", '[1,"2"]'),
    ('{"type":"array","items":"int"}', "[]", "{}"),
    ('{"type":"map","values":"int"}', '{"a":1}', '{"a":null}'),
    ('{"type":"map","values":"int"}', "{}", "[]"),
    ('["null","int"]', "null", "{}"),
    ('["int","null"]', "1", '"1"'),
    ('{"type":"record","name":"B","fields":[{"name":"x","type":"int"}]}', '{"x":1}', "{}"),
    ('{"type":"record","name":"B","fields":[{"name":"x","type":"int"}]}', '{"x":1,"y":2}', '{"x":"1"}'),
    ('{"type":"record","name":"B","fields":[{"name":"x","type":"int","default":3}]}', "{}", "null"),
]

NORMAL = [
    Canonical(
        "attributes are sorted",
        '{"type":"int","z":{"b":1,"a":[{"d":1,"c":2}]},"a":2}',
        '{"type":"int","a":2,"z":{"a":[{"c":2,"d":1}],"b":1}}',
    ),
    Canonical(
        "a logical type comes first",
        '{"type":"bytes","scale":2,"a":1,"precision":4,"logicalType":"decimal"}',
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2,"a":1}',
    ),
    Canonical(
        "a scale of zero is not a part of it",
        '{"type":"bytes","scale":0,"a":1,"precision":4,"logicalType":"decimal"}',
        '{"type":"bytes","logicalType":"decimal","precision":4,"a":1,"scale":0}',
    ),
    Canonical(
        "an invalid logical type does not come first",
        '{"type":"string","precision":4,"logicalType":"decimal","a":1}',
        '{"type":"string","a":1,"logicalType":"decimal","precision":4}',
    ),
    Canonical(
        "a decimal without precision does not come first",
        '{"type":"bytes","logicalType":"decimal","a":1}',
        '{"type":"bytes","a":1,"logicalType":"decimal"}',
    ),
    Canonical(
        "a decimal that is too large does not come first",
        '{"type":"fixed","name":"F","size":2,"logicalType":"decimal","a":1,"precision":5}',
        '{"type":"fixed","name":"F","size":2,"a":1,"logicalType":"decimal","precision":5}',
    ),
    Canonical(
        "a valid decimal comes first",
        '{"type":"fixed","name":"F","size":2,"a":1,"logicalType":"decimal","precision":4}',
        '{"type":"fixed","name":"F","size":2,"logicalType":"decimal","precision":4,"a":1}',
    ),
    Canonical("a date", '{"type":"int","a":1,"logicalType":"date"}', '{"type":"int","logicalType":"date","a":1}'),
    Canonical(
        "a date of the wrong type",
        '{"type":"long","a":1,"logicalType":"date"}',
        '{"type":"long","a":1,"logicalType":"date"}',
    ),
    Canonical(
        "a time",
        '{"type":"long","a":1,"logicalType":"timestamp-millis"}',
        '{"type":"long","logicalType":"timestamp-millis","a":1}',
    ),
    Canonical("a uuid", '{"type":"string","a":1,"logicalType":"uuid"}', '{"type":"string","logicalType":"uuid","a":1}'),
    Canonical(
        "an unknown logical type",
        '{"type":"int","logicalType":"mine","a":1}',
        '{"type":"int","a":1,"logicalType":"mine"}',
    ),
    Canonical(
        "an empty doc is dropped",
        '{"type":"fixed","name":"F","doc":"","size":1}',
        '{"type":"fixed","name":"F","size":1}',
    ),
    Canonical(
        "aliases are sorted",
        '{"type":"fixed","name":"b.F","size":1,"aliases":["Z","a.Y","X"]}',
        '{"type":"fixed","name":"F","namespace":"b","size":1,"aliases":["a.Y","X","Z"]}',
    ),
    Canonical(
        "an error is a record", '{"type":"error","name":"A","fields":[]}', '{"type":"record","name":"A","fields":[]}'
    ),
    Canonical(
        "fields",
        _field('{"z":1,"name":"f","type":"int","doc":"","order":"ignore","aliases":["b","a"],"a":2}'),
        _field('{"name":"f","type":"int","doc":"","order":"ignore","aliases":["a","b"],"a":2,"z":1}'),
    ),
    Canonical(
        "defaults of floats have a point",
        _field(
            '{"name":"f","type":"double","default":1},{"name":"g","type":"float","default":16777217},{"name":"h","type":"long","default":1}'
        ),
        _field(
            '{"name":"f","type":"double","default":1.0},{"name":"g","type":"float","default":1.6777216E7},{"name":"h","type":"long","default":1}'
        ),
    ),
    Canonical(
        "defaults of floats have 32 bits",
        _field('{"name":"f","type":"float","default":0.123456789}'),
        _field('{"name":"f","type":"float","default":0.12345679}'),
    ),
    Canonical(
        "defaults of floats that are too large",
        _field('{"name":"f","type":"float","default":-1e300}'),
        _field('{"name":"f","type":"float","default":"-Infinity"}'),
    ),
    Canonical(
        "defaults inside of defaults",
        _field(
            '{"name":"f","type":{"type":"map","values":{"type":"array","items":["double","null"]}},"default":{"b":[1],"a":[]}}'
        ),
        _field(
            '{"name":"f","type":{"type":"map","values":{"type":"array","items":["double","null"]}},"default":{"a":[],"b":[1.0]}}'
        ),
    ),
    Canonical(
        "defaults of records",
        _field(
            '{"name":"f","type":{"type":"record","name":"B","fields":[{"name":"y","type":"float"},{"name":"x","type":"bytes"}]},"default":{"y":1,"x":"\\u00ff"}}'
        ),
        _field(
            '{"name":"f","type":{"type":"record","name":"B","fields":[{"name":"y","type":"float"},{"name":"x","type":"bytes"}]},"default":{"x":"\u00ff","y":1.0}}'
        ),
    ),
    Canonical(
        "enums",
        '{"type":"enum","name":"E","z":1,"symbols":["B","A"],"default":"A","doc":"d","a":1}',
        '{"type":"enum","name":"E","doc":"d","symbols":["B","A"],"default":"A","a":1,"z":1}',
    ),
]
