import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own Java client: arguments BOOTSTRAP BASE_MS PREFIX, one line a case on stdout. */
final class Suite {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private final String bootstrap;
    private final long baseMs;
    private final String prefix;
    private final Admin admin;

    private Suite(String bootstrap, long baseMs, String prefix) {
        this.bootstrap = bootstrap;
        this.baseMs = baseMs;
        this.prefix = prefix + "-java-";
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) {
        Suite suite = new Suite(arguments[0], Long.parseLong(arguments[1]), arguments[2]);
        if (arguments.length > 3) {
            suite.readBack(arguments[2], List.of(arguments[3].split(",")));
        } else {
            suite.run();
        }
        suite.admin.close();
        System.out.println("done");
    }

    private void run() {
        for (String codec : CODECS) {
            for (String acks : List.of("0", "1", "all")) {
                Expect.testCase(codec + "/" + acks, () -> roundTrip(codec + "-" + acks, Map.of("compression.type", codec, "acks", acks)));
            }
        }
        Expect.testCase("idempotent", () -> roundTrip("idempotent", Map.of("enable.idempotence", true)));
        Expect.testCase("describe-producers", this::describeProducers);
        Expect.testCase("null-header", this::nullHeader);
        Expect.testCase("large", this::large);
        Expect.testCase("too-large", this::tooLarge);
        Expect.testCase("log-append-time", this::logAppendTime);
        for (String codec : CODECS) {
            Expect.testCase("by-time/" + codec, () -> byTime(prefix + codec + "-all"));
        }
        Expect.testCase("bounds", this::bounds);
        Expect.testCase("middle", this::middle);
        Expect.testCase("read-committed", this::readCommitted);
        Expect.testCase("tail", this::tail);
        Expect.testCase("cluster", this::cluster);
        Expect.testCase("topics", this::topics);
        Expect.testCase("log-dirs", this::logDirs);
        Expect.testCase("configs", this::configs);
        Expect.testCase("more-partitions", this::morePartitions);
        Expect.testCase("delete-records", this::deleteRecords);
        Expect.testCase("delete-and-create", this::deleteAndCreate);
    }

    /** What other clients wrote under this prefix reads back here: their topics are PREFIX-CLIENT-CODEC-ACKS. */
    private void readBack(String run, List<String> clients) {
        for (String client : clients) {
            Expect.testCase(client, () -> {
                List<String> names = admin.listTopics().names().get().stream()
                        .filter(name -> name.matches(run + "-" + client + "-(none|gzip|snappy|lz4|zstd)-(0|1|all)")).sorted().toList();
                Expect.equal("any topic", true, !names.isEmpty());
                for (String name : names) {
                    try {
                        checkAll(name);
                    } catch (AssertionError failure) {
                        throw new AssertionError(name + ": " + failure.getMessage());
                    }
                }
            });
        }
    }

    private void roundTrip(String name, Map<String, Object> settings) throws Exception {
        String topic = create(name, Map.of());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (int i = 0; i < Dataset.RECORDS; i++) {
                sent.add(producer.send(Dataset.record(topic, i, baseMs)));
            }
        }
        for (int i = 0; i < sent.size(); i++) {
            long offset = sent.get(i).get().offset();
            Expect.equal("acknowledged offset of " + i, "0".equals(settings.get("acks")) ? -1L : i / Dataset.PARTITIONS, offset);
        }
        checkAll(topic);
    }

    private void checkAll(String topic) {
        List<TopicPartition> all = IntStream.range(0, Dataset.PARTITIONS).mapToObj(partition -> new TopicPartition(topic, partition)).toList();
        List<ConsumerRecord<byte[], byte[]>> records = read(all, 0, Dataset.RECORDS, Map.of());
        for (int partition = 0; partition < Dataset.PARTITIONS; partition++) {
            int wanted = partition;
            Dataset.check(records.stream().filter(record -> record.partition() == wanted).toList(), partition, 0, baseMs);
        }
    }

    private void describeProducers() throws Exception {
        TopicPartition partition = new TopicPartition(prefix + "idempotent", 0);
        var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        Expect.equal("producers", 1, producers.size());
        Expect.equal("last sequence", Dataset.PER_PARTITION - 1, producers.get(0).lastSequence());
        Expect.equal("last timestamp", baseMs + (Dataset.RECORDS - Dataset.PARTITIONS) * 1000L, producers.get(0).lastTimestamp());
    }

    private void nullHeader() throws Exception {
        String topic = create("null-header", Map.of());
        send(new ProducerRecord<>(topic, 0, baseMs, null, null, List.of(new RecordHeader("null", null), new RecordHeader("", new byte[] {0}))));
        ConsumerRecord<byte[], byte[]> record = read(topic, 0, 0, 1, Map.of()).get(0);
        Expect.equal("key", null, record.key());
        Expect.equal("null header", null, record.headers().lastHeader("null").value());
        Expect.equal("unnamed header", "[0]", Arrays.toString(record.headers().lastHeader("").value()));
    }

    private void large() throws Exception {
        String topic = create("large", Map.of());
        byte[] value = new byte[900_000];
        for (int at = 0; at < value.length; at++) {
            value[at] = (byte) (at % 251);
        }
        send(new ProducerRecord<>(topic, 0, baseMs, null, value));
        Expect.equal("same bytes", true, Arrays.equals(value, read(topic, 0, 0, 1, Map.of()).get(0).value()));
    }

    private void tooLarge() throws Exception {
        String topic = create("too-large", Map.of("max.message.bytes", "1000"));
        Expect.fails(RecordTooLargeException.class, () -> send(new ProducerRecord<>(topic, 0, baseMs, null, new byte[2000])));
        Expect.equal("end", 0L, offset(topic, 0, OffsetSpec.latest()));
    }

    private void logAppendTime() throws Exception {
        String topic = create("append-time", Map.of("message.timestamp.type", "LogAppendTime"));
        long stamped = send(new ProducerRecord<>(topic, 0, 1L, null, new byte[] {1})).timestamp();
        ConsumerRecord<byte[], byte[]> record = read(topic, 0, 0, 1, Map.of()).get(0);
        Expect.equal("timestamp type", TimestampType.LOG_APPEND_TIME, record.timestampType());
        Expect.equal("acknowledged timestamp", record.timestamp(), stamped);
        Expect.equal("timestamp within an hour", true, Math.abs(System.currentTimeMillis() - stamped) < 3_600_000);
    }

    private void byTime(String topic) throws Exception {
        int middle = Dataset.RECORDS / 2;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            for (int partition = 0; partition < Dataset.PARTITIONS; partition++) {
                TopicPartition of = new TopicPartition(topic, partition);
                long exact = baseMs + (middle + partition) * 1000L;
                long expected = middle / Dataset.PARTITIONS;
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(of, exact), PATIENCE).get(of);
                Expect.equal("at the time of a record", expected + "@" + exact, found.offset() + "@" + found.timestamp());
                Expect.equal("just after it", expected + 1, consumer.offsetsForTimes(Map.of(of, exact + 1), PATIENCE).get(of).offset());
                Expect.equal("before all", 0L, consumer.offsetsForTimes(Map.of(of, 0L), PATIENCE).get(of).offset());
                Expect.equal("after all", null, consumer.offsetsForTimes(Map.of(of, baseMs + 3_000_000), PATIENCE).get(of));
                Expect.equal("of the greatest timestamp", Dataset.PER_PARTITION - 1L, offset(topic, partition, OffsetSpec.maxTimestamp()));
            }
        }
    }

    private void bounds() throws Exception {
        String topic = prefix + "none-all";
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            TopicPartition of = new TopicPartition(topic, 1);
            Expect.equal("beginning", 0L, consumer.beginningOffsets(List.of(of), PATIENCE).get(of));
            Expect.equal("end", (long) Dataset.PER_PARTITION, consumer.endOffsets(List.of(of), PATIENCE).get(of));
            consumer.assign(List.of(of));
            consumer.seekToEnd(List.of(of));
            Expect.equal("position at the end", (long) Dataset.PER_PARTITION, consumer.position(of, PATIENCE));
            Expect.equal("partitions", Dataset.PARTITIONS, consumer.partitionsFor(topic, PATIENCE).size());
        }
    }

    private void middle() {
        for (String codec : CODECS) {
            for (int first : new int[] {1, 10, 19}) {
                Dataset.check(read(prefix + codec + "-all", 1, first, Dataset.PER_PARTITION - first, Map.of()), 1, first, baseMs);
            }
        }
    }

    private void readCommitted() {
        List<ConsumerRecord<byte[], byte[]>> records =
                read(prefix + "lz4-all", 2, 0, Dataset.PER_PARTITION, Map.of("isolation.level", "read_committed"));
        Dataset.check(records, 2, 0, baseMs);
    }

    /** A fetch that found nothing is answered by the next record, well before its own wait ends. */
    private void tail() throws Exception {
        TopicPartition of = new TopicPartition(create("tail", Map.of()), 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("fetch.max.wait.ms", 15_000))) {
            consumer.assign(List.of(of));
            consumer.seek(of, 0);
            Expect.equal("records before any is written", 0, consumer.poll(Duration.ofMillis(100)).count());
            send(new ProducerRecord<>(of.topic(), 0, baseMs, null, new byte[1]));
            Expect.equal("records after one is written", 1, consumer.poll(Duration.ofSeconds(10)).count());
            send(new ProducerRecord<>(of.topic(), 0, baseMs, null, new byte[1]));
            Expect.equal("records after another", 1, consumer.poll(Duration.ofSeconds(10)).count());
            // This one answers the fetch that the last poll left parked, which would delay the end of the consumer.
            send(new ProducerRecord<>(of.topic(), 0, baseMs, null, new byte[1]));
        }
    }

    private void cluster() throws Exception {
        var cluster = admin.describeCluster();
        Expect.equal("nodes", true, cluster.nodes().get().size() >= 1);
        Expect.equal("a controller among them", true, cluster.nodes().get().contains(cluster.controller().get()));
        Expect.equal("cluster id", 22, cluster.clusterId().get().length());
    }

    private void topics() throws Exception {
        String topic = prefix + "none-all";
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        Expect.equal("partitions", Dataset.PARTITIONS, described.partitions().size());
        Expect.equal("in-sync replicas", described.partitions().get(0).replicas(), described.partitions().get(0).isr());
        Expect.equal("listed id", described.topicId(), admin.listTopics().namesToListings().get().get(topic).topicId());
        TopicDescription byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId())))
                .allTopicIds().get().get(described.topicId());
        Expect.equal("name of the id", topic, byId.name());
        Expect.fails(UnknownTopicOrPartitionException.class, () -> admin.describeTopics(List.of(prefix + "absent")).allTopicNames().get());
        Expect.fails(TopicExistsException.class, () -> create("none-all", Map.of()));
    }

    private void logDirs() throws Exception {
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        TopicPartition partition = new TopicPartition(prefix + "large", 0);
        var directories = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values();
        long size = directories.stream().map(directory -> directory.replicaInfos().get(partition))
                .filter(info -> info != null).mapToLong(info -> info.size()).sum();
        Expect.equal("size of the large record's partition", true, size > 900_000 && size < 2_000_000);
    }

    private void configs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, create("configs", Map.of("retention.ms", "7200000")));
        Expect.eventually("given value", "7200000 DYNAMIC_TOPIC_CONFIG",
                () -> config(topic, "retention.ms").value() + " " + config(topic, "retention.ms").source());
        alter(topic, new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
        Expect.eventually("altered value", "3600000", () -> config(topic, "retention.ms").value());
        alter(topic, new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE);
        Expect.eventually("default again", "604800000 DEFAULT_CONFIG",
                () -> config(topic, "retention.ms").value() + " " + config(topic, "retention.ms").source());
        Expect.fails(InvalidConfigurationException.class,
                () -> alter(topic, new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET));
        String node = "" + admin.describeCluster().nodes().get().iterator().next().id();
        Expect.equal("a broker setting", true, config(new ConfigResource(ConfigResource.Type.BROKER, node), "num.partitions").value() != null);
    }

    private ConfigEntry config(ConfigResource of, String name) throws Exception {
        return admin.describeConfigs(List.of(of)).all().get().get(of).get(name);
    }

    private void alter(ConfigResource of, ConfigEntry entry, AlterConfigOp.OpType operation) throws Exception {
        admin.incrementalAlterConfigs(Map.of(of, List.of(new AlterConfigOp(entry, operation)))).all().get();
    }

    private void morePartitions() throws Exception {
        String topic = create("partitions", Map.of());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        Expect.equal("acknowledged in a new partition", 0L, send(new ProducerRecord<>(topic, 4, baseMs, null, new byte[1])).offset());
        Expect.equal("read from it", 1, read(topic, 4, 0, 1, Map.of()).size());
        Expect.fails(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
    }

    private void deleteRecords() throws Exception {
        String topic = create("delete-records", Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "gzip"))) {
            IntStream.range(0, Dataset.RECORDS).forEach(i -> producer.send(Dataset.record(topic, i, baseMs)));
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7))).lowWatermarks().get(partition).get().lowWatermark();
        Expect.equal("low watermark", 7L, low);
        Expect.equal("earliest", 7L, offset(topic, 0, OffsetSpec.earliest()));
        Dataset.check(read(topic, 0, 7, Dataset.PER_PARTITION - 7, Map.of()), 0, 7, baseMs);
        Dataset.check(read(topic, 1, 0, Dataset.PER_PARTITION, Map.of()), 1, 0, baseMs);
    }

    private void deleteAndCreate() throws Exception {
        String topic = create("again", Map.of());
        send(new ProducerRecord<>(topic, 0, baseMs, null, new byte[100]));
        var before = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
        admin.deleteTopics(List.of(topic)).all().get();
        Expect.eventually("listed after its deletion", false, () -> admin.listTopics().names().get().contains(topic));
        create("again", Map.of());
        var after = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
        Expect.equal("a new id", true, !before.equals(after));
        Expect.equal("empty", 0L, offset(topic, 0, OffsetSpec.latest()));
    }

    /** A topic is known before its leaders serve it; a write with acks 0 in between would be lost, as it may be. */
    private String create(String name, Map<String, String> configs) throws Exception {
        String topic = prefix + name;
        admin.createTopics(Set.of(new NewTopic(topic, Dataset.PARTITIONS, (short) 1).configs(configs))).all().get();
        for (int partition = 0; partition < Dataset.PARTITIONS; partition++) {
            int of = partition;
            Expect.eventually("end of a new partition", 0L, () -> offset(topic, of, OffsetSpec.latest()));
        }
        return topic;
    }

    private long offset(String topic, int partition, OffsetSpec spec) throws Exception {
        TopicPartition of = new TopicPartition(topic, partition);
        return admin.listOffsets(Map.of(of, spec)).partitionResult(of).get().offset();
    }

    private RecordMetadata send(ProducerRecord<byte[], byte[]> record) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            return producer.send(record).get();
        }
    }

    /** Idempotence is off unless asked for: it excludes acks 0 and 1. */
    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.idempotence", false, "linger.ms", 5));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** A fetch that the broker has parked delays the end of its consumer, so it is parked shortly unless asked otherwise. */
    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false, "fetch.max.wait.ms", 20));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<ConsumerRecord<byte[], byte[]>> read(String topic, int partition, long first, int count, Map<String, Object> settings) {
        return read(List.of(new TopicPartition(topic, partition)), first, count, settings);
    }

    /** Reads `count` records from `first` on in each partition; fewer when patience ends, more when there are more. */
    private List<ConsumerRecord<byte[], byte[]>> read(List<TopicPartition> of, long first, int count, Map<String, Object> settings) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(of);
            if (first == 0) {
                consumer.seekToBeginning(of);
            } else {
                of.forEach(partition -> consumer.seek(partition, first));
            }
            while (records.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(500)).forEach(records::add);
            }
        }
        return records;
    }
}
