"""What a failed command says and how it exits: one place for all commands.

0 done, 1 the operation failed (one sentence on standard error), 2 wrong usage or configuration, 130 interrupted.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rookery.base.distribution import install_hint
from rookery.base.errors import ApiError, ConfigError, ErrorCode, RookeryError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is not valid",
    ErrorCode.OFFSET_OUT_OF_RANGE: "there is no such offset",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not answer in time",
    ErrorCode.MESSAGE_TOO_LARGE: "the record is larger than the topic's max.message.bytes",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has active members; stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group subscribes to the topic; stop it first",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is no regular expression that the broker understands",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction is being ended and that takes longer",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the partition knows a newer epoch of this producer",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the partition knows a newer epoch of the coordinator",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed",
}


class CommandError(RookeryError):
    """A command cannot do what it was asked to; the text is the sentence to print."""


def needs_extra(extra: str, missing: ImportError) -> CommandError:
    """A command works with libraries that not everybody installs."""
    return CommandError(f"the module {missing.name} is missing: {install_hint(extra)}")


@contextmanager
def extra_required(extra: str) -> Iterator[None]:
    """Turn a missing library of `extra` into one sentence. Commands of an extra use it as a decorator."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "rookery":
            # A module of Rookery itself: installing the extra would not help.
            raise
        raise needs_extra(extra, missing) from None


@contextmanager
def failures_explained() -> Iterator[None]:
    """Every command runs inside: its failures become a sentence and an exit code."""
    try:
        yield
    except ConfigError as error:
        _fail(str(error), WRONG_USAGE)
    except ApiError as error:
        _fail(explain(error))
    except BrokenPipeError:
        _leave_broken_pipe()
    except (RookeryError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _fail(sentence: str, exit_code: int = FAILED) -> None:
    sys.stderr.write(f"error: {sentence}\n")
    raise SystemExit(exit_code)


def explain(error: ApiError) -> str:
    """A sentence for people, with the code's name for those who search for it."""
    if error.code == ErrorCode.NETWORK_EXCEPTION and error.message:
        return f"{error.message}; is the broker running, and is --bootstrap-server right?"
    # The client's own errors say themselves what is wrong: a record may be too large for other limits, too.
    says_it_all = type(error) is not ApiError and error.message
    sentence = None if says_it_all else _SENTENCES.get(error.code)
    parts = [part for part in ((error.message or "").removesuffix("."), sentence) if part]
    text = "; ".join([": ".join(parts), *getattr(error, "__notes__", ())])
    return f"{text} ({error.code.name})" if parts else error.code.name


def _leave_broken_pipe() -> None:
    """The reader of our output has seen enough (`| head`): that is no failure, but nothing more may be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)
