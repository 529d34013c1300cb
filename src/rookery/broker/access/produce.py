"""Produce with an authorizer: WRITE on the transactional id, if a batch is transactional, and on each topic.

Produce reads its frame itself, so it has no guard that could take topics out of a request. This handler differs from
the one without an authorizer in the class of the appends, which gives an error to denied topics: one look-up of a
cached decision per topic.
"""

from typing import Final

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.broker.handlers import k00_produce
from rookery.broker.permissions import DecisionLog
from rookery.broker.produce.append import Appends
from rookery.broker.produce.transactional import has_transactional
from rookery.net.connection import HandlerResult
from rookery.protocol.produce import decode_produce
from rookery.security.authorizer import Decisions

# Constants: an attribute of an Enum takes longer to find than a decision.
_WRITE: Final = AclOperation.WRITE
_TOPIC: Final = AclResourceType.TOPIC
_ID: Final = AclResourceType.TRANSACTIONAL_ID
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GuardedAppends(Appends):
    """Appends to the topics that the client may write to. Both attributes are set by `handle`, for each request."""

    __slots__ = ("log", "writable")
    log: DecisionLog
    writable: Decisions

    def check_topic(self, name: str | None) -> ErrorCode | None:
        if name is not None:
            decision = self.writable[name]
            if not decision.allowed or self.log.records_allowed:
                self.log.decided(self.context, _WRITE, _TOPIC, name, decision)
                if not decision.allowed:
                    return _DENIED
        return Appends.check_topic(self, name)


def handle(context: RequestContext, frame: memoryview, position: int) -> HandlerResult:
    access = context.services.access
    assert access is not None
    transactional_id, acks, timeout_ms, topics = decode_produce(context.api_version, frame, position)
    appends = GuardedAppends(context, acks)
    appends.log = access.log
    appends.writable = access.decisions(context).writable_topics
    if has_transactional(topics) and (
        transactional_id is None or not access.client(context).allows(_WRITE, _ID, transactional_id)
    ):
        appends.refuse_all(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return k00_produce.reply(appends, timeout_ms)
    if transactional_id is not None:
        return k00_produce.append_in_transaction(appends, topics, transactional_id, timeout_ms)
    appends.append_all(topics)
    return k00_produce.reply(appends, timeout_ms)
