"""confluent-kafka: librdkafka as Python programs use it."""

import sys
import time

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec,
                                   ResourceType)

import cases


class Client:
    name, codecs = "confluent-kafka", cases.CODECS

    def __init__(self, bootstrap):
        self.common = {"bootstrap.servers": bootstrap}
        self.admin_client = AdminClient(self.common)
        # librdkafka demands a group id but contacts no coordinator while it only assigns and commits nothing.
        self.consumer = Consumer({**self.common, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"})

    def create(self, topic):
        """librdkafka remembers for long that a topic was unknown, so no other handle asks before all know it."""
        self.admin_client.create_topics([NewTopic(topic, cases.PARTITIONS, 1)])[topic].result()
        cases.eventually("leaders", cases.PARTITIONS, lambda: sum(
            partition.leader > 0 for partition in self.admin_client.list_topics(topic).topics[topic].partitions.values()))

    def write(self, topic, records, codec, acks, idempotent):
        producer = Producer({**self.common, "compression.type": codec, "acks": acks, "enable.idempotence": idempotent, "linger.ms": 5})
        offsets = {}

        def delivered(at, error, message):
            if error:
                offsets[at] = error.str()
            else:
                offsets[at] = message.offset()

        for at, record in enumerate(records):
            producer.produce(topic, record.value, record.key, record.partition, timestamp=record.timestamp, headers=record.headers,
                             on_delivery=lambda error, message, at=at: delivered(at, error, message))
        cases.equal("messages left after the flush", 0, producer.flush(cases.PATIENCE_S))
        return [offsets[at] for at in range(len(records))]

    def read(self, topic, first, count):
        found, deadline = [], time.monotonic() + cases.PATIENCE_S
        self.consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in first.items()])
        while len(found) < count and time.monotonic() < deadline:
            message = self.consumer.poll(0.5)
            if message is None:  # A message without a value is false, too.
                continue
            if message.error():
                raise RuntimeError(message.error().str())
            found.append(cases.Record(message.partition(), message.offset(), message.timestamp()[1], message.key(),
                                      message.value(), message.headers() or []))
        self.consumer.unassign()
        return found

    def offset_at(self, topic, partition, ms):
        [found] = self.consumer.offsets_for_times([TopicPartition(topic, partition, ms)], timeout=cases.PATIENCE_S)
        return None if found.offset == OFFSET_END else found.offset

    def bounds(self, topic, partition):
        return self.consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=cases.PATIENCE_S)

    def admin(self, topic):
        admin = self.admin_client
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
        cases.eventually("partitions", 5, lambda: len(admin.list_topics(topic).topics[topic].partitions))
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[
            ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)])
        [altered] = admin.incremental_alter_configs([resource]).values()
        altered.result()
        cases.eventually("retention.ms", "3600000", lambda: self.config(topic, "retention.ms"))
        self.write(topic, cases.records(1_000)[:9], "gzip", "all", False)
        [deleted] = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
        cases.equal("low watermark", 2, deleted.result().low_watermark)
        [listed] = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()}).values()
        cases.equal("offset of the greatest timestamp", 2, listed.result().offset)
        admin.delete_topics([topic])[topic].result()
        cases.eventually("listed after its deletion", False, lambda: topic in admin.list_topics().topics)

    def config(self, topic, name):
        [described] = self.admin_client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return described.result()[name].value


cases.run(Client(sys.argv[1]))
