"""Parser of `sasl.jaas.config`: one Java login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

The tokens are those of Java's StreamTokenizer as configured by Apache Kafka, so that a text that works there works
here: words of letters, digits and `. - _ $`, strings in single or double quotes with C's escapes, and comments (`//`,
`/* */`, and a single `/` up to the end of its line). A bare word must not begin with a digit, a dot or a minus: Java
parses it as a number and then ignores it. Java accepts one error that is rejected here: a quote that is not closed on
its line.

Any part of the text may belong to a password, so that an error reports the position and never quotes the text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, NoReturn

from rookery.base.errors import ConfigError

KEY = "sasl.jaas.config"
CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
      (?P<skipped> [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\r\n]* )
    | (?P<quoted>  (?P<quote>["']) (?P<content> (?: \\[^\r\n] | (?!(?P=quote))[^\\\r\n] )* ) (?P=quote) )
    | (?P<word>    [A-Za-z_$\xa0-\U0010ffff] [A-Za-z0-9_$.\-\xa0-\U0010ffff]* )
    | (?P<number>  [0-9.\-]+ )
    | (?P<sign>    . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
# What must be escaped between double quotes. Line ends would end the string.
_QUOTED = re.compile(r'["\\\x00-\x1f]')
_LETTERS = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}


class LoginModule(NamedTuple):
    """A Java class that performs a login. It is never run: the options hold the credentials."""

    class_name: str
    control_flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the names of the options without their values, one of which is a password."""
        return f"LoginModule({self.class_name} {self.control_flag} {' '.join(f'{name}=...' for name in self.options)})"


def jaas_text(class_name: str, options: Mapping[str, str]) -> str:
    """Return the text that parses to these options, each value in double quotes."""
    pairs = "".join(f' {key}="{_QUOTED.sub(_escaped, value)}"' for key, value in options.items())
    return f"{class_name} required{pairs};"


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\{character}" if character in '"\\' else f"\\{ord(character):03o}"


def parse_jaas(text: str) -> LoginModule:
    tokens = _tokens(text)
    class_name = _text(next(tokens), "the class of a login module comes first")
    flag_token = next(tokens)
    control_flag = _text(flag_token, f"after the class comes one of {', '.join(CONTROL_FLAGS)}").lower()
    if control_flag not in CONTROL_FLAGS:
        _fail(flag_token, f"after the class comes one of {', '.join(CONTROL_FLAGS)}")
    options: dict[str, str] = {}
    while not (token := next(tokens)).is_sign(";"):
        if token.kind == "end":
            _fail(token, "it must end in a semicolon")
        key = _text(token, 'an option, key="value", or the semicolon at the end is expected')
        if not (equals := next(tokens)).is_sign("="):
            _fail(equals, "an option is key=value")
        options[key] = _text(next(tokens), "an option needs a value")
    if (rest := next(tokens)).kind != "end":
        _fail(rest, "only one login module is allowed, and nothing after its semicolon")
    return LoginModule(class_name, control_flag, options)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the tokens of the text, and then the end token for ever."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if match["quoted"] is not None:
            yield _Token("word", _ESCAPE.sub(_unescaped, match["content"]), match.start())
        elif kind != "skipped":
            assert kind is not None
            yield _Token(kind, match[0], match.start())
    while True:
        yield _Token("end", "", len(text))


def _unescaped(match: re.Match[str]) -> str:
    octal, letter = match.groups()
    return _LETTERS.get(letter, letter) if octal is None else chr(int(octal, 8))


def _text(token: _Token, expectation: str) -> str:
    if token.kind != "word":
        _fail(token, expectation)
    return token.text


def _fail(token: _Token, expectation: str) -> NoReturn:
    where = "its end" if token.kind == "end" else f"character {token.position + 1}"
    hint = ""
    if token.kind == "sign" and token.text in "\"'":
        hint = " (a quote is not closed on its line)"
    elif token.kind in {"number", "sign"}:
        hint = " (only words of letters, digits and . - _ $ that begin with a letter may stand without quotes)"
    raise ConfigError(f"{KEY} is wrong at {where}: {expectation}{hint}")
