"""Spark's error messages as one sentence, with the line of the SQL text that they are about. Pure.

Spark writes the plan or the text behind what is wrong, and wraps what Python raised in its own words and a traceback.
What our source and sink raise names options of Spark's; who wrote a pipeline knows the keys of its file.
"""

import re
from typing import Final, NamedTuple

from rookery.client.settings.admin import ADMIN_KEYS
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.client.settings.producer import PRODUCER_KEYS
from rookery.spark.query_error import Raised, read_traceback, restore

_LINE: Final = re.compile(r"[;(]\s*line (\d+),? pos \d+\)?")
_END: Final = re.compile(
    r"\s*(?:SQLSTATE: \w+|== SQL|=== Streaming Query|JVM stacktrace|Driver stacktrace|\n\s+at [\w.$]+\(|\n'?\w+ ?\[)"
)
_CONDITION: Final = re.compile(r"^\s*\[[A-Z][A-Z_.\d]+\]\s*")
_MESSAGE_LENGTH_MAX: Final = 500
_FILE_KEYS: Final = {
    "keyFormat": "key_format",
    "valueFormat": "value_format",
    "valueSchema": "value_schema",
    "startingOffsets": "starting_offsets",
    "onError": "on_error",
    "deadLetterTopic": "dead_letters",
}
_OPTION: Final = re.compile(rf"(?:\b(?:the )?options? )?\b({'|'.join(_FILE_KEYS)})\b")
_CLIENT_OPTION: Final = re.compile(r"(?:\b(?:the )?options? )?\bkafka\.([a-z.]*(?:[a-z]|\*))")
_CLIENT_KEYS: Final = ADMIN_KEYS.keys() | CONSUMER_KEYS.keys() | PRODUCER_KEYS.keys()
_PREFIX_HINT: Final = ". In Spark these options begin with kafka., as kafka.security.protocol"


class Explanation(NamedTuple):
    """`line` counts from one; None if the message names none."""

    message: str
    line: int | None


def explain(text: str) -> Explanation:
    match = _LINE.search(text)
    line = int(match[1]) if match else None
    ours, raised = restore(text), read_traceback(text)
    if ours is not None:
        return Explanation(shortened(in_words_of_the_file(" ".join(str(ours).split()))), line)
    if raised is not None:
        return Explanation(_said(raised), line)
    end = min((found.start() for found in (match, _END.search(text)) if found), default=len(text))
    message = " ".join(_CONDITION.sub("", text[:end]).split())
    return Explanation(shortened(message) or shortened(text.strip()), line)


def _said(raised: Raised) -> str:
    """What Python raised, without its class, if it has something to say."""
    end = _END.search(raised.message)
    said = " ".join((raised.message[: end.start()] if end else raised.message).split())
    # Spark's own, of a query inside foreachBatch.
    said = _CONDITION.sub("", said)
    return shortened(in_words_of_the_file(said or raised.class_name))


def in_words_of_the_file(message: str) -> str:
    """Options as keys of a pipeline's file. Those that it has below `options` keep their names."""
    message = _OPTION.sub(lambda found: _FILE_KEYS[found[1]], message.replace(_PREFIX_HINT, ""))
    return _CLIENT_OPTION.sub(_platform_key, message)


def _platform_key(found: re.Match[str]) -> str:
    """Hosts, too, are named kafka.something."""
    name = found[1]
    if name == "*":
        return "platform"
    return name if name in _CLIENT_KEYS or name.endswith(".*") else found[0]


def shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_LENGTH_MAX else f"{message[:_MESSAGE_LENGTH_MAX]}..."
