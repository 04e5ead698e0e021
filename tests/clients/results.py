"""Results of cases, and cases that run in this process."""

import time
from dataclasses import dataclass, field


@dataclass
class Case:
    name: str
    failure: str | None = None


@dataclass
class Result:
    """What one client did; `missing` says why it did not run at all."""

    client: str
    cases: list = field(default_factory=list)
    missing: str | None = None
    seconds: float = 0.0


def cases_of(named, budget_s=120):
    """Runs (name, body) pairs one after the other; a body fails by raising. None is started after `budget_s`."""
    cases, deadline = [], time.monotonic() + budget_s
    for name, body in named:
        if time.monotonic() > deadline:
            cases.append(Case(name, f"not started, {budget_s} s are over"))
            continue
        try:
            body()
            cases.append(Case(name))
        except Exception as failure:
            cases.append(Case(name, " ".join(f"{type(failure).__name__}: {failure}".split())))
    return cases


def equal(what, expected, found):
    if expected != found:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


def eventually(what, expected, ask, patience_s=20):
    """Metadata follows a change that was acknowledged with a delay that nothing bounds; we give it patience."""
    deadline = time.monotonic() + patience_s
    while (found := ask()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    equal(what, expected, found)
