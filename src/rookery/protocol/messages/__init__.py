"""Kafka's messages as classes for type checkers: requests, responses and the structs inside of them.

The stubs are written by scripts/message_stubs.py (`make stubs`). At run time there is one class, `Message`.
"""

from rookery.protocol.message import message_class as __getattr__

__all__ = ["__getattr__"]
