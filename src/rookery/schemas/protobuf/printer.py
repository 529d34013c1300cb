"""Prints elements as text, in the layout of Confluent's registry: sections separated by an empty line, two spaces per
level (on the empty lines of inner levels, too), no comments.

Two bugs of Confluent's registry are not repeated: default values of `bytes` keep their quotes, and weak imports are not
dropped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from rookery.schemas.protobuf.elements import (
    TAG_MAX,
    Enum,
    Extend,
    Extensions,
    Field,
    File,
    Group,
    Import,
    Message,
    OneOf,
    Option,
    Options,
    ReservedValue,
    Rpc,
    Service,
    Value,
    Word,
)
from rookery.schemas.protobuf.tokens import ESCAPES

T = TypeVar("T")
_ESCAPES: Final = {sign: f"\\{letter}" for letter, sign in ESCAPES.items() if sign != "?"}


def print_file(file: File) -> str:
    header = []
    if file.edition is not None:
        header.append(f'edition = "{file.edition}";')
    if file.syntax is not None:
        header.append(f'syntax = "{file.syntax}";')
    if file.package:
        header.append(f"package {file.package};")
    sections = [
        _imports(file.imports),
        _option_statements(file.options),
        [*_all(_message, file.messages), *_all(_enum, file.enums)],
        _all(_extend, file.extends),
        _all(_service, file.services),
    ]
    lines = header + [line for section in sections if section for line in ("", *section)]
    return "".join(f"{line}\n" for line in lines)


def quote(text: str) -> str:
    """Return a string literal of .proto. Bytes that are not UTF-8 (surrogates) and control characters become octal."""
    return f'"{"".join(map(_escape, text))}"'


def field_options(field: Field) -> Options:
    """Return the options with the default value and the JSON name, which are written like options."""
    special = [("default", field.default), ("json_name", field.json_name)]
    return (*field.options, *(Option(name, value) for name, value in special if value is not None))


def span_text(value: ReservedValue) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return str(value)
    return f"{value.start} to {'max' if value.end >= TAG_MAX else value.end}"


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if "\udc80" <= character <= "\udcff":
        return f"\\{ord(character) - 0xDC00:03o}"
    return f"\\{ord(character):03o}" if character < " " or character == "\x7f" else character


def _all(print_one: Callable[[T], list[str]], elements: Sequence[T]) -> list[str]:
    return [line for element in elements for line in print_one(element)]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _block(header: str, *sections: list[str]) -> list[str]:
    """Return a block of the non-empty sections, separated by empty lines."""
    filled = [section for section in sections if section]
    if not filled:
        return [f"{header} {{}}"]
    body = [line for section in filled for line in ("", *_indent(section))]
    return [f"{header} {{", *body[1:], "}"]


def _imports(imports: tuple[Import, ...]) -> list[str]:
    """Print the imports, public ones last."""
    ordered = sorted(imports, key=lambda each: each.modifier == "public")
    return [f"import {f'{each.modifier} ' if each.modifier else ''}{quote(each.name)};" for each in ordered]


def _message(message: Message) -> list[str]:
    return _message_block(f"message {message.name}", message)


def _message_block(header: str, message: Message) -> list[str]:
    return _block(
        header,
        [f"reserved {', '.join(map(span_text, each.values))};" for each in message.reserved],
        _option_statements(message.options),
        _all(_field, message.fields),
        _all(_oneof, message.oneofs),
        _all(_group, message.groups),
        _all(_extensions, message.extensions),
        _all(_extend, message.extends),
        [*_all(_message, message.messages), *_all(_enum, message.enums)],
    )


def _oneof(oneof: OneOf) -> list[str]:
    sections = [_option_statements(oneof.options), _all(_field, oneof.fields), _all(_group, oneof.groups)]
    return _block(f"oneof {oneof.name}", *sections)


def _group(group: Group) -> list[str]:
    label = f"{group.label} " if group.label else ""
    *lines, last = _declaration(f"{label}group {group.name} = {group.number}", group.options)
    return [*lines, *_message_block(last, group.body)]


def _extend(extend: Extend) -> list[str]:
    return _block(f"extend {extend.name}", [*_all(_field, extend.fields), *_all(_group, extend.groups)])


def _extensions(extensions: Extensions) -> list[str]:
    return _with_options(f"extensions {', '.join(map(span_text, extensions.values))}", extensions.options)


def _field(field: Field) -> list[str]:
    label = f"{field.label} " if field.label else ""
    return _with_options(f"{label}{field.type_text} {field.name} = {field.number}", field_options(field))


def _enum(enum: Enum) -> list[str]:
    reserved = [f"reserved {', '.join(map(span_text, each.values))};" for each in enum.reserved]
    values = [line for each in enum.values for line in _with_options(f"{each.name} = {each.number}", each.options)]
    return _block(f"enum {enum.name}", [*reserved, *_option_statements(enum.options), *values])


def _service(service: Service) -> list[str]:
    return _block(f"service {service.name}", _option_statements(service.options), _all(_rpc, service.rpcs))


def _rpc(rpc: Rpc) -> list[str]:
    request = f"stream {rpc.request}" if rpc.request_streams else rpc.request
    response = f"stream {rpc.response}" if rpc.response_streams else rpc.response
    header = f"rpc {rpc.name} ({request}) returns ({response})"
    if not rpc.options:
        return [f"{header};"]
    return [f"{header} {{", *_indent(_option_statements(rpc.options)), "};"]


def _option_statements(options: Options) -> list[str]:
    lines = []
    for option in options:
        first, *rest = _option(option)
        lines += _end([f"option {first}", *rest], ";")
    return lines


def _with_options(declaration: str, options: Options) -> list[str]:
    return _end(_declaration(declaration, options), ";")


def _declaration(declaration: str, options: Options) -> list[str]:
    if not options:
        return [declaration]
    first, *rest = _brackets([_option(option) for option in options])
    return [f"{declaration} {first}", *rest]


def _brackets(items: list[list[str]]) -> list[str]:
    """Print items in brackets; a single item on the line of the bracket."""
    if len(items) == 1:
        return _end([f"[{items[0][0]}", *items[0][1:]], "]")
    return ["[", *_items(items), "]"]


def _items(items: list[list[str]]) -> list[str]:
    lines = [line for item in items[:-1] for line in _end(item, ",")]
    return _indent([*lines, *(line for item in items[-1:] for line in item)])


def _end(lines: list[str], sign: str) -> list[str]:
    return [*lines[:-1], lines[-1] + sign]


def _option(option: Option) -> list[str]:
    name = f"({option.name})" if option.is_extension else option.name
    if isinstance(option.value, Option):
        first, *rest = _option(option.value)
        return [f"{name}.{first}", *rest]
    value = option.value
    first, *rest = _brackets([_value(each) for each in value]) if isinstance(value, tuple) else _value(value)
    return [f"{name} = {first}", *rest]


def _value(value: Value) -> list[str]:
    if isinstance(value, str):
        return [quote(value)]
    if isinstance(value, Word):
        return [value.text]
    if isinstance(value, Option):
        return _option(value)
    if isinstance(value, Mapping):
        entries = [[f"{key}: {first}", *rest] for key, (first, *rest) in ((k, _value(v)) for k, v in value.items())]
        return ["{", *_items(entries), "}"]
    return ["[", *_items([_value(each) for each in value]), "]"]
