"""The command-line tools of Apache Kafka, in one JVM: java/Tools.java calls the `main` of each."""

import json
import re
import subprocess
import threading

from results import equal, eventually

RECORDS = [("a:1,b:2", "key-1", "value-1"), ("a:3", "NULL", "value-2"), ("a:4", "key-3", "NULL")]
PERF_RECORDS, PERF_BYTES = 4000, 1000


JVM = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


class ToolBox:
    """Starts the tools; one that is not done after 60 s ends with the whole process, and the next start has a new one."""

    def __init__(self, java):
        jars, classes = java
        self.command = [*JVM, "-cp", f"{classes}:{jars}/*", "Tools"]
        self.process = None

    def call(self, tool, *arguments, stdin=""):
        """What the tool printed; an exit status other than 0 raises."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        watchdog = threading.Timer(60, self.process.kill)
        watchdog.start()
        self.process.stdin.write("\1".join([stdin.replace("\n", "\2"), f"org.apache.kafka.tools.{tool}", *arguments]) + "\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith("\1"):
                watchdog.cancel()
                return self.succeeded(tool, "".join(lines)[:-1], int(line[1:]))
            lines.append(line)
        raise RuntimeError(f"{tool}: not done after 60 s, or its process ended: {''.join(lines)[-300:]}")

    def succeeded(self, tool, said, status):
        if status != 0 or "Error while executing" in said:
            raise RuntimeError(f"{tool}: status {status}: {said.strip()[-400:]}")
        return said

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def cases(java, context):
    box = ToolBox(java)
    try:
        yield from tool_cases(Tools(box, context))
    finally:
        box.close()


def tool_cases(tools):
    yield "topics-create", tools.create
    yield "topics-describe", tools.describe
    yield "topics-list", tools.list
    yield "console-producer", tools.console_producer
    yield "console-consumer", tools.console_consumer
    yield "topics-alter", tools.more_partitions
    yield "get-offsets", tools.get_offsets
    yield "configs", tools.configs
    yield "broker-configs", tools.broker_configs
    yield "log-dirs", tools.log_dirs
    yield "delete-records", tools.delete_records
    yield "producer-perf-test", tools.producer_performance
    yield "describe-producers", tools.describe_producers
    yield "api-versions", tools.api_versions
    yield "cluster", tools.cluster
    yield "topics-delete", tools.delete


class Tools:
    def __init__(self, box, context):
        self.call, self.bootstrap, self.scratch = box.call, context.broker.bootstrap, context.scratch
        self.topic, self.perf_topic = f"{context.run_id}-java-tools", f"{context.run_id}-java-tools-perf"

    def at_broker(self, tool, *arguments, **options):
        return self.call(tool, "--bootstrap-server", self.bootstrap, *arguments, **options)

    def create(self):
        said = self.at_broker("TopicCommand", "--create", "--topic", self.topic, "--partitions", "1", "--replication-factor", "1",
                              "--config", "retention.ms=7200000")
        equal("answer", f"Created topic {self.topic}.", said.strip())

    def describe(self):
        said = self.at_broker("TopicCommand", "--describe", "--topic", self.topic)
        equal("partition count", "1", re.search(r"PartitionCount: (\d+)", said)[1])
        equal("given setting", True, "retention.ms=7200000" in said)
        equal("partition with leader, replica and in-sync replica", 1,
              len(re.findall(r"Partition: 0\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", said)))

    def list(self):
        equal("listed", True, self.topic in self.at_broker("TopicCommand", "--list").split())

    def console_producer(self):
        properties = [part for one in ("parse.key=true", "parse.headers=true", "null.marker=NULL") for part in ("--reader-property", one)]
        lines = "".join("\t".join(record) + "\n" for record in RECORDS)
        self.at_broker("ConsoleProducer", "--topic", self.topic, "--compression-codec", "zstd", *properties, stdin=lines)

    def console_consumer(self):
        printed = [part for one in ("partition", "offset", "headers", "key") for part in ("--formatter-property", f"print.{one}=true")]
        said = self.at_broker("consumer.ConsoleConsumer", "--topic", self.topic, "--partition", "0", "--offset", "earliest",
                              "--max-messages", str(len(RECORDS)), "--formatter-property", "null.literal=NULL", *printed)
        expected = [f"Partition:0\tOffset:{at}\t" + "\t".join(record) for at, record in enumerate(RECORDS)]
        equal("records", expected, said.splitlines())

    def more_partitions(self):
        self.at_broker("TopicCommand", "--alter", "--topic", self.topic, "--partitions", "3")
        eventually("partition count", True, lambda: "PartitionCount: 3" in self.at_broker("TopicCommand", "--describe", "--topic", self.topic))

    def get_offsets(self):
        end, start = len(RECORDS), 0
        for time, offset in (("latest", end), ("earliest", start), ("max-timestamp", None), ("1", start)):
            said = self.at_broker("GetOffsetShell", "--topic-partitions", f"{self.topic}:0", "--time", time).strip()
            if offset is None:
                equal("some offset for the greatest timestamp", True, said in [f"{self.topic}:0:{at}" for at in range(end)])
            else:
                equal(f"offset for {time}", f"{self.topic}:0:{offset}", said)

    def configs(self):
        of_topic = ("--entity-type", "topics", "--entity-name", self.topic)
        self.at_broker("ConfigCommand", *of_topic, "--alter", "--add-config", "retention.ms=3600000,max.message.bytes=2000000")
        wanted = {"retention.ms=3600000", "max.message.bytes=2000000"}
        eventually("settings", wanted, lambda: set(self.at_broker("ConfigCommand", *of_topic, "--describe").split()) & wanted)
        self.at_broker("ConfigCommand", *of_topic, "--alter", "--delete-config", "retention.ms")
        eventually("settings left", {"max.message.bytes=2000000"},
                   lambda: set(self.at_broker("ConfigCommand", *of_topic, "--describe").split()) & wanted)

    def broker_configs(self):
        said = self.at_broker("ConfigCommand", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
        equal("a known setting among them", True, " log.segment.bytes=" in said)

    def log_dirs(self):
        said = self.at_broker("LogDirsCommand", "--describe", "--topic-list", self.topic)
        [broker] = json.loads(said.splitlines()[-1])["brokers"]
        sizes = {one["partition"]: one["size"] for directory in broker["logDirs"] for one in directory["partitions"]}
        equal("partitions", {f"{self.topic}-{partition}" for partition in range(3)}, set(sizes))
        equal("partition 0 has bytes", True, sizes[f"{self.topic}-0"] > 0)

    def delete_records(self):
        plan = self.scratch / "delete-records.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": self.topic, "partition": 0, "offset": 2}]}))
        said = self.at_broker("DeleteRecordsCommand", "--offset-json-file", str(plan))
        equal("low watermark", f"partition: {self.topic}-0\tlow_watermark: 2", said.splitlines()[-1])
        said = self.at_broker("GetOffsetShell", "--topic-partitions", f"{self.topic}:0", "--time", "earliest").strip()
        equal("earliest offset", f"{self.topic}:0:2", said)

    def producer_performance(self):
        """The topic has several segments, which dump-log reads later."""
        self.at_broker("TopicCommand", "--create", "--topic", self.perf_topic, "--partitions", "1", "--replication-factor", "1",
                       "--config", f"segment.bytes={1 << 20}")
        said = self.at_broker("ProducerPerformance", "--topic", self.perf_topic, "--num-records", str(PERF_RECORDS),
                              "--record-size", str(PERF_BYTES), "--throughput", "-1", "--command-property", "acks=all")
        equal("records sent", True, f"{PERF_RECORDS} records sent" in said)
        said = self.at_broker("GetOffsetShell", "--topic-partitions", f"{self.perf_topic}:0").strip()
        equal("end offset", f"{self.perf_topic}:0:{PERF_RECORDS}", said)

    def describe_producers(self):
        said = self.at_broker("TransactionsCommand", "describe-producers", "--topic", self.perf_topic, "--partition", "0")
        [producer] = [line.split() for line in said.splitlines()[1:] if line.strip()]
        equal("last sequence", str(PERF_RECORDS - 1), producer[3])

    def api_versions(self):
        said = self.at_broker("BrokerApiVersionsCommand")
        for usable in ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]", "ListOffsets(2): 1 to 11 [usable: 11]",
                       "ApiVersions(18): 0 to "):
            equal(usable, True, usable in said)

    def cluster(self):
        equal("length of the cluster id", 22, len(self.call("ClusterTool", "cluster-id", "--bootstrap-server", self.bootstrap).split()[-1]))
        said = self.call("ClusterTool", "list-endpoints", "--bootstrap-server", self.bootstrap)
        equal("our endpoint", True, self.bootstrap.rpartition(":")[2] in said.split())

    def delete(self):
        self.at_broker("TopicCommand", "--delete", "--topic", self.topic)
        eventually("listed", False, lambda: self.topic in self.at_broker("TopicCommand", "--list").split())
