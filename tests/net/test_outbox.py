import asyncio
from functools import partial

from rookery.net.connection import ConnectionInfo, HandlerResult
from rookery.net.outbox import Outbox
from tests.net.support import BOTH_LOOPS, Run, connect, echo, frame, listening, read_reply, until

COUNT = 40
PENDING_MAX = 32


def test_sends_run_together_at_the_end_of_the_iteration_or_when_there_are_many() -> None:
    async def scenario() -> None:
        loop, outbox = asyncio.get_running_loop(), Outbox()
        sent: list[int] = []
        for number in range(COUNT):
            outbox.add(loop, partial(sent.append, number))
            assert len(sent) == (0 if number < PENDING_MAX - 1 else PENDING_MAX)
        await asyncio.sleep(0)
        assert sent == list(range(COUNT))
        outbox.add(loop, lambda: sent.append(COUNT))
        await asyncio.sleep(0)
        assert sent[-1] == COUNT

    asyncio.run(scenario())


@BOTH_LOOPS
def test_the_requests_of_many_connections_are_handled_before_the_first_reply(run: Run) -> None:
    handled = 0
    handled_at_first_reply = 0

    async def scenario() -> None:
        nonlocal handled_at_first_reply

        def handle(request: memoryview, info: ConnectionInfo) -> HandlerResult:
            nonlocal handled
            handled += 1
            return echo(request, info)

        async with listening(handle) as listener:
            streams = [await connect(listener) for _ in range(PENDING_MAX)]
            await until(lambda: listener.connection_count == PENDING_MAX)
            # Written without letting the listener run: all requests have arrived when it does.
            for _, writer in streams:
                writer.write(frame(b"request"))
            for reader, writer in streams:
                assert await read_reply(reader) == b"request"
                handled_at_first_reply = handled_at_first_reply or handled
                writer.close()

    run(scenario())
    assert handled_at_first_reply == PENDING_MAX
