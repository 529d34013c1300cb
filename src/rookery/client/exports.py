"""Lazy attributes of `rookery.client`: each name is imported on first access.

A program that uses only the admin client does not load the consumer, and vice versa. Importing a module of the package
by its own name loads none of them. `__init__.pyi` declares the same names for type checkers.
"""


def __getattr__(name: str) -> object:
    match name:
        case "Admin" | "NewTopic":
            from rookery.client import admin

            return getattr(admin, name)
        case "Producer":
            from rookery.client.produce.producer import Producer

            return Producer
        case "Consumer":
            from rookery.client.consume.consumer import Consumer

            return Consumer
        case "BatchMetadata" | "ProducerRecord" | "RecordMetadata":
            from rookery.client.produce import records as produced

            return getattr(produced, name)
        case "BEGINNING" | "END" | "ConsumerRecord" | "ConsumerRecords" | "OffsetAndTimestamp" | "Timestamp":
            from rookery.client.consume import records as consumed

            return getattr(consumed, name)
        case "ConsumerGroupMetadata" | "OffsetAndMetadata" | "RebalanceListener":
            from rookery.client.membership import interfaces

            return getattr(interfaces, name)
        case _:
            raise AttributeError(f"module 'rookery.client' has no attribute {name!r}")
