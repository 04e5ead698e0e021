"""Brokers that the suite runs against: Pinion by command, or one that is running already. Kafka is in kafka_server.py.

Everything listens on loopback. A broker is a context manager; its address is `bootstrap`, its files are in `data_dir`.
"""

import re
import select
import signal
import socket
import subprocess
from pathlib import Path


def free_ports(count):
    """Ports that were free a moment ago. All are held at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    for held in sockets:
        held.bind(("127.0.0.1", 0))
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


class BrokerFailed(Exception):
    """The broker did not come up, or not down; the text ends with its last words."""


class Broker:
    """A child process that serves clients until the block ends. `stop` may be called earlier, and twice."""

    bootstrap = None
    data_dir = None
    process = None
    log = None
    start_s_max = 60

    def stop(self):
        """Ask for a clean stop, so that the files on disk end at their last batch; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def has_ended(self):
        return self.process is not None and self.process.poll() is not None

    def last_words(self):
        """The panic where there is one, else the end of the log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        bug = next((at for at, line in enumerate(lines) if "bug:" in line), -3)
        return f"{self.log}: {' | '.join(lines[bug:][:3])}"

    def __exit__(self, *_):
        self.stop()


class Pinion(Broker):
    """`command` with a data directory, free ports and patience with a slow or rather full disk appended; ready when it prints its `ready` line."""

    name = "pinion"

    def __init__(self, command, work_dir):
        self.command, self.work_dir = command, Path(work_dir)
        self.data_dir, self.log = self.work_dir / "data", self.work_dir / "pinion.log"

    def __enter__(self):
        self.work_dir.mkdir(parents=True, exist_ok=True)
        command = [*self.command, "--data-dir", str(self.data_dir), "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0",
                   "--http", "127.0.0.1:0", "--set", "disk.stall.timeout.ms=60s", "--set", "log.min.free.bytes=0"]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(self.log, "ab"))
        except OSError as failure:
            raise BrokerFailed(str(failure)) from failure
        readable, _, _ = select.select([self.process.stdout], [], [], self.start_s_max)
        line = self.process.stdout.readline().decode() if readable else ""
        ready = re.match(r"ready .*\bkafka=(\S+)", line)
        if not ready:
            raise BrokerFailed(f"exit status {self.stop()}, no ready line but {line!r}; {self.last_words()}")
        self.bootstrap = ready.group(1)
        return self


class Running(Broker):
    """A broker that somebody else started and stops."""

    name = "running"

    def __init__(self, bootstrap, data_dir):
        self.bootstrap, self.data_dir = bootstrap, Path(data_dir) if data_dir else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
