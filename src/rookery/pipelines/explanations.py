"""Reduces Spark's error messages to one sentence and the line of the SQL text that they name. Pure.

Spark appends the plan or the SQL text to a message, and wraps a Python exception in its own text and a traceback. Our
source and sink name options of Spark in their messages; here these become the keys of the pipeline's file, which is
what the author of a pipeline has written.
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
    """A sentence for the user. `line` counts from one and is None if the message names no line."""

    message: str
    line: int | None


def explain(text: str) -> Explanation:
    match = _LINE.search(text)
    line = int(match[1]) if match else None
    own_error, raised = restore(text), read_traceback(text)
    if own_error is not None:
        return Explanation(shortened(with_file_keys(" ".join(str(own_error).split()))), line)
    if raised is not None:
        return Explanation(_python_message(raised), line)
    end = min((found.start() for found in (match, _END.search(text)) if found), default=len(text))
    message = " ".join(_CONDITION.sub("", text[:end]).split())
    return Explanation(shortened(message) or shortened(text.strip()), line)


def _python_message(raised: Raised) -> str:
    """Return the message of a Python exception; its class name if the message is empty."""
    end = _END.search(raised.message)
    message = " ".join((raised.message[: end.start()] if end else raised.message).split())
    # An exception of a query that ran inside foreachBatch begins with Spark's condition.
    message = _CONDITION.sub("", message)
    return shortened(with_file_keys(message or raised.class_name))


def with_file_keys(message: str) -> str:
    """Replace names of Spark options by keys of the pipeline's file; options given below `options` keep their names."""
    message = _OPTION.sub(lambda found: _FILE_KEYS[found[1]], message.replace(_PREFIX_HINT, ""))
    return _CLIENT_OPTION.sub(_platform_key, message)


def _platform_key(found: re.Match[str]) -> str:
    """Return the key without `kafka.`; a name that is no setting, such as the host kafka.example, stays."""
    name = found[1]
    if name == "*":
        return "platform"
    return name if name in _CLIENT_KEYS or name.endswith(".*") else found[0]


def shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_LENGTH_MAX else f"{message[:_MESSAGE_LENGTH_MAX]}..."
