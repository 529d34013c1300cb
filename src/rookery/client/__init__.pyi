from rookery.base.errors import ApiError as ApiError
from rookery.base.errors import ConfigError as ConfigError
from rookery.base.errors import ErrorCode as ErrorCode
from rookery.base.types import TopicPartition as TopicPartition
from rookery.client import errors as errors
from rookery.client.admin import Admin as Admin
from rookery.client.admin import NewTopic as NewTopic
from rookery.client.consume.consumer import Consumer as Consumer
from rookery.client.consume.records import BEGINNING as BEGINNING
from rookery.client.consume.records import END as END
from rookery.client.consume.records import ConsumerRecord as ConsumerRecord
from rookery.client.consume.records import ConsumerRecords as ConsumerRecords
from rookery.client.consume.records import OffsetAndTimestamp as OffsetAndTimestamp
from rookery.client.consume.records import Timestamp as Timestamp
from rookery.client.membership.interfaces import ConsumerGroupMetadata as ConsumerGroupMetadata
from rookery.client.membership.interfaces import OffsetAndMetadata as OffsetAndMetadata
from rookery.client.membership.interfaces import RebalanceListener as RebalanceListener
from rookery.client.produce.producer import Producer as Producer
from rookery.client.produce.records import BatchMetadata as BatchMetadata
from rookery.client.produce.records import ProducerRecord as ProducerRecord
from rookery.client.produce.records import RecordMetadata as RecordMetadata

__all__: list[str]
