"""Turns failures of commands into one sentence and an exit code, for all commands.

Exit codes: 0 success, 1 the operation failed (one sentence on standard error), 2 wrong usage or configuration, 130
interrupted.
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
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is not valid",
    ErrorCode.OFFSET_OUT_OF_RANGE: "there is no such offset",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not respond in time",
    ErrorCode.MESSAGE_TOO_LARGE: "the record is larger than the topic's max.message.bytes",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has active members; stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group subscribes to the topic; stop it first",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is not a regular expression that the broker supports",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction is still being ended; try again",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the partition has seen a newer epoch of this producer",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the partition has seen a newer epoch of the coordinator",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer and allow everything: set authorizer.class.name",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the user may not do this; rookery acls explain says why",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the user may not do this; rookery acls explain says why",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the user may not do this; rookery acls explain says why",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user may not do this; rookery acls explain says why",
    ErrorCode.RESOURCE_NOT_FOUND: "there is no such user",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed",
}


class CommandError(RookeryError):
    """A command failed; the message is the sentence to print."""


def needs_extra(extra: str, missing: ImportError) -> CommandError:
    """Return the error for a missing library of an optional extra."""
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
    """Turn failures of the body, a command, into a sentence and an exit code."""
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
    """Return a sentence for the user, with the name of the error code to search for."""
    if error.code == ErrorCode.NETWORK_EXCEPTION and error.message:
        return f"{error.message}; is the broker running, and is --bootstrap-server right?"
    # Errors of the client have their own message: a record may also be too large for a limit of the client.
    is_self_explanatory = type(error) is not ApiError and error.message
    sentence = None if is_self_explanatory else _SENTENCES.get(error.code)
    parts = [part for part in ((error.message or "").removesuffix("."), sentence) if part]
    text = "; ".join([": ".join(parts), *getattr(error, "__notes__", ())])
    return f"{text} ({error.code.name})" if parts else error.code.name


def _leave_broken_pipe() -> None:
    """Exit with 0: the reader of the output has closed the pipe (`| head`), which is no failure.

    Standard output becomes /dev/null, since the flush at exit would fail otherwise.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)
