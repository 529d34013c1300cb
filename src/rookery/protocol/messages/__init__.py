"""Kafka's messages as classes for type checkers: requests, responses and the structs in them.

scripts/message_stubs.py (`make stubs`) writes the stubs. At run time every class is `Message`.
"""

from rookery.protocol.message import message_class as __getattr__

__all__ = ["__getattr__"]
