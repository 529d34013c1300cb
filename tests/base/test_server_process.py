"""A process that serves ends when its service fails, during its start and after it."""

import asyncio

import pytest

from rookery.base.errors import StorageError
from rookery.base.server_process import serve_until_stopped


class FailingService:
    def __init__(self, *, starts: bool) -> None:
        self._starts = starts
        self.steps: list[str] = []

    async def start(self) -> None:
        try:
            await asyncio.sleep(0 if self._starts else 3600)
        except asyncio.CancelledError:
            self.steps.append("released")
            raise

    async def stop(self) -> None:
        self.steps.append("stopped")

    async def failed(self) -> StorageError:
        while self._starts and "ready" not in self.steps:
            await asyncio.sleep(0)
        return StorageError("the disk is full")


@pytest.mark.parametrize(("starts", "steps"), [(True, ["ready", "stopped"]), (False, ["released"])])
def test_the_failure_ends_the_process_with_its_sentence(starts: bool, steps: list[str]) -> None:
    service = FailingService(starts=starts)
    with pytest.raises(StorageError, match="the disk is full"):
        asyncio.run(serve_until_stopped(service, ready=lambda: service.steps.append("ready"), failed=service.failed))
    assert service.steps == steps
