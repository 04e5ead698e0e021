"""kcat, the command that people try a broker with. Its topics come from auto-creation; it sets no timestamps of its own."""

import json
import subprocess
import time

from results import equal, eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 20
# What kcat reads with -K '|' -Z: an empty part is null.
LINES = [f"{'' if i % 5 == 0 else f'key-{i}'}|{'' if i % 7 == 3 else f'value-{i}-' + 'x' * (i * 37 % 200)}" for i in range(RECORDS)]
HEADERS = ["n", "1", "n", "again", "empty", ""]


def cases(program, context):
    kcat = Kcat(program, context)
    yield "auto-create", lambda: kcat.create("auto")
    for codec in CODECS:
        for acks in ("0", "1", "all"):
            yield f"{codec}/{acks}", lambda codec=codec, acks=acks: kcat.round_trip(f"{codec}-{acks}", codec, f"acks={acks}")
    yield "idempotent", lambda: kcat.round_trip("idempotent", "lz4", "enable.idempotence=true")
    yield "large", kcat.large
    yield "by-time", kcat.by_time
    yield "bounds", kcat.bounds
    yield "middle", kcat.middle


class Kcat:
    def __init__(self, program, context):
        self.program, self.bootstrap, self.prefix = program, context.broker.bootstrap, f"{context.run_id}-kcat-"
        self.started_ms = int(time.time() * 1000)

    def call(self, *arguments, stdin=b""):
        done = subprocess.run([self.program, "-b", self.bootstrap, "-m", "20", *arguments], input=stdin, capture_output=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)[:60]}: status {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
        return done.stdout

    def create(self, name):
        """Asking for metadata of an unknown topic creates it; it is there when partition 0 has a leader that knows its end."""
        topic = self.prefix + name
        eventually("partition 0 has a leader", True, lambda: any(
            partition["partition"] == 0 and partition["leader"] > 0 for partition in self.described(topic)["partitions"]))
        eventually("offset of the end", True, lambda: self.offset(topic, -1) == 0)
        return topic

    def described(self, topic):
        return next(one for one in json.loads(self.call("-L", "-J", "-t", topic))["topics"] if one["topic"] == topic)

    def offset(self, topic, of):
        """-1 while the partition has no leader that could tell."""
        try:
            return int(self.call("-Q", "-t", f"{topic}:0:{of}").split()[-1])
        except RuntimeError:
            return -1

    def round_trip(self, name, codec, setting):
        topic = self.create(name)
        headers = [part for at in range(0, len(HEADERS), 2) for part in ("-H", f"{HEADERS[at]}={HEADERS[at + 1]}")]
        self.call("-P", "-t", topic, "-p", "0", "-K", "|", "-Z", "-z", codec, "-X", setting, "-X", "linger.ms=5", *headers,
                  stdin="\n".join(LINES).encode() + b"\n")
        eventually("number of records", RECORDS, lambda: self.offset(topic, -1))
        self.check(topic, 0)

    def check(self, topic, first, start=None):
        found = self.read(topic, str(first) if start is None else start)
        for offset, line in list(enumerate(LINES))[first:]:
            key, _, value = line.partition("|")
            expected = {"offset": offset, "key": key or None, "payload": value or None, "headers": HEADERS, "tstype": "create"}
            equal("record", expected, {name: found[offset - first][name] for name in expected})
            equal("timestamp within this run", True, self.started_ms <= found[offset - first]["ts"] <= time.time() * 1000)
        equal("number of records", RECORDS - first, len(found))

    def read(self, topic, start):
        lines = self.call("-C", "-q", "-J", "-e", "-t", topic, "-p", "0", "-o", start, "-X", "fetch.wait.max.ms=20").splitlines()
        return [json.loads(line) for line in lines]

    def large(self):
        topic, value = self.create("large"), "0123456789" * 90_000
        # Without -K the whole of standard input up to the delimiter is one record.
        self.call("-P", "-t", topic, "-p", "0", "-D", "|", stdin=value.encode())
        equal("same bytes", [value], [one["payload"] for one in self.read(topic, "beginning")])

    def by_time(self):
        self.check(self.prefix + "zstd-all", 0, f"s@{self.started_ms}")
        last = self.read(self.prefix + "zstd-all", "-1")[0]
        equal("first record at the time of the last", True, self.read(self.prefix + "zstd-all", f"s@{last['ts']}")[0]["ts"] >= last["ts"])

    def bounds(self):
        equal("beginning and end", (0, RECORDS), tuple(self.offset(self.prefix + "none-all", of) for of in (-2, -1)))

    def middle(self):
        for codec in CODECS:
            self.check(f"{self.prefix}{codec}-all", 13)
        self.check(self.prefix + "gzip-all", RECORDS - 5, "-5")
