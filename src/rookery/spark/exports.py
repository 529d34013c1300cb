"""The names that `rookery.spark` exports. They need PySpark and are imported on first access.

`__init__.pyi` declares the same names for type checkers.
"""


def __getattr__(name: str) -> object:
    match name:
        case "from_registry" | "to_registry":
            from rookery.spark import functions

            return getattr(functions, name)
        case "TopicSink":
            from rookery.spark.sink.topic_sink import TopicSink

            return TopicSink
        case "start_session":
            from rookery.spark.session import start_session

            return start_session
        case _:
            raise AttributeError(f"module 'rookery.spark' has no attribute {name!r}")
