"""Faults for users' tests: requests that fail, are slow, or lose their connection.

`Faults.intercept` is passed to the node, which puts it between the connections and the dispatcher. While no fault is
registered, it costs one check of an empty tuple per request. Faults are registered by the test's thread and applied by
the broker's; the lock protects the counts.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable
from difflib import get_close_matches
from threading import Lock

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.base.files import FileSlice
from rookery.base.values import value_class
from rookery.broker.context import Services
from rookery.net.connection import ConnectionInfo, Handler, HandlerResult
from rookery.net.send import Reply
from rookery.protocol.api import SERVED, ApiKey, is_defined, is_served
from rookery.protocol.codec import decode_request, decode_response, encode_request, encode_response
from rookery.protocol.framing import (
    SIZE_BYTES,
    RequestHeader,
    encode_request_frame,
    parse_request_header,
    parse_response_header,
    response_prefix,
)
from rookery.protocol.message import Message
from rookery.testing.injected_errors import InjectedError, Target, check_target, inject_error


@value_class
class _Fail:
    code: ErrorCode
    target: Target


@value_class
class _Delay:
    seconds: float


@value_class
class _Drop:
    carry_out: bool


class Fault:
    """A registered fault. `hits` counts the requests that it was applied to; `cancel` removes it."""

    def __init__(self, owner: "Faults", api: ApiKey, action: _Fail | _Delay | _Drop, times: int | None) -> None:
        self._owner = owner
        self._times = times
        self.api = api
        self.action = action
        self.hits = 0

    @property
    def is_over(self) -> bool:
        """Whether it has been applied to all requests that it was registered for."""
        return self._times is not None and self.hits >= self._times

    def cancel(self) -> None:
        self._owner.remove(self)


class Faults:
    """The faults of a broker. An API is named as in Kafka's protocol guide (`"Produce"`) or by its `ApiKey`. `times` is
    the number of requests to apply a fault to; None means until `clear` or `Fault.cancel`. Faults of the same API are
    applied in the order of their registration."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._lock = Lock()

    def fail(
        self,
        api: str | ApiKey,
        code: str | ErrorCode,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Fault:
        """Respond to the next requests with an error instead of executing them; or only to the parts of them that
        concern a topic or a partition. The connection of a Produce without a response (acks=0) is closed."""
        key, target = _api_key(api), Target(topic=topic, partition=partition)
        reason = check_target(key, target)
        if reason is not None:
            raise ValueError(f"{key.name} cannot fail in this way: {reason}")
        return self._add(key, _Fail(_error_code(code), target), times)

    def delay(self, api: str | ApiKey, seconds: float, *, times: int | None = 1) -> Fault:
        """Execute the next requests immediately, and delay their responses."""
        return self._add(_api_key(api), _Delay(seconds), times)

    def drop_connection(self, api: str | ApiKey, *, times: int | None = 1, carry_out: bool = False) -> Fault:
        """Close the connection instead of responding; with `carry_out`, after the request was executed."""
        return self._add(_api_key(api), _Drop(carry_out), times)

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults = ()

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._faults = tuple(other for other in self._faults if other is not fault)

    def _add(self, api: ApiKey, action: _Fail | _Delay | _Drop, times: int | None) -> Fault:
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, or None for always, not {times}")
        fault = Fault(self, api, action, times)
        with self._lock:
            self._faults = (*self._faults, fault)
        return fault

    def _take(self, fault: Fault) -> bool:
        """Count a request that the fault applies to; False if another request was the last one."""
        with self._lock:
            if fault not in self._faults:
                return False
            fault.hits += 1
            if fault.is_over:
                self._faults = tuple(other for other in self._faults if other is not fault)
            return True

    def intercept(self, handle: Handler, services: Services) -> Handler:
        """Wrap the node's handler (see `Interceptor`)."""

        def intercepted(frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
            if not self._faults:
                return handle(frame, connection)
            return self._respond(_Request(handle, services, frame, connection))

        return intercepted

    def _respond(self, request: "_Request") -> HandlerResult:
        faults = [fault for fault in self._faults if fault.api == request.header.api_key]
        delays = [fault for fault in faults if isinstance(fault.action, _Delay)]
        delay = next((fault.action for fault in delays if self._take(fault)), None)
        result = self._respond_now(request, [fault for fault in faults if fault not in delays])
        return result if not isinstance(delay, _Delay) else _later(result, delay.seconds)

    def _respond_now(self, request: "_Request", faults: list[Fault]) -> HandlerResult:
        for fault in faults:
            action = fault.action
            if isinstance(action, _Drop) and self._take(fault):
                return request.drop(carry_out=action.carry_out)
            injected = request.inject_error(action) if isinstance(action, _Fail) else None
            if injected is not None and (not injected.counts or self._take(fault)):
                return request.finish(injected)
        return request.carry_out()


class _Request:
    """One request that a fault may apply to."""

    def __init__(self, handle: Handler, services: Services, frame: memoryview, connection: ConnectionInfo) -> None:
        self._handle = handle
        self._services = services
        self._frame = frame
        self._connection = connection
        self.header, self._position = parse_request_header(frame)

    def carry_out(self) -> HandlerResult:
        return self._handle(self._frame, self._connection)

    def drop(self, *, carry_out: bool) -> HandlerResult:
        result = self.carry_out() if carry_out else None
        if result is None or isinstance(result, list):
            raise ProtocolError("dropped by a fault that the test registered")
        return _drop_later(result)

    def inject_error(self, action: _Fail) -> InjectedError | None:
        api_key, version = ApiKey(self.header.api_key), self.header.api_version
        if not is_served(api_key, version) or not is_defined(api_key, version):
            return None
        request = decode_request(api_key, version, self._frame, self._position)
        return inject_error(
            api_key, version, request, action.code, target=action.target, topic_name=self._services.replicas.topic_name
        )

    def finish(self, injected: InjectedError) -> HandlerResult:
        if self.header.api_key == ApiKey.PRODUCE and self._has_no_response():
            raise ProtocolError("a fault that the test registered failed a Produce without acknowledgement")
        if injected.rest is None:
            return _encode(self.header, injected.finish(None))
        body = encode_request(self.header.api_key, self.header.api_version, injected.rest)
        frame = memoryview(bytearray(encode_request_frame(self.header, body)))[SIZE_BYTES:]
        result = self._handle(frame, self._connection)
        if isinstance(result, list):
            return _rewrite(self.header, result, injected)
        return None if result is None else _rewrite_later(self.header, result, injected)

    def _has_no_response(self) -> bool:
        request = decode_request(ApiKey.PRODUCE, self.header.api_version, self._frame, self._position)
        return bool(request.acks == 0)


def _encode(header: RequestHeader, response: Message) -> Reply:
    body = encode_response(header.api_key, header.api_version, response)
    prefix = response_prefix(header.api_key, header.api_version, header.correlation_id, len(body))
    return [prefix, body]


def _rewrite(header: RequestHeader, reply: Reply, injected: InjectedError) -> Reply:
    """Return a reply with the failed items added."""
    parts = (part.file.read_at(part.position, part.size) if isinstance(part, FileSlice) else part for part in reply)
    frame = b"".join(parts)[SIZE_BYTES:]
    _, position = parse_response_header(header.api_key, header.api_version, frame)
    response = decode_response(header.api_key, header.api_version, frame, position)
    return _encode(header, injected.finish(response))


async def _rewrite_later(
    header: RequestHeader, result: Awaitable[Reply | None], injected: InjectedError
) -> Reply | None:
    reply = await result
    return None if reply is None else _rewrite(header, reply, injected)


async def _later(result: HandlerResult, seconds: float) -> Reply | None:
    if result is not None and not isinstance(result, list):
        # It must begin now, not after the delay.
        result = asyncio.ensure_future(result)
    await asyncio.sleep(seconds)
    return result if result is None or isinstance(result, list) else await result


async def _drop_later(result: Awaitable[Reply | None]) -> Reply | None:
    await result
    raise ProtocolError("dropped by a fault that the test registered")


def _api_key(api: str | ApiKey) -> ApiKey:
    """Return the key of an API; `Produce`, `produce`, `PRODUCE` and `ApiKey.PRODUCE` are the same."""
    name = api.name if isinstance(api, ApiKey) else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).upper()
    served = {ApiKey(key).name: ApiKey(key) for key in SERVED}
    if name not in served:
        raise ValueError(f"{api!r} is not an API that this broker serves{_suggest(name, served)}")
    return served[name]


def _error_code(code: str | ErrorCode) -> ErrorCode:
    name = code.name if isinstance(code, ErrorCode) else code.upper()
    if name not in ErrorCode.__members__ or name == ErrorCode.NONE.name:
        raise ValueError(f"{code!r} is not an error code of Kafka{_suggest(name, ErrorCode.__members__)}")
    return ErrorCode[name]


def _suggest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
