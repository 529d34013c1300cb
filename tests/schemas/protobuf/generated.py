"""Hypothesis strategies for valid .proto texts."""

from hypothesis import strategies as st

NAMES = ("alpha", "beta_2", "Gamma", "message", "string", "optional", "_x", "to", "group", "map")
SCALARS = ("double", "float", "int32", "int64", "uint32", "sint64", "fixed32", "sfixed64", "bool", "string", "bytes")
OPTIONS = (
    "deprecated = true",
    "deprecated = false",
    'json_name = "it\'s \\303\\251 \\001 TAG"',
    "(not.known) = { a: [1, 'x'] b { c: -1.5e3 } }",
)
KEYS = ("int32", "string", "bool", "sfixed64")


@st.composite
def fields(draw: st.DrawFn, tag: int, types: tuple[str, ...], label: str) -> str:
    type_name = draw(st.sampled_from(types))
    chosen = draw(st.lists(st.sampled_from(OPTIONS), unique_by=lambda each: each.split()[0], max_size=3))
    brackets = f" [{', '.join(chosen)}]".replace("TAG", str(tag)) if chosen else ""
    name = draw(st.sampled_from(("field_", "f", "Field"))) + str(tag)
    if label == "map":
        return f"map<{draw(st.sampled_from(KEYS))}, {type_name}> {name} = {tag}{brackets};"
    return f"{label} {type_name} {name} = {tag}{brackets};"


@st.composite
def bodies(draw: st.DrawFn, types: tuple[str, ...], labels: tuple[str, ...], depth: int) -> str:
    """Draw the body of a message, with unique tags and names."""
    tags = draw(st.lists(st.integers(1, 18_999), unique=True, max_size=6))
    split = draw(st.integers(0, len(tags)))
    own = ("Inner0", "Kind0") if depth else ("Kind0",)
    parts = ["enum Kind0 { ZERO0 = 0; ONE0 = 1; }"]
    if depth:
        parts.append(f"message Inner0 {{ {draw(bodies((*types, 'Kind0'), labels, depth - 1))} }}")
    parts += [draw(fields(tag, (*types, *own), draw(st.sampled_from(labels)))) for tag in tags[:split]]
    if tags[split:]:
        inner = " ".join(draw(fields(tag, (*types, *own), "")) for tag in tags[split:])
        parts.append(f"oneof choice {{ {inner} }}")
    if draw(st.booleans()):
        parts.append('reserved 20000 to 20010, 20012; reserved "gone";')
    return " ".join(draw(st.permutations(parts)))


@st.composite
def texts(draw: st.DrawFn) -> str:
    syntax = draw(st.sampled_from(("proto2", "proto3")))
    labels = ("optional", "required", "repeated", "map") if syntax == "proto2" else ("", "optional", "repeated", "map")
    package = draw(st.sampled_from(("", "package a.b;", "package message;")))
    imports = 'import "google/protobuf/timestamp.proto"; import public "google/type/date.proto";'
    names = draw(st.lists(st.sampled_from(NAMES), unique_by=str.lower, min_size=1, max_size=3))
    types = (*SCALARS, "google.protobuf.Timestamp", ".google.type.Date")
    messages = [f"message {name} {{ {draw(bodies(types, labels, 1))} }}" for name in names]
    service = f"service Service {{ rpc Call (stream .{_full(package, names[0])}) returns ({names[0]}); }}"
    return "\n".join([f'syntax = "{syntax}";', package, imports, *messages, draw(st.sampled_from(("", service)))])


def _full(package: str, name: str) -> str:
    return ".".join([*package.removeprefix("package ").strip(";").split(), name])
