"""The tokens of a .proto text, with their positions. Comments and white space are skipped."""

import re
from bisect import bisect_right
from typing import Final, Literal, NamedTuple, TypeAlias

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import Position

TokenKind: TypeAlias = Literal["word", "number", "string", "sign", "end"]

_TOKEN: Final = re.compile(
    r"""
    (?P<skipped> [ \t\r\n\f\v\ufeff]+ | //[^\n]* | /\*.*?\*/ )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<number> (?: 0[xX][0-9a-fA-F]+ | (?: \d+\.?\d* | \.\d+ ) (?: [eE][+-]?\d+ )? [fF]? ) (?! \w ) )
  | (?P<string> "(?: [^"\\\n] | \\. )*" | '(?: [^'\\\n] | \\. )*' )
  | (?P<sign> [][{}()<>=;:,.-] | /(?!\*) )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<one>.))",
    re.DOTALL,
)
ESCAPES: Final = dict(zip("abfnrtv\\'\"?", "\a\b\f\n\r\t\v\\'\"?", strict=True))
"""The characters that a letter after a backslash represents."""

_NAME_LENGTH_MAX: Final = 512


class Token(NamedTuple):
    kind: TokenKind
    text: str
    offset: int


class Text:
    """A .proto text, its tokens and their positions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.tokens = self._scan()

    def position(self, token: Token) -> Position:
        line = bisect_right(self._line_starts, token.offset)
        return Position(line, token.offset - self._line_starts[line - 1] + 1)

    def error(self, token: Token, problem: str) -> InvalidSchemaError:
        return InvalidSchemaError(f"{self.position(token)}: {problem}")

    def _scan(self) -> list[Token]:
        tokens = []
        offset = 0
        while match := _TOKEN.match(self._text, offset):
            kind = match.lastgroup
            if kind == "word" and match.end() - offset > _NAME_LENGTH_MAX:
                raise self.error(Token("word", "", offset), f"a name with more than {_NAME_LENGTH_MAX} characters")
            if kind != "skipped":
                tokens.append(Token(kind, match[0], offset))  # type: ignore[arg-type]  # the groups are the kinds
            offset = match.end()
        end = Token("end", "", offset)
        if offset < len(self._text):
            raise self.error(end, f"unexpected {self._text[offset : offset + 20].splitlines()[0]!r}")
        return [*tokens, end]

    def decode_strings(self, tokens: list[Token]) -> str:
        """Return the value of adjacent string literals."""
        try:
            return decode_escapes(*(token.text[1:-1] for token in tokens))
        except ValueError as error:
            raise self.error(tokens[0], str(error)) from None


def decode_escapes(*literals: str) -> str:
    """Return the value of adjacent string literals without quotes. Bytes that are not UTF-8 become surrogates."""
    return b"".join(map(_decode, literals)).decode("utf-8", "surrogateescape")


def _decode(literal: str) -> bytes:
    parts = []
    offset = 0
    for match in _ESCAPE.finditer(literal):
        parts += [literal[offset : match.start()].encode("utf-8", "surrogatepass"), _unescape(match)]
        offset = match.end()
    return b"".join([*parts, literal[offset:].encode("utf-8", "surrogatepass")])


def _unescape(match: re.Match[str]) -> bytes:
    if match["octal"] or match["hex"]:
        value = int(match["octal"], 8) if match["octal"] else int(match["hex"], 16)
        if value < 256:
            return bytes([value])
    elif code := match["u"] or match["U"]:
        if int(code, 16) < 0x110000 and not 0xD800 <= int(code, 16) < 0xE000:
            return chr(int(code, 16)).encode()
    elif match["one"] in ESCAPES:
        return ESCAPES[match["one"]].encode()
    raise ValueError(f"{match[0]} is not a valid escape sequence")
