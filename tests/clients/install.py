"""Brings each client from its registry into a cache under target/clients, once: a stamp holds the hash of what asked for it.

Every function returns what is needed to run the client and raises `Missing` with the reason where that cannot be had.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
ROOT = SOURCE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
CACHE = TARGET / "clients"

# Registries have bad minutes: seconds to wait before each further attempt.
PAUSES_S = (5, 20, 60)
# Several suites want the same thing, and they prepare side by side.
LOCKS = defaultdict(threading.Lock)


class Missing(Exception):
    """A client cannot run here; the text says what it lacks."""


def java_jars():
    """The directory with the jars of java/pom.xml: Kafka's server, tools and clients."""
    need("java", "mvn")
    pom, jars = SOURCE / "java" / "pom.xml", CACHE / "java" / "lib"

    def copy():
        # log4j's and maven's own chatter is of interest only when this fails.
        call(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
              f"-DoutputDirectory={jars}", "-DincludeScope=runtime"], CACHE / "java", PAUSES_S)

    once("java", [pom], copy)
    return jars


def java_suite():
    """The directories with the jars and with the compiled classes of java/."""
    need("javac")
    jars = java_jars()
    sources, classes = sorted((SOURCE / "java").glob("*.java")), CACHE / "java-classes"
    once("java-classes", [*sources, SOURCE / "java" / "pom.xml"], lambda: call(
        ["javac", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)], classes))
    return jars, classes


def python_with_clients():
    """A Python interpreter that imports the packages of python/requirements.txt."""
    wanted, venv = SOURCE / "python" / "requirements.txt", CACHE / "python"

    def install():
        call([sys.executable, "-m", "venv", str(venv)], venv)
        call([str(venv / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "-r", str(wanted)], venv, PAUSES_S)

    once("python", [wanted], install)
    return venv / "bin" / "python"


def go_suite():
    """The compiled Go suite: franz-go, sarama and kafka-go."""
    need("go")
    folder, binary = SOURCE / "go", CACHE / "go" / "suite"
    need_go(folder / "go.mod")

    def install():
        call(["go", "mod", "download", "-C", str(folder)], CACHE / "go", PAUSES_S, GOTOOLCHAIN="local")
        call(["go", "build", "-C", str(folder), "-o", str(binary), "."], CACHE / "go", GOTOOLCHAIN="local", CGO_ENABLED="0")

    once("go", sorted(folder.iterdir()), install)
    return binary


def node_suite():
    """The Node suite beside its installed packages."""
    need("node", "npm")
    folder, place = SOURCE / "node", CACHE / "node"

    def install():
        place.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            shutil.copy(file, place)
        call(["npm", "ci", "--silent", "--ignore-scripts"], place, PAUSES_S)

    once("node", sorted(folder.iterdir()), install)
    return place / "suite.js"


def rust_suite():
    """The compiled librdkafka suite, a member of the workspace that no default build touches.

    librdkafka is built from source, which takes three minutes when optimised and less than one when not. The flags are
    why this has a target directory of its own: in a shared one they would build Pinion's C code anew, and Pinion with it.
    """
    need("cargo", "cc", "make")
    place = CACHE / "rust"
    call(["cargo", "build", "--quiet", "-p", "pinion-clients"], ROOT, PAUSES_S, CARGO_TARGET_DIR=str(place), CFLAGS="-O0 -g0")
    return place / "debug" / "pinion-clients"


def kcat(allowed):
    """The kcat on the path; from Debian's packages when the caller allows installing and we are root."""
    if not shutil.which("kcat") and allowed and os.geteuid() == 0 and shutil.which("apt-get"):
        call(["apt-get", "update", "-qq"], CACHE, PAUSES_S)
        call(["apt-get", "install", "-y", "-qq", "kcat"], CACHE, PAUSES_S, DEBIAN_FRONTEND="noninteractive")
    need("kcat")
    return "kcat"


def need(*tools):
    """Ends with `Missing` unless every tool is on the path."""
    absent = [tool for tool in tools if not shutil.which(tool)]
    if absent:
        raise Missing(f"{', '.join(absent)} not found")


def need_go(module):
    """Ends with `Missing` when Go is older than the module asks for. Old ones say so in words of their own, and too late."""
    wanted = re.search(r"^go (\d+)\.(\d+)", module.read_text(), re.MULTILINE)
    found = re.search(r"go(\d+)\.(\d+)", subprocess.run(["go", "version"], capture_output=True, text=True).stdout)
    if not found or (int(found[1]), int(found[2])) < (int(wanted[1]), int(wanted[2])):
        raise Missing(f"{found[0] if found else 'go'} is older than go{wanted[1]}.{wanted[2]}")


def once(name, inputs, install):
    """Runs `install` in a fresh directory unless it already ran for these very inputs."""
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    stamp = CACHE / name / ".stamp"
    with LOCKS[name]:
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        shutil.rmtree(CACHE / name, ignore_errors=True)
        install()
        stamp.write_text(digest.hexdigest())


def call(command, place, pauses_s=(), **environment):
    """Runs a package manager, again after each of the pauses while it fails; its last words become the reason."""
    place.mkdir(parents=True, exist_ok=True)
    for pause_s in (*pauses_s, None):
        done = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**os.environ, **environment})
        if done.returncode == 0:
            return
        words = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        if pause_s is None:
            raise Missing(f"{' '.join(command[:2])} failed: {words}")
        print(f"{' '.join(command[:2])} failed, again in {pause_s} s: {words}", flush=True)
        time.sleep(pause_s)
