"""aiokafka: the asyncio client."""

import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

import cases


class Client:
    name, codecs = "aiokafka", cases.CODECS

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()

    def create(self, topic):
        created = self.ask(lambda admin: admin.create_topics([NewTopic(topic, cases.PARTITIONS, 1)]))
        cases.equal("error code", 0, created.topic_errors[0][1])

    def write(self, topic, records, codec, acks, idempotent):
        async def body(producer):
            sent = [await producer.send(topic, record.value, record.key, record.partition, record.timestamp, record.headers)
                    for record in records]
            await producer.flush()
            return [acknowledged and acknowledged.offset for acknowledged in await asyncio.gather(*sent)]

        return self.with_client(lambda: AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks), enable_idempotence=idempotent, linger_ms=5), body)

    def read(self, topic, first, count):
        async def body(consumer):
            found, deadline = [], time.monotonic() + cases.PATIENCE_S
            consumer.assign([TopicPartition(topic, partition) for partition in first])
            for partition, offset in first.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            while len(found) < count and time.monotonic() < deadline:
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    found += [cases.Record(one.partition, one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in batch]
            return found

        return self.with_consumer(body)

    def offset_at(self, topic, partition, ms):
        async def body(consumer):
            found = (await consumer.offsets_for_times({TopicPartition(topic, partition): ms}))[TopicPartition(topic, partition)]
            return found and found.offset

        return self.with_consumer(body)

    def bounds(self, topic, partition):
        async def body(consumer):
            of = TopicPartition(topic, partition)
            return (await consumer.beginning_offsets([of]))[of], (await consumer.end_offsets([of]))[of]

        return self.with_consumer(body)

    def with_consumer(self, body):
        return self.with_client(lambda: AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=20), body)

    def with_client(self, make, body):
        async def whole():
            client = make()
            await client.start()
            try:
                return await body(client)
            finally:
                await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())

        return self.loop.run_until_complete(whole())

    def admin(self, topic):
        self.ask(lambda admin: admin.create_partitions({topic: NewPartitions(5)}))
        cases.eventually("partitions", 5, lambda: len(self.ask(lambda admin: admin.describe_topics([topic]))[0]["partitions"]))
        # It alters settings by AlterConfigs only, which Kafka deprecated for resetting all that it does not name.
        with_setting = topic + "-with-setting"
        self.ask(lambda admin: admin.create_topics([NewTopic(with_setting, 1, 1, topic_configs={"retention.ms": "3600000"})]))
        cases.eventually("retention.ms", "3600000", lambda: self.config(with_setting, "retention.ms"))
        self.write(topic, cases.records(1_000)[:9], "gzip", "all", False)
        low = self.ask(lambda admin: admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)}))
        cases.equal("low watermark", 2, low[TopicPartition(topic, 0)])
        self.ask(lambda admin: admin.delete_topics([topic]))
        cases.eventually("listed after its deletion", False, lambda: topic in self.ask(lambda admin: admin.list_topics()))

    def config(self, topic, name):
        [answer] = self.ask(lambda admin: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}[name]

    def ask(self, body):
        return self.with_client(lambda: AIOKafkaAdminClient(bootstrap_servers=self.bootstrap), body)


cases.run(Client(sys.argv[1]))
