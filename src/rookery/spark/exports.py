"""The names of `rookery.spark` that are loaded when they are first asked for: they need PySpark.

`__init__.pyi` tells type checkers the same names.
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
