from rookery.spark.functions import from_registry as from_registry
from rookery.spark.functions import to_registry as to_registry
from rookery.spark.session import start_session as start_session
from rookery.spark.sink.topic_sink import TopicSink as TopicSink

__all__: list[str]
