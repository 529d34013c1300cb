"""Parses Spark's DDL for types without Spark: `id BIGINT, tags ARRAY<STRING>, at TIMESTAMP NOT NULL COMMENT 'when'`.

Spark's own parser is in the JVM, which the processes that plan and run a data source cannot reach. The JSON of a type,
as `StructType.json()` writes it, is accepted as well.
"""

import json
import re
from typing import Final

from pyspark.sql import types as spark

from rookery.spark.formats.errors import FormatError

_SCALARS: Final[dict[str, spark.DataType]] = {
    "BOOLEAN": spark.BooleanType(),
    "TINYINT": spark.ByteType(),
    "BYTE": spark.ByteType(),
    "SMALLINT": spark.ShortType(),
    "SHORT": spark.ShortType(),
    "INT": spark.IntegerType(),
    "INTEGER": spark.IntegerType(),
    "BIGINT": spark.LongType(),
    "LONG": spark.LongType(),
    "FLOAT": spark.FloatType(),
    "REAL": spark.FloatType(),
    "DOUBLE": spark.DoubleType(),
    "STRING": spark.StringType(),
    "BINARY": spark.BinaryType(),
    "DATE": spark.DateType(),
    "TIMESTAMP": spark.TimestampType(),
    "TIMESTAMP_LTZ": spark.TimestampType(),
    "TIMESTAMP_NTZ": spark.TimestampNTZType(),
    "VOID": spark.NullType(),
}
_DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
_TOKENS: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*')|(\w+)|([<>(),:]))", re.ASCII | re.DOTALL)
_DEPTH_MAX: Final = 100


def parse_type(text: str) -> spark.DataType:
    """Parse a type, or the fields of a struct. Raises FormatError."""
    if text.lstrip().startswith("{"):
        try:
            return spark.StructType.fromJson(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"not the JSON of a struct type: {error}") from error
    reader = _Reader(text)
    return reader.fields_or_type()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._next = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKENS.match(text, position)
            if found is None:
                raise self._error(f"unexpected {text[position:].strip()[:20]!r}")
            self._tokens.append(found.group().strip())
            position = found.end()

    def fields_or_type(self) -> spark.DataType:
        first, second = self._peek(), self._peek(1)
        is_type = second in ("", "<", "(") and first.upper() in (*_SCALARS, *_DECIMALS, "ARRAY", "MAP", "STRUCT")
        made = self._type(0) if is_type else spark.StructType(self._fields("", 0))
        if self._peek():
            raise self._error(f"unexpected {self._peek()!r}")
        return made

    def _fields(self, end: str, depth: int) -> list[spark.StructField]:
        fields: list[spark.StructField] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            fields.append(self._field(depth))
        return fields

    def _field(self, depth: int) -> spark.StructField:
        name = self._take()
        if not (name.startswith("`") or re.fullmatch(r"\w+", name)):
            raise self._error(f"{name!r} is not a valid field name")
        if self._peek() == ":":
            self._take()
        kind = self._type(depth)
        if self._peek().upper() == "NOT":
            self._take()
            self._expect("NULL")
        if self._peek().upper() == "COMMENT":
            self._take()
            self._take()
        return spark.StructField(name[1:-1].replace("``", "`") if name.startswith("`") else name, kind)

    def _type(self, depth: int) -> spark.DataType:
        if depth > _DEPTH_MAX:
            raise self._error("it is nested too deeply")
        name = self._take().upper()
        match name:
            case "ARRAY" | "MAP" | "STRUCT":
                self._expect("<")
                made = self._nested(name, depth + 1)
                self._expect(">")
                return made
            case _ if name in _DECIMALS:
                return self._decimal()
            case _ if name in _SCALARS:
                return _SCALARS[name]
        raise self._error(f"{name or 'the end'} is not a type")

    def _nested(self, name: str, depth: int) -> spark.DataType:
        if name == "STRUCT":
            return spark.StructType(self._fields(">", depth))
        first = self._type(depth)
        if name == "ARRAY":
            return spark.ArrayType(first)
        self._expect(",")
        return spark.MapType(first, self._type(depth))

    def _decimal(self) -> spark.DecimalType:
        if self._peek() != "(":
            return spark.DecimalType(10, 0)
        self._take()
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._take()
            scale = self._number()
        self._expect(")")
        if not 0 <= scale <= precision <= 38 or precision == 0:
            raise self._error(f"DECIMAL({precision}, {scale}) is not valid")
        return spark.DecimalType(precision, scale)

    def _number(self) -> int:
        text = self._take()
        if not text.isdecimal():
            raise self._error(f"{text!r} is not a number")
        return int(text)

    def _peek(self, ahead: int = 0) -> str:
        position = self._next + ahead
        return self._tokens[position] if position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take().upper() != token:
            raise self._error(f"{token} is missing")

    def _error(self, problem: str) -> FormatError:
        return FormatError(f"not a Spark type in DDL: {problem} in {self._text[:200]!r}")
