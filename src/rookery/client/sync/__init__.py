"""The clients for programs without asyncio: the same names and parameters, and what was awaited is waited for."""

from rookery.client.sync.admin import Admin
from rookery.client.sync.consumer import Consumer
from rookery.client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
