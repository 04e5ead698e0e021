"""The cases that every Python client passes through; `records` is the data set of tests/clients/README.md.

A client module hands an adapter to `run`. The adapter has the client's name, `codecs`, and

    create(topic)                                        a topic of PARTITIONS partitions
    write(topic, records, codec, acks, idempotent)       offsets as acknowledged, in order (None where acks is 0)
    read(topic, {partition: first offset}, count)        Records; fewer when patience ends, more when there are more
    offset_at(topic, partition, ms)                      the first offset at or after that time, or None
    bounds(topic, partition)                             (first offset, end offset)
    admin(topic)                                         checks what the client's admin side can do on that topic
"""

import sys
import time
from typing import NamedTuple

PARTITIONS, RECORDS = 3, 60
PER_PARTITION = RECORDS // PARTITIONS
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 20


class Record(NamedTuple):
    """What is written and read; the offset of a record that is not yet written is None."""

    partition: int
    offset: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list


def records(base_ms):
    """The data set: null keys, null values, a repeated and an empty header, a second between timestamps."""
    return [record(i, base_ms) for i in range(RECORDS)]


def record(i, base_ms):
    key = None if i % 5 == 0 else b"key-%d" % i
    value = None if key and i % 7 == 3 else b"value-%d-" % i + b"x" * (i * 37 % 200)
    headers = [("n", b"%d" % i), ("n", b"again"), ("empty", b"")]
    return Record(i % PARTITIONS, i // PARTITIONS, base_ms + i * 1000, key, value, headers)


def run(client):
    """Arguments: BOOTSTRAP (which the adapter has taken), BASE_MS, PREFIX. One line a case on stdout, then `done`."""
    cases = Cases(client, int(sys.argv[2]), f"{sys.argv[3]}-{client.name}-")
    for codec in client.codecs:
        for acks in ("0", "1", "all"):
            cases.case(f"{codec}/{acks}", cases.round_trip, f"{codec}-{acks}", codec, acks)
    cases.case("idempotent", cases.round_trip, "idempotent", "lz4", "all", True)
    cases.case("large", cases.large)
    for codec in client.codecs:
        cases.case(f"by-time/{codec}", cases.by_time, f"{codec}-all")
    cases.case("bounds", cases.bounds)
    cases.case("middle", cases.middle)
    cases.case("admin", cases.admin)
    print("done", flush=True)


class Cases:
    def __init__(self, client, base_ms, prefix):
        self.client, self.base_ms, self.prefix = client, base_ms, prefix

    def case(self, name, body, *arguments):
        try:
            body(*arguments)
            print(f"ok {name}", flush=True)
        except Exception as failure:
            words = " ".join(f"{type(failure).__name__}: {failure}".split())
            print(f"FAIL {name}: {words}", flush=True)

    def create(self, topic):
        """A topic is known before its leaders serve it; a write with acks 0 in between would be lost, as it may be."""
        self.client.create(topic)
        for partition in range(PARTITIONS):
            eventually("bounds of a new topic", (0, 0), lambda: self.client.bounds(topic, partition))

    def round_trip(self, name, codec, acks, idempotent=False):
        topic, sent = self.prefix + name, records(self.base_ms)
        self.create(topic)
        acknowledged = self.client.write(topic, sent, codec, acks, idempotent)
        if acks != "0":
            equal("acknowledged offsets", [record.offset for record in sent], acknowledged)
        self.check(topic, {partition: 0 for partition in range(PARTITIONS)})

    def check(self, topic, first):
        """From the first offsets on, the partitions hold what was written, in order, and nothing else."""
        expected = [record for record in records(self.base_ms) if record.partition in first and record.offset >= first[record.partition]]
        found = self.client.read(topic, first, len(expected))
        for partition in first:
            of_partition = [[record for record in side if record.partition == partition] for side in (expected, found)]
            for one in zip(*of_partition):
                equal(f"{topic} partition {partition}", *one)
            equal(f"{topic} partition {partition}: number of records", *map(len, of_partition))

    def large(self):
        topic, value = self.prefix + "large", bytes(at % 251 for at in range(900_000))
        self.create(topic)
        self.client.write(topic, [Record(0, 0, self.base_ms, b"large", value, [])], "none", "all", False)
        found = self.client.read(topic, {0: 0}, 1)
        equal("number of records", 1, len(found))
        equal("same bytes", True, found[0].value == value)

    def by_time(self, name):
        topic, middle = self.prefix + name, RECORDS // 2
        for partition in range(PARTITIONS):
            exact = self.base_ms + (middle + partition) * 1000
            asked = {"before all": 0, "at a record": exact, "just after it": exact + 1, "after all": self.base_ms + 3_000_000}
            found = {name: self.client.offset_at(topic, partition, ms) for name, ms in asked.items()}
            at = middle // PARTITIONS
            equal("offsets by time", {"before all": 0, "at a record": at, "just after it": at + 1, "after all": None}, found)

    def bounds(self):
        equal("offsets", (0, PER_PARTITION), self.client.bounds(self.prefix + "none-all", 1))

    def middle(self):
        for codec in self.client.codecs:
            for first in (1, 10, PER_PARTITION - 1):
                self.check(f"{self.prefix}{codec}-all", {1: first})

    def admin(self):
        self.create(self.prefix + "admin")
        self.client.admin(self.prefix + "admin")


def eventually(what, expected, ask):
    """Metadata follows a change that was acknowledged with a delay that nothing bounds; we give it PATIENCE_S.

    Until then a client may also fail to answer, which counts as a different answer.
    """
    def answer():
        try:
            return ask()
        except Exception as failure:
            return failure

    deadline = time.monotonic() + PATIENCE_S
    while (found := answer()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    equal(what, expected, found)


def equal(what, expected, found):
    if expected != found:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")
