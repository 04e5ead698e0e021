import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The records that every client writes and expects back, as tests/clients/README.md describes them. */
final class Dataset {
    static final int PARTITIONS = 3;
    static final int RECORDS = 60;
    static final int PER_PARTITION = RECORDS / PARTITIONS;

    private Dataset() {}

    static ProducerRecord<byte[], byte[]> record(String topic, int i, long baseMs) {
        return new ProducerRecord<>(topic, i % PARTITIONS, baseMs + i * 1000L, bytes(key(i)), bytes(value(i)), headers(i));
    }

    static String key(int i) {
        return i % 5 == 0 ? null : "key-" + i;
    }

    static String value(int i) {
        return key(i) != null && i % 7 == 3 ? null : "value-" + i + "-" + "x".repeat(i * 37 % 200);
    }

    private static List<Header> headers(int i) {
        return List.of(new RecordHeader("n", bytes("" + i)), new RecordHeader("n", bytes("again")), new RecordHeader("empty", new byte[0]));
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    /** Every partition from `firstOffset` on holds what was written, in order, and nothing else. */
    static void check(List<ConsumerRecord<byte[], byte[]>> records, int partition, int firstOffset, long baseMs) {
        List<String> expected = new ArrayList<>();
        for (int offset = firstOffset; offset < PER_PARTITION; offset++) {
            int i = offset * PARTITIONS + partition;
            expected.add(describe(offset, baseMs + i * 1000L, key(i), value(i), "[n=" + i + ", n=again, empty=]"));
        }
        List<String> found = records.stream().map(Dataset::describe).toList();
        Expect.equal("partition " + partition, expected, found);
    }

    private static String describe(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        return describe(record.offset(), record.timestamp(), text(record.key()), text(record.value()), headers.toString());
    }

    private static String describe(long offset, long timestamp, String key, String value, String headers) {
        return offset + " @" + timestamp + " " + key + "=" + value + " " + headers;
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
