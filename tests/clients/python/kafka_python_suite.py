"""kafka-python: a client in pure Python."""

import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

import cases


class Client:
    name, codecs = "kafka-python", cases.CODECS

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin_client = KafkaAdminClient(bootstrap_servers=bootstrap)
        self.consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False,
                                      auto_offset_reset="none", fetch_max_wait_ms=20)

    def create(self, topic):
        self.admin_client.create_topics({topic: {"num_partitions": cases.PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)

    def write(self, topic, records, codec, acks, idempotent):
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec,
                                 acks=acks if acks == "all" else int(acks), enable_idempotence=idempotent, linger_ms=5)
        sent = [producer.send(topic, record.value, record.key, record.headers, record.partition, record.timestamp) for record in records]
        producer.flush(cases.PATIENCE_S)
        offsets = [future.get(cases.PATIENCE_S).offset for future in sent]
        producer.close()
        return offsets

    def read(self, topic, first, count):
        found, deadline = [], time.monotonic() + cases.PATIENCE_S
        self.consumer.assign([TopicPartition(topic, partition) for partition in first])
        for partition, offset in first.items():
            self.consumer.seek(TopicPartition(topic, partition), offset)
        while len(found) < count and time.monotonic() < deadline:
            for batch in self.consumer.poll(500).values():
                found += [cases.Record(one.partition, one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in batch]
        return found

    def offset_at(self, topic, partition, ms):
        of = TopicPartition(topic, partition)
        found = self.consumer.offsets_for_times({of: ms})[of]
        return found and found.offset

    def bounds(self, topic, partition):
        of = TopicPartition(topic, partition)
        return self.consumer.beginning_offsets([of])[of], self.consumer.end_offsets([of])[of]

    def admin(self, topic):
        admin = self.admin_client
        admin.create_partitions({topic: 5})
        cases.eventually("partitions", 5, lambda: len(admin.describe_topics([topic])[0]["partitions"]))
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})])
        cases.eventually("retention.ms", "3600000", lambda: admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic].get("retention.ms", {}).get("value"))
        self.write(topic, cases.records(1_000)[:9], "gzip", "all", False)
        admin.delete_records({TopicPartition(topic, 0): 2})
        cases.equal("first offset after deleting records", (2, 3), self.bounds(topic, 0))
        cases.equal("log directories", True, len(admin.describe_log_dirs([topic])) > 0)
        admin.delete_topics([topic])
        cases.eventually("listed after its deletion", False, lambda: topic in admin.list_topics())


cases.run(Client(sys.argv[1]))
