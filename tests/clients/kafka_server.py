"""One Apache Kafka node from Maven, on loopback: the reference for the self-check and for comparisons.

    python3 tests/clients/kafka_server.py --dir DIR [KEY=VALUE ...]

starts one with further lines of server.properties, prints `ready kafka=H:P` and stops it at the end of standard input.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import install
from brokers import Broker, BrokerFailed, free_ports


class Kafka(Broker):
    """One Apache Kafka node in KRaft combined mode, formatted fresh in `work_dir`.

    `settings` are further lines of server.properties, for example to compare with a setting of Pinion.
    """

    name = "kafka"

    def __init__(self, jars, work_dir, settings=()):
        self.jars, self.work_dir, self.settings = jars, Path(work_dir), list(settings)
        self.data_dir, self.log = self.work_dir / "data", self.work_dir / "kafka.log"

    def __enter__(self):
        self.work_dir.mkdir(parents=True, exist_ok=True)
        client_port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{client_port}"
        properties = self.work_dir / "server.properties"
        properties.write_text("\n".join(self._properties(controller_port)) + "\n")
        self._java("kafka.tools.StorageTool", "format", "-t", "UGluaW9uLWNsaWVudHMxMQ", "-c", properties).wait()
        self.process = self._java("kafka.Kafka", properties)
        self._wait_until_started()
        return self

    def _properties(self, controller_port):
        return [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data_dir}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self.settings,
        ]

    def _java(self, main, *arguments):
        log = open(self.log, "ab")
        return subprocess.Popen([*self._command(main), *map(str, arguments)],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.work_dir)

    def _command(self, main):
        return ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*", main]

    def _wait_until_started(self):
        """The port opens before the broker is unfenced; a created topic has a leader only afterwards. The broker's
        own log says when, but its logger is silent here, so ask with the admin tool."""
        asked = [*self._command("org.apache.kafka.tools.ClusterTool"), "list-endpoints", "--bootstrap-server", self.bootstrap]
        deadline = time.monotonic() + self.start_s_max
        while time.monotonic() < deadline and self.process.poll() is None:
            answer = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=self.start_s_max)
            if self.bootstrap.rpartition(":")[2] in answer.stdout:
                return
        raise BrokerFailed(f"exit status {self.stop()}; {self.last_words()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True, help="an empty directory for settings, log and data")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    with Kafka(install.java_jars(), arguments.dir, arguments.settings) as kafka:
        print(f"ready kafka={kafka.bootstrap}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
