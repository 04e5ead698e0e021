"""Kafka's DumpLogSegments on the segment files that the clients left: of a stopped broker all, of a running one the sealed."""

import re

from brokers import Running
from install import Missing, java_suite
from java_tools import PERF_RECORDS, ToolBox
from results import equal

COMBINATION = re.compile(r"-(none|gzip|snappy|lz4|zstd)-(0|1|all)-\d+$")


def prepare(arguments):
    if arguments.bootstrap and not arguments.data_dir:
        raise Missing("needs --data-dir with --bootstrap")
    return java_suite()


def cases(java, context):
    box = ToolBox(java)
    try:
        yield from dump_cases(DumpLog(box, context), context)
    finally:
        box.close()


def dump_cases(dump, context):
    if not dump.running:
        for client in context.clients:
            directories = [one for one in dump.directories(client) if COMBINATION.search(one.name)]
            if directories:
                yield client, lambda directories=directories: dump.combinations(directories)
    if "java-tools" in context.clients:
        yield "sealed", dump.sealed
        yield "indexes", dump.indexes


class DumpLog:
    def __init__(self, box, context):
        self.box, self.run_id, self.data_dir = box, context.run_id, context.broker.data_dir
        self.running = isinstance(context.broker, Running)

    def directories(self, client):
        return sorted(self.data_dir.glob(f"{self.run_id}-{client}-*-[0-9]*"))

    def call(self, files, *options):
        said = self.box.call("DumpLogSegments", *options, "--files", ",".join(map(str, files)))
        if trouble := re.search(r"[Mm]ismatch.*|[Ee]rror.*|[Ee]xception.*", said):
            raise RuntimeError(trouble[0])
        return said

    def combinations(self, directories):
        """Every batch is valid and compressed as asked (or not at all: a client may keep what does not shrink), and the
        records inside have every offset once."""
        logs = [file for directory in directories for file in directory.glob("*.log") if file.stat().st_size > 0]
        said = self.call(logs, "--deep-iteration", "--print-data-log")
        files = re.split(r"^Dumping (\S+)$", said, flags=re.M)[1:]
        equal("files", True, 0 < len(logs) == len(files) // 2)
        for path, text in zip(files[::2], files[1::2]):
            codec = COMBINATION.search(path.split("/")[-2])[1]
            batches = batches_of(text)
            equal(f"{path}: batches that are invalid", [], [batch for batch in batches if batch["isvalid"] != "true"])
            equal(f"{path}: compression", True, {codec} <= {batch["compresscodec"] for batch in batches} <= {codec, "none"})
            offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", text, flags=re.M)]
            equal(f"{path}: offsets", list(range(sum(int(batch["count"]) for batch in batches))), offsets)

    def sealed(self):
        """The segments of one partition follow each other without a gap."""
        logs = self.segments(".log")
        equal("several segments", True, len(logs) > 2)
        batches = batches_of(self.call(logs, "--max-message-size", "2000000"))
        expected = 0
        for batch in batches:
            equal("base offset", expected, int(batch["baseOffset"]))
            equal("valid", "true", batch["isvalid"])
            expected = int(batch["lastOffset"]) + 1
        equal("records up to the last file", True, 0 < expected < PERF_RECORDS if self.running else expected == PERF_RECORDS)

    def indexes(self):
        files = self.segments(".index") + self.segments(".timeindex")
        equal("two of each segment", 2 * len(self.segments(".log")), len(files))
        said = self.call(files)
        equal("entries", True, len(re.findall(r"^offset: \d+ position: \d+$", said, flags=re.M)) > 10)
        equal("sane", len(files), self.call(files, "--index-sanity-check").count("passed sanity check"))

    def segments(self, suffix):
        """Those of the producer performance test, less the active one of a broker that runs."""
        files = sorted((self.data_dir / f"{self.run_id}-java-tools-perf-0").glob(f"*{suffix}"))
        return files[:-1] if self.running else files


def batches_of(text):
    """The batch lines of a dump as dictionaries."""
    lines = [line for line in text.splitlines() if line.startswith("baseOffset: ")]
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]
