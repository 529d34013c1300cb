"""The rules of "Schema Resolution" in the specification of Avro 1.12, as pairs of schemas.

Each case has the rule that it tests and the expected findings (kinds and paths); none if the schemas are compatible.
"""

from typing import Any, NamedTuple

from tests.schemas.avro.shapes import array, enum, field, fixed, map_of, one, record

FIELD = "READER_FIELD_MISSING_DEFAULT_VALUE"
TYPE = "TYPE_MISMATCH"
NAME = "NAME_MISMATCH"
SIZE = "FIXED_SIZE_MISMATCH"
SYMBOLS = "MISSING_ENUM_SYMBOLS"
BRANCH = "MISSING_UNION_BRANCH"
AMBIGUOUS = "READER_FIELD_AMBIGUOUS"


class Case(NamedTuple):
    rule: str
    reader: Any
    writer: Any
    found: tuple[tuple[str, str], ...] = ()


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# writer -> readers
PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def _primitives() -> list[Case]:
    cases = []
    for writer in PRIMITIVES:
        for reader in PRIMITIVES:
            if reader == writer:
                cases.append(Case("both schemas are the same primitive type", reader, writer))
            elif reader in PROMOTIONS.get(writer, ()):
                cases.append(Case(f"{writer} is promotable to {reader}", reader, writer))
            else:
                cases.append(Case(f"{writer} is not promotable to {reader}", reader, writer, ((TYPE, "/"),)))
    return cases


COLLECTIONS = [
    Case("arrays: item types match", array("int"), array("int")),
    Case("arrays: item types are resolved", array("long"), array("int")),
    Case("arrays: item types do not match", array("int"), array("long"), ((TYPE, "/items"),)),
    Case("arrays in arrays", array(array("string")), array(array("int")), ((TYPE, "/items/items"),)),
    Case("arrays: item types match by a union", array(["null", "int"]), array("int")),
    Case("arrays: attributes do not matter", {**array("int"), "x": 1}, array("int")),
    Case("an array is no map", array("int"), map_of("int"), ((TYPE, "/"),)),
    Case("an array is no primitive", array("int"), "int", ((TYPE, "/"),)),
    Case("a primitive is no array", "int", array("int"), ((TYPE, "/"),)),
    Case("maps: value types match", map_of("string"), map_of("string")),
    Case("maps: value types are resolved", map_of("double"), map_of("float")),
    Case("maps: value types do not match", map_of("int"), map_of("string"), ((TYPE, "/values"),)),
    Case("maps of arrays", map_of(array("int")), map_of(array("boolean")), ((TYPE, "/values/items"),)),
    Case("arrays of maps", array(map_of("string")), array(map_of("bytes"))),
    Case("a map is no record", map_of("int"), one("int"), ((TYPE, "/"),)),
    Case("a record is no map", one("int"), map_of("int"), ((TYPE, "/"),)),
]

ENUMS = [
    Case("enums: the same", enum("E", "A", "B"), enum("E", "A", "B")),
    Case("enums: the order of symbols does not matter", enum("E", "B", "A"), enum("E", "A", "B")),
    Case("enums: the reader may have more symbols", enum("E", "A", "B", "C"), enum("E", "A", "B")),
    Case(
        "enums: a symbol that the reader does not have is an error",
        enum("E", "A"),
        enum("E", "A", "B"),
        ((SYMBOLS, "/symbols"),),
    ),
    Case("enums: the reader's default replaces unknown symbols", enum("E", "A", default="A"), enum("E", "A", "B")),
    Case(
        "enums: the writer's default does not replace symbols",
        enum("E", "A"),
        enum("E", "A", "B", default="A"),
        ((SYMBOLS, "/symbols"),),
    ),
    Case("enums: unqualified names match", enum("E", "A", namespace="a"), enum("E", "A", namespace="b")),
    Case("enums: names do not match", enum("E", "A"), enum("F", "A"), ((NAME, "/name"),)),
    Case("enums: an alias matches", enum("E", "A", aliases=["F"]), enum("F", "A")),
    Case(
        "enums: both name and symbols",
        enum("E", "A"),
        enum("F", "B"),
        ((NAME, "/name"), (SYMBOLS, "/symbols")),
    ),
    Case(
        "enums: in a field",
        one(enum("E", "A")),
        one(enum("E", "A", "B")),
        ((SYMBOLS, "/fields/0/type/symbols"),),
    ),
    Case(
        "enums: a field's default is not the enum's",
        one(enum("E", "A"), default="A"),
        one(enum("E", "A", "B")),
        ((SYMBOLS, "/fields/0/type/symbols"),),
    ),
    Case(
        "enums: an enum's default is no field's default",
        record("R", field("f", enum("E", "A", default="A"))),
        record("R"),
        ((TYPE, "/fields/0/type"),),
    ),
    Case("enums: a string is no enum", enum("E", "A"), "string", ((TYPE, "/"),)),
    Case("enums: an enum is no string", "string", enum("E", "A"), ((TYPE, "/"),)),
    Case("enums: an enum is no int", "int", enum("E", "A"), ((TYPE, "/"),)),
]

FIXEDS = [
    Case("fixed: the same", fixed("F", 4), fixed("F", 4)),
    Case("fixed: unqualified names match", fixed("F", 4, namespace="a"), fixed("F", 4, namespace="b")),
    Case("fixed: sizes do not match", fixed("F", 4), fixed("F", 5), ((SIZE, "/size"),)),
    Case("fixed: names do not match", fixed("F", 4), fixed("G", 4), ((NAME, "/name"),)),
    Case("fixed: both", fixed("F", 4), fixed("G", 5), ((NAME, "/name"), (SIZE, "/size"))),
    Case("fixed: an alias matches", fixed("F", 4, aliases=["G"]), fixed("G", 4)),
    Case("fixed: an alias does not change the size", fixed("F", 4, aliases=["G"]), fixed("G", 5), ((SIZE, "/size"),)),
    Case("fixed: is no bytes", "bytes", fixed("F", 4), ((TYPE, "/"),)),
    Case("fixed: bytes are not", fixed("F", 4), "bytes", ((TYPE, "/"),)),
    Case("fixed: in a map", map_of(fixed("F", 4)), map_of(fixed("F", 5)), ((SIZE, "/values/size"),)),
]

RECORDS = [
    Case("records: the same", one("int"), one("int")),
    Case("records: without fields", record("R"), record("R")),
    Case("records: unqualified names match", record("R", namespace="a"), record("R", namespace="b")),
    Case("records: names do not match", record("R"), record("S"), ((NAME, "/name"),)),
    Case(
        "records: the order of fields does not matter",
        record("R", field("a", "int"), field("b", "string")),
        record("R", field("b", "string"), field("a", "int")),
    ),
    Case(
        "records: a field only in the writer is ignored",
        record("R", field("a", "int")),
        record("R", field("a", "int"), field("b", "int")),
    ),
    Case("records: all of the writer's fields may be ignored", record("R"), one("int")),
    Case("records: a field only in the reader needs a default", one("int"), record("R"), ((FIELD, "/fields/0"),)),
    Case("records: a field only in the reader takes its default", one("int", default=1), record("R")),
    Case("records: null is a default", one(["null", "int"], default=None), record("R")),
    Case("records: a nullable field needs a default too", one(["null", "int"]), record("R"), ((FIELD, "/fields/0"),)),
    Case("records: null needs a default too", one("null"), record("R"), ((FIELD, "/fields/0"),)),
    Case("records: an empty array is a default", one(array("int"), default=[]), record("R")),
    Case(
        "records: every missing field is named",
        record("R", field("a", "int"), field("b", "int", default=0), field("c", "string")),
        record("R"),
        ((FIELD, "/fields/0"), (FIELD, "/fields/2")),
    ),
    Case("records: the writer's default does not matter", one("int"), one("int", default=1)),
    Case("records: field types are resolved", one("long"), one("int")),
    Case("records: field types do not match", one("int"), one("string"), ((TYPE, "/fields/0/type"),)),
    Case(
        "records: a default does not help where types do not match",
        one("int", default=1),
        one("string"),
        ((TYPE, "/fields/0/type"),),
    ),
    Case(
        "records: every difference is named",
        record("R", field("a", "int"), field("b", "int"), field("c", "int")),
        record("R", field("a", "string"), field("b", "long")),
        ((TYPE, "/fields/0/type"), (TYPE, "/fields/1/type"), (FIELD, "/fields/2")),
    ),
    Case(
        "records: the path is the reader's",
        record("R", field("x", "int", default=0), field("a", "int")),
        record("R", field("a", "string")),
        ((TYPE, "/fields/1/type"),),
    ),
    Case("records: docs do not matter", one("int", doc="new"), one("int", doc="old")),
    Case("records: orders do not matter", one("int", order="ignore"), one("int")),
    Case("records: other attributes do not matter", record("R", x=1), record("R", y=2)),
    Case("records: logical types do not matter", one({"type": "int", "logicalType": "date"}), one("int")),
    Case("records: an error is a record", record("R", type="error"), record("R")),
    Case("records: names of fields have a case", one("int"), record("R", field("F", "int")), ((FIELD, "/fields/0"),)),
    Case(
        "records: in records",
        one(record("S", field("g", "int"))),
        one(record("S", field("g", "string"))),
        ((TYPE, "/fields/0/type/fields/0/type"),),
    ),
    Case(
        "records: names of inner ones do not match",
        one(record("S")),
        one(record("T")),
        ((NAME, "/fields/0/type/name"),),
    ),
    Case(
        "records: a name and its fields",
        record("R", field("f", "int")),
        record("S"),
        ((NAME, "/name"), (FIELD, "/fields/0")),
    ),
    Case("records: is no enum", enum("R", "A"), record("R"), ((TYPE, "/"),)),
    Case("records: is no fixed", record("R"), fixed("R", 1), ((TYPE, "/"),)),
    Case("records: is no primitive", "string", record("R"), ((TYPE, "/"),)),
]

ALIASES = [
    Case("aliases: of a record", record("R", aliases=["S"]), record("S")),
    Case("aliases: the writer's do not count", record("R"), record("S", aliases=["R"]), ((NAME, "/name"),)),
    Case(
        "aliases: are in the namespace of their type",
        record("R", namespace="a", aliases=["S"]),
        record("S", namespace="a"),
    ),
    Case(
        "aliases: another namespace is another name",
        record("R", namespace="a", aliases=["S"]),
        record("S", namespace="b"),
        ((NAME, "/name"),),
    ),
    Case("aliases: with their namespace", record("R", namespace="a", aliases=["b.S"]), record("S", namespace="b")),
    Case("aliases: one of several", record("R", aliases=["Q", "S"]), record("S")),
    Case("aliases: without namespace", record("R", namespace="a", aliases=[".S"]), record("S")),
    Case("aliases: of a field", record("R", field("g", "int", aliases=["f"])), one("int")),
    Case(
        "aliases: of a field whose type does not match",
        record("R", field("g", "int", aliases=["f"])),
        one("string"),
        ((TYPE, "/fields/0/type"),),
    ),
    Case(
        "aliases: the writer's fields' do not count",
        record("R", field("g", "int")),
        record("R", field("f", "int", aliases=["g"])),
        ((FIELD, "/fields/0"),),
    ),
    Case("aliases: of a field that the writer does not have", one("int", aliases=["g"]), one("int")),
    Case("aliases: a default helps", record("R", field("g", "int", aliases=["h"], default=0)), one("int")),
    Case(
        "aliases: two fields of the writer for one",
        record("R", field("g", "int", aliases=["f"])),
        record("R", field("f", "int"), field("g", "int")),
        ((AMBIGUOUS, "/fields/0"),),
    ),
    Case(
        "aliases: one field of the writer for two",
        record("R", field("f", "int"), field("g", "int", aliases=["f"])),
        one("int"),
    ),
]

UNIONS = [
    Case("unions: both, the same", ["null", "int"], ["null", "int"]),
    Case("unions: both, in another order", ["int", "null"], ["null", "int"]),
    Case("unions: both, the reader has more", ["null", "int", "string"], ["null", "int"]),
    Case("unions: both, the reader has fewer", ["null"], ["null", "int"], ((BRANCH, "/1"),)),
    Case("unions: both, every branch is named", ["boolean"], ["null", "int"], ((BRANCH, "/0"), (BRANCH, "/1"))),
    Case("unions: both, a branch is promoted", ["null", "long"], ["null", "int"]),
    Case("unions: both, a branch is not", ["null", "int"], ["null", "long"], ((BRANCH, "/1"),)),
    Case("unions: both empty", [], []),
    Case("unions: the writer is empty", "int", []),
    Case("unions: the reader is empty", [], "int", ((BRANCH, "/"),)),
    Case("unions: both, in a field", one(["null"]), one(["null", "int"]), ((BRANCH, "/fields/0/type/1"),)),
    Case("unions: reader, a branch is the same", ["null", "int"], "int"),
    Case("unions: reader, a branch by promotion", ["null", "double"], "int"),
    Case("unions: reader, no branch", ["null", "int"], "string", ((BRANCH, "/"),)),
    Case("unions: reader, in a field", one(["null", "int"], default=None), one("int")),
    Case("unions: reader, no branch in a field", one(["null", "int"]), one("string"), ((BRANCH, "/fields/0/type"),)),
    Case("unions: reader, a record by its name", [record("S"), record("R")], record("R")),
    Case("unions: reader, a record by its alias", [record("S", aliases=["R"])], record("R")),
    Case("unions: reader, no record of this name", [record("S"), record("T")], record("R"), ((BRANCH, "/"),)),
    Case("unions: reader, a record that does not fit", ["null", one("int")], one("string"), ((BRANCH, "/"),)),
    Case("unions: writer, the reader reads all", "long", ["int", "long"]),
    Case("unions: writer, the reader reads not all", "int", ["int", "string"], ((TYPE, "/1"),)),
    Case("unions: writer, null is in the way", one("int"), one(["null", "int"]), ((TYPE, "/fields/0/type/0"),)),
    Case(
        "unions: writer, a default does not help",
        one("int", default=0),
        one(["null", "int"]),
        ((TYPE, "/fields/0/type/0"),),
    ),
    Case("unions: writer, all wrong", "boolean", ["int", "string"], ((TYPE, "/0"), (TYPE, "/1"))),
    Case("unions: writer with one branch", "int", ["int"]),
    Case("unions: reader with one branch", ["int"], "int"),
    Case("unions: in arrays", array(["null", "int"]), array(["null", "string"]), ((BRANCH, "/items/1"),)),
    Case("unions: of arrays", ["null", array("int")], ["null", array("string")], ((BRANCH, "/1"),)),
    Case(
        "unions: a record in both does not fit",
        ["null", one("int")],
        ["null", one("string")],
        ((BRANCH, "/1"),),
    ),
    Case(
        "unions: an enum in both does not fit",
        one(["null", enum("E", "A")]),
        one(["null", enum("E", "A", "B")]),
        ((BRANCH, "/fields/0/type/1"),),
    ),
    Case(
        "unions: a record without name in the union but of the same shape",
        [record("a.R", field("f", "int"))],
        [record("b.R", field("f", "int"))],
    ),
]

NODE = record("Node", field("value", "int"), field("next", ["null", "Node"]))
NODE_OF_STRINGS = record("Node", field("value", "string"), field("next", ["null", "Node"]))
TREE = record("Tree", field("children", array("Tree")))
TREE_OF_MAPS = record("Tree", field("children", map_of("Tree")))


def _relying(kind: str) -> Any:
    """Return a schema in which G relies on E, E on F, and F on A, whose differing field is compared last."""
    f = record("F", field("e", record("E", field("f", "F"))), field("a", "A"))
    return [record("A", field("f", f), field("g", record("G", field("e", "E"))), field("v", kind)), "G"]


RECURSIVE = [
    Case("recursive: the same list", NODE, NODE),
    Case("recursive: the same tree", TREE, TREE),
    Case("recursive: a value does not match", NODE, NODE_OF_STRINGS, ((TYPE, "/fields/0/type"),)),
    Case("recursive: the recursion does not match", TREE, TREE_OF_MAPS, ((TYPE, "/fields/0/type"),)),
    Case(
        "recursive: a field more",
        record("Tree", field("children", array("Tree")), field("n", "int", default=0)),
        TREE,
    ),
    Case(
        "recursive: a field without default more",
        record("Tree", field("children", array("Tree")), field("n", "int")),
        TREE,
        ((FIELD, "/fields/1"),),
    ),
    Case(
        "recursive: to a different depth",
        NODE,
        record(
            "Node",
            field("value", "int"),
            field("next", ["null", record("x.Node", field("value", "int"), field("next", "null"))]),
        ),
    ),
    Case(
        "recursive: through another type",
        record("A", field("b", record("B", field("a", ["null", "A"])))),
        record("A", field("b", record("B", field("a", ["null", "A"]), field("c", "int")))),
    ),
    Case(
        "recursive: a wrong assumption of one branch does not affect another",
        [
            record("Node", field("next", ["null", record("Link", field("node", ["null", "Node"]))]), field("v", "int")),
            "Link",
        ],
        [
            record(
                "Node", field("next", ["null", record("Link", field("node", ["null", "Node"]))]), field("v", "string")
            ),
            "Link",
        ],
        ((BRANCH, "/0"), (BRANCH, "/1")),
    ),
    Case(
        "recursive: results that indirectly rely on a wrong assumption are discarded",
        _relying("int"),
        _relying("string"),
        ((BRANCH, "/0"), (BRANCH, "/1")),
    ),
    Case(
        "named types: used twice, the path of the first use is reported twice",
        record("R", field("a", record("S", field("x", "int"))), field("b", "S")),
        record("R", field("a", record("S", field("x", "string"))), field("b", "S")),
        ((TYPE, "/fields/0/type/fields/0/type"), (TYPE, "/fields/0/type/fields/0/type")),
    ),
]

CASES = [*_primitives(), *COLLECTIONS, *ENUMS, *FIXEDS, *RECORDS, *ALIASES, *UNIONS, *RECURSIVE]
