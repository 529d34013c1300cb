"""Parses a .proto text to its elements: proto2, proto3 and the editions.

The parser checks only the grammar; `validator` checks the rest. It accepts some syntax that protoc rejects but Wire's
parser, which Confluent's registry uses, accepts: a list as an option's value, `;` after any statement.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import (
    ENUM_NUMBER_MAX,
    ENUM_NUMBER_MIN,
    TAG_MAX,
    Enum,
    EnumValue,
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
    Reserved,
    Rpc,
    Service,
    Span,
    Value,
    Word,
)
from rookery.schemas.protobuf.tokens import Text, Token

LABELS: Final = frozenset({"optional", "required", "repeated"})
_DEPTH_MAX = 64
T = TypeVar("T")


def read_file(text: str) -> File:
    """Parse a .proto text. Raises InvalidSchemaError with the position."""
    return _Reader(Text(text)).file()


class _Reader:
    def __init__(self, text: Text) -> None:
        self._text = text
        self._index = 0
        self._next = text.tokens[0]
        self._depth = 0

    # The file and its statements.

    def file(self) -> File:
        syntax, edition = self._syntax()
        found: dict[str, list[Any]] = defaultdict(list)
        readers = {
            "package": self._package,
            "import": self._import,
            "option": self._option_statement,
            "message": self._message,
            "enum": self._enum,
            "extend": self._extend,
            "service": self._service,
        }
        while self._next.kind != "end":
            if not self._accept(";"):
                word = self._keyword(readers)
                found[word].append(readers[word]())
        if len(found["package"]) > 1:
            raise InvalidSchemaError("the package is given more than once")
        return File(
            syntax=syntax,
            edition=edition,
            package=next(iter(found["package"]), ""),
            imports=tuple(found["import"]),
            options=tuple(found["option"]),
            messages=tuple(found["message"]),
            enums=tuple(found["enum"]),
            extends=tuple(found["extend"]),
            services=tuple(found["service"]),
        )

    def _syntax(self) -> tuple[str | None, str | None]:
        while self._accept(";"):
            pass
        if self._next.text not in {"syntax", "edition"}:
            return None, None
        is_syntax = self._advance().text == "syntax"
        self._expect("=")
        token = self._next
        value = self._utf8_string()
        self._expect(";")
        if is_syntax and value not in {"proto2", "proto3"}:
            raise self._text.error(token, f'unknown syntax "{value}"')
        return (value, None) if is_syntax else (None, value)

    def _package(self) -> str:
        start = self._next
        name = self._full_name()
        self._check_depth(name.count(".") + 1, start)
        self._expect(";")
        return name

    def _import(self) -> Import:
        position = self._text.position(self._next)
        modifier = self._advance().text if self._next.text in {"public", "weak"} else ""
        name = self._utf8_string()
        self._expect(";")
        return Import(name, modifier, position)

    def _extend(self) -> Extend:
        position = self._text.position(self._next)
        name = self._full_name(may_start_with_dot=True)
        members = self._block(self._field_or_group)
        return Extend(name, tuple(members["field"]), tuple(members["group"]), position)

    def _service(self) -> Service:
        position = self._text.position(self._next)
        name = self._name()
        readers: dict[str, Callable[[], Any]] = {"option": self._option_statement, "rpc": self._rpc}
        members = self._block(lambda found: self._member(found, readers))
        return Service(name, tuple(members["option"]), tuple(members["rpc"]), position)

    def _rpc(self) -> Rpc:
        position = self._text.position(self._next)
        name = self._name()
        request_streams, request = self._rpc_type()
        self._expect("returns")
        response_streams, response = self._rpc_type()
        options: list[Option] = []
        if self._next.text == "{":
            options = self._block(lambda found: self._member(found, {"option": self._option_statement}))["option"]
        else:
            self._expect(";")
        return Rpc(name, request, response, request_streams, response_streams, tuple(options), position)

    def _rpc_type(self) -> tuple[bool, str]:
        self._expect("(")
        streams = self._accept("stream")
        name = self._full_name(may_start_with_dot=True)
        self._expect(")")
        return streams, name

    # Messages.

    def _message(self) -> Message:
        token = self._advance_word()
        return self._message_body(token)

    def _message_body(self, name: Token) -> Message:
        readers: dict[str, Callable[[], Any]] = {
            "option": self._option_statement,
            "reserved": lambda: self._reserved(TAG_MAX),
            "extensions": self._extensions,
            "oneof": self._oneof,
            "message": self._message,
            "enum": self._enum,
            "extend": self._extend,
        }
        members = self._block(lambda found: self._message_member(found, readers))
        return Message(
            name=name.text,
            reserved=tuple(members["reserved"]),
            options=tuple(members["option"]),
            fields=tuple(members["field"]),
            oneofs=tuple(members["oneof"]),
            groups=tuple(members["group"]),
            extensions=tuple(members["extensions"]),
            extends=tuple(members["extend"]),
            messages=tuple(members["message"]),
            enums=tuple(members["enum"]),
            position=self._text.position(name),
        )

    def _message_member(self, found: dict[str, list[Any]], readers: dict[str, Callable[[], Any]]) -> None:
        """Read a statement. A word that begins a statement may also be the type of a field."""
        word = self._next
        if word.text not in readers:
            self._field_or_group(found)
            return
        self._advance()
        if self._is_field_of_type():
            found["field"].append(self._field(word.text, label=None, start=word))
        else:
            found[word.text].append(readers[word.text]())

    def _is_field_of_type(self) -> bool:
        """Whether `name = number` follows, so that the keyword before it is the type of a field."""
        following = self._text.tokens[self._index : self._index + 3]
        return [token.kind for token in following] == ["word", "sign", "number"] and following[1].text == "="

    def _oneof(self) -> OneOf:
        position = self._text.position(self._next)
        name = self._name()
        members = self._block(self._oneof_member)
        return OneOf(name, tuple(members["option"]), tuple(members["field"]), tuple(members["group"]), position)

    def _oneof_member(self, found: dict[str, list[Any]]) -> None:
        if self._next.text == "option":
            self._advance()
            found["option"].append(self._option_statement())
        elif self._next.text in LABELS:
            raise self._text.error(self._next, f'"{self._next.text}" is not allowed in a oneof')
        else:
            self._field_or_group(found)

    def _field_or_group(self, found: dict[str, list[Any]]) -> None:
        start = self._next
        label = self._advance().text if start.text in LABELS else None
        word = self._next
        if word.text == "group":
            self._advance()
            if self._next.kind == "word" and self._next.text[:1].isupper():
                found["group"].append(self._group(label, start))
                return
            found["field"].append(self._field(self._type_from(word), label, start))
        elif word.text == "map" and label is None:
            self._advance()
            if self._next.text == "<":
                found["field"].append(self._map_field(start))
            else:
                found["field"].append(self._field(self._type_from(word), label, start))
        else:
            found["field"].append(self._field(self._full_name(may_start_with_dot=True), label, start))

    def _type_from(self, word: Token) -> str:
        """Return the type whose name begins with `word`, which was read already."""
        return f"{word.text}.{self._full_name()}" if self._accept(".") else word.text

    def _map_field(self, start: Token) -> Field:
        self._expect("<")
        key_type = self._full_name()
        self._expect(",")
        value_type = self._full_name(may_start_with_dot=True)
        self._expect(">")
        return self._field(value_type, None, start, key_type)

    def _field(self, type_name: str, label: str | None, start: Token, key_type: str | None = None) -> Field:
        name = self._name()
        self._expect("=")
        number = self._integer()
        options = self._bracketed_options()
        self._expect(";")
        default = self._last_value(options, "default")
        json_name = self._last_value(options, "json_name")
        if not isinstance(default, str | Word | None) or not isinstance(json_name, str | None):
            raise self._text.error(start, f'"{name}": the default value or the JSON name is not a plain value')
        if json_name is not None and not is_utf8(json_name):
            raise self._text.error(start, f'"{name}": the JSON name is not UTF-8')
        kept = tuple(each for each in options if each.is_extension or each.name not in {"default", "json_name"})
        return Field(name, type_name, number, label, key_type, kept, default, json_name, self._text.position(start))

    @staticmethod
    def _last_value(options: Options, name: str) -> Value | None:
        return next((each.value for each in reversed(options) if each.name == name and not each.is_extension), None)

    def _group(self, label: str | None, start: Token) -> Group:
        name = self._advance_word()
        self._expect("=")
        number = self._integer()
        options = self._bracketed_options()
        return Group(number, self._message_body(name), label, options, self._text.position(start))

    def _extensions(self) -> Extensions:
        position = self._text.position(self._next)
        values = self._separated(lambda: self._span(TAG_MAX))
        options = self._bracketed_options()
        self._expect(";")
        return Extensions(values, options, position)

    def _reserved(self, number_max: int) -> Reserved:
        position = self._text.position(self._next)
        values: tuple[int | Span | str, ...]
        if self._next.kind == "string":
            values = self._separated(self._utf8_string)
        elif self._next.kind == "word":
            values = self._separated(self._name)
        else:
            values = self._separated(lambda: self._span(number_max))
        self._expect(";")
        return Reserved(values, position)

    def _span(self, number_max: int) -> int | Span:
        start = self._integer(may_be_negative=number_max == ENUM_NUMBER_MAX)
        if self._next.text != "to":
            return start
        self._advance()
        if self._next.text == "max":
            self._advance()
            return Span(start, number_max)
        return Span(start, self._integer(may_be_negative=number_max == ENUM_NUMBER_MAX))

    # Enums.

    def _enum(self) -> Enum:
        position = self._text.position(self._next)
        name = self._name()
        members = self._block(self._enum_member)
        values = tuple(members["value"])
        return Enum(name, tuple(members["reserved"]), tuple(members["option"]), values, position)

    def _enum_member(self, found: dict[str, list[Any]]) -> None:
        word = self._advance_word()
        if self._next.text == "=":
            self._expect("=")
            number = self._integer(may_be_negative=True)
            options = self._bracketed_options()
            self._expect(";")
            found["value"].append(EnumValue(word.text, number, options, self._text.position(word)))
        elif word.text == "option":
            found["option"].append(self._option_statement())
        elif word.text == "reserved":
            found["reserved"].append(self._reserved(ENUM_NUMBER_MAX))
        else:
            raise self._unexpected("'='")

    # Options.

    def _option_statement(self) -> Option:
        option = self._option()
        self._expect(";")
        return option

    def _bracketed_options(self) -> Options:
        if not self._accept("["):
            return ()
        options = self._separated(self._option)
        self._expect("]")
        return options

    def _option(self) -> Option:
        start = self._next
        is_extension = start.text == "("
        path = [(self._option_name_part(), is_extension)]
        while self._accept("."):
            is_part_extension = self._next.text == "("
            path.append((self._option_name_part(), is_part_extension))
        self._expect("=")
        value = self._at_depth(len(path) - 1, self._value, start)
        if not is_extension and not any(is_part_extension for _, is_part_extension in path):
            return Option(".".join(name for name, _ in path), value)
        for name, is_part_extension in reversed(path[1:]):
            value = Option(name, value, is_part_extension)
        return Option(path[0][0], value, is_extension)

    def _option_name_part(self) -> str:
        if not self._accept("("):
            return self._name()
        name = self._full_name(may_start_with_dot=True)
        self._expect(")")
        return name

    def _value(self) -> Value:
        token = self._next
        if token.kind == "string":
            return self._string()
        if token.text in {"{", "<"}:
            return self._nested(self._map)
        if token.text == "[":
            return self._nested(self._list)
        return self._word_value()

    def _word_value(self) -> Word:
        sign = "-" if self._accept("-") else ""
        if self._next.kind == "number":
            return Word(sign + self._advance().text)
        if sign and self._next.text not in {"inf", "nan", "infinity"}:
            raise self._unexpected("a number")
        return Word(sign + self._full_name())

    def _list(self) -> tuple[Value, ...]:
        self._expect("[")
        values = () if self._next.text == "]" else self._separated(self._value)
        self._expect("]")
        return values

    def _map(self) -> dict[str, Value]:
        closing = "}" if self._advance().text == "{" else ">"
        found: dict[str, list[Value]] = defaultdict(list)
        while not self._accept(closing):
            key = self._map_key()
            if self._next.text not in {"{", "<"}:
                self._expect(":")
            found[key].append(self._value())
            if not self._accept(","):
                self._accept(";")
        # The values of a repeated key form a list.
        return {key: values[0] if len(values) == 1 else flatten(values) for key, values in found.items()}

    def _map_key(self) -> str:
        if not self._accept("["):
            return self._name()
        parts = []
        while not self._accept("]"):
            if self._next.kind != "word" and self._next.text not in {".", "/", "-"}:
                raise self._unexpected("']'")
            parts.append(self._advance().text)
        return f"[{''.join(parts)}]"

    # Tokens.

    def _advance(self) -> Token:
        token = self._next
        if token.kind != "end":
            self._index += 1
            self._next = self._text.tokens[self._index]
        return token

    def _advance_word(self) -> Token:
        if self._next.kind != "word":
            raise self._unexpected("a name")
        return self._advance()

    def _accept(self, sign: str) -> bool:
        if self._next.text != sign or self._next.kind == "string":
            return False
        self._advance()
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(f"'{text}'")

    def _unexpected(self, expected: str) -> InvalidSchemaError:
        found = "the end of the text" if self._next.kind == "end" else f"'{self._next.text}'"
        return self._text.error(self._next, f"expected {expected}, found {found}")

    def _keyword(self, known: dict[str, Callable[[], Any]]) -> str:
        if self._next.text not in known:
            raise self._unexpected(" or ".join(f"'{word}'" for word in known))
        return self._advance().text

    def _name(self) -> str:
        return self._advance_word().text

    def _full_name(self, may_start_with_dot: bool = False) -> str:
        start = "." if may_start_with_dot and self._accept(".") else ""
        parts = [self._name()]
        while self._accept("."):
            parts.append(self._name())
        return start + ".".join(parts)

    def _string(self) -> str:
        if self._next.kind != "string":
            raise self._unexpected("a string")
        tokens = [self._advance()]
        while self._next.kind == "string":
            tokens.append(self._advance())
        return self._text.decode_strings(tokens)

    def _utf8_string(self) -> str:
        start = self._next
        value = self._string()
        if not is_utf8(value):
            raise self._text.error(start, "the string is not UTF-8")
        return value

    def _integer(self, may_be_negative: bool = False) -> int:
        token = self._next
        is_negative = may_be_negative and self._accept("-")
        value = to_integer(self._next.text) if self._next.kind == "number" else None
        if value is None:
            raise self._unexpected("an integer")
        text = self._advance().text
        number = -value if is_negative else value
        if not ENUM_NUMBER_MIN <= number <= ENUM_NUMBER_MAX:
            raise self._text.error(token, f"{'-' * is_negative}{text} does not fit into 32 bits")
        return number

    # Repetition.

    def _separated(self, read: Callable[[], T]) -> tuple[T, ...]:
        values = [read()]
        while self._accept(","):
            values.append(read())
        return tuple(values)

    def _block(self, read: Callable[[dict[str, list[Any]]], None]) -> dict[str, list[Any]]:
        return self._nested(lambda: self._flat_block(read))

    def _flat_block(self, read: Callable[[dict[str, list[Any]]], None]) -> dict[str, list[Any]]:
        self._expect("{")
        found: dict[str, list[Any]] = defaultdict(list)
        while not self._accept("}"):
            if not self._accept(";"):
                read(found)
        return found

    def _member(self, found: dict[str, list[Any]], readers: dict[str, Callable[[], Any]]) -> None:
        word = self._keyword(readers)
        found[word].append(readers[word]())

    def _nested(self, read: Callable[[], T]) -> T:
        return self._at_depth(1, read, self._next)

    def _at_depth(self, levels: int, read: Callable[[], T], start: Token) -> T:
        """Limit the depth, so that no text can exhaust the stack."""
        self._depth += levels
        self._check_depth(self._depth, start)
        result = read()
        self._depth -= levels
        return result

    def _check_depth(self, depth: int, start: Token) -> None:
        if depth > _DEPTH_MAX:
            raise self._text.error(start, f"more than {_DEPTH_MAX} levels of nesting")


def is_utf8(text: str) -> bool:
    """Whether a string contains no surrogates, which represent bytes that are not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def flatten(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return one tuple of the values, with the elements of values that are tuples."""
    return tuple(each for value in values for each in (value if isinstance(value, tuple) else (value,)))


def to_integer(text: str) -> int | None:
    try:
        return int(text, 8) if len(text) > 1 and text[0] == "0" and text[1] not in "xX" else int(text, 0)
    except ValueError:
        return None
