"""Every client as a suite: what it needs, how it is run, in which phase. The order here is that of the report."""

import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import dump_log
import install
import java_tools
import kcat_cases
from results import Case, Result, cases_of

CLIENTS, READERS, STOPPED = PHASES = ("clients", "readers", "stopped")


@dataclass
class Context:
    """What a suite may use: the broker, a prefix for its topics, a scratch directory, a base for timestamps."""

    broker: object
    run_id: str
    scratch: Path
    clients: list
    # An hour ago in whole seconds: no broker deletes it yet, and it is not what a clock would say.
    base_ms: int = field(default_factory=lambda: (int(time.time()) - 3600) * 1000)


@dataclass
class Program:
    """A client with a program of its own, that prints a line a case and `done` at its end."""

    name: str
    prepare: object
    command: object
    phase: str = CLIENTS
    budget_s: int = 120

    def run(self, ready, context):
        started = time.monotonic()
        command = [*map(str, self.command(ready, context))]
        errors = context.scratch / f"{self.name}.err"
        with open(errors, "wb") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=context.scratch)
            try:
                output, _ = process.communicate(timeout=self.budget_s)
                ending = f"ended with status {process.returncode}"
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                ending = f"still running after {self.budget_s} s"
        cases = parse(output.decode(errors="replace"), ending, errors)
        return Result(self.name, cases, seconds=time.monotonic() - started)


def parse(output, ending, errors):
    """A program that stops before its `done` has failed, whatever it said before."""
    cases = []
    for line in output.splitlines():
        if said := re.fullmatch(r"ok (\S+)", line):
            cases.append(Case(said[1]))
        elif said := re.fullmatch(r"FAIL (\S+): (.*)", line):
            cases.append(Case(said[1], said[2] or "no reason given"))
    if output.splitlines()[-1:] != ["done"] or ending != "ended with status 0":
        words = errors.read_text(errors="replace").strip().splitlines()[-3:]
        cases.append(Case("to-the-end", f"{ending} after {cases[-1].name if cases else 'nothing'}: {' | '.join(words)}"))
    return cases


@dataclass
class Checks:
    """A client that this process drives itself: `cases(ready, context)` yields (name, body)."""

    name: str
    prepare: object
    cases: object
    phase: str = CLIENTS

    def run(self, ready, context):
        started = time.monotonic()
        cases = cases_of(self.cases(ready, context))
        return Result(self.name, cases, seconds=time.monotonic() - started)


def stop(broker):
    """The broker itself took part: it must end cleanly on SIGTERM (a JVM says so with 128 + 15)."""
    status = broker.stop()
    failure = None if status in (0, 143) else f"exit status {status}; {broker.last_words()}"
    return Result(broker.name, [Case("clean-stop", failure)])


def python(module):
    return lambda ready, context: [ready, install.SOURCE / "python" / module, *positional(context)]


def go(client):
    return lambda ready, context: [ready, *positional(context), client]


def java(*more):
    return lambda ready, context: [*java_tools.JVM, "-cp", f"{ready[1]}:{ready[0]}/*", "Suite", *positional(context), *more]


def read_back(ready, context):
    """Java reads what each of the others wrote in every compression and acks."""
    writers = [suite.name for suite in ALL if isinstance(suite, Program) and suite.phase == CLIENTS and suite.name in context.clients]
    return java(",".join(writers))(ready, context)


def positional(context):
    return [context.broker.bootstrap, context.base_ms, context.run_id]


ALL = [
    Program("java", lambda _: install.java_suite(), java()),
    Checks("java-tools", lambda _: install.java_suite(), java_tools.cases),
    Program("rdkafka", lambda _: install.rust_suite(), lambda ready, context: [ready, *positional(context)]),
    Checks("kcat", lambda arguments: install.kcat(arguments.install), kcat_cases.cases),
    Program("confluent-kafka", lambda _: install.python_with_clients(), python("confluent_kafka_suite.py")),
    Program("kafka-python", lambda _: install.python_with_clients(), python("kafka_python_suite.py")),
    Program("aiokafka", lambda _: install.python_with_clients(), python("aiokafka_suite.py")),
    Program("franz-go", lambda _: install.go_suite(), go("franz-go")),
    Program("sarama", lambda _: install.go_suite(), go("sarama")),
    Program("kafka-go", lambda _: install.go_suite(), go("kafka-go")),
    Program("kafkajs", lambda _: install.node_suite(), lambda ready, context: ["node", ready, *positional(context)]),
    Program("read-back", lambda _: install.java_suite(), read_back, phase=READERS),
    Checks("dump-log", dump_log.prepare, dump_log.cases, phase=STOPPED),
]
