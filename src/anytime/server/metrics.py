"""Counters of the server, for Prometheus (`/metrics`) and for the page's chart (`/v1/stats`)."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from anytime.server.encode import Result
from anytime.server.supervisor import Supervisor

RECENT_SECONDS = 10.0
"""Time that the recent answers of `/v1/stats` go back."""
SLACK = (-1.0, -0.1, -0.01, 0.0, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class Metrics:
    """Everything that is counted, in a registry of its own."""

    def __init__(self, supervisor: Supervisor, length: int) -> None:
        self.registry, self.supervisor = CollectorRegistry(), supervisor
        counts = tuple(sorted({max(1, round(length * part / 16)) for part in range(1, 17)}))
        self.requests = self._add(Counter, "requests", "Requests by route and status.", ["route", "status"])
        self.codes = self._add(Histogram, "codes_per_answer", "Codes of each answer.", buckets=counts)
        self.slack = self._add(Histogram, "deadline_slack_seconds", "Time left when an answer was ready.", buckets=SLACK)
        self.seconds = self._add(Histogram, "answer_seconds", "Time from arrival until an answer was ready.")
        self.shortened = self._add(Counter, "shortened", "Answers with fewer codes than requested.")
        self.cancelled = self._add(Counter, "cancelled", "Requests whose client went away.")
        self.refused = self._add(Counter, "refused", "Requests refused by reason: deadline, queue or overload.", ["reason"])
        gauges = {
            "queue": ("Requests in the engine.", lambda: len(supervisor.tickets)),
            "waiting": ("Requests without slots.", lambda: supervisor.stats.waiting if supervisor.stats else 0),
            "slots_used": ("Rows in slots.", lambda: supervisor.stats.slots_used if supervisor.stats else 0),
            "step_seconds": ("Time of the last step.", lambda: supervisor.stats.step_seconds if supervisor.stats else 0),
            "level": ("Codes that the plan has time for.", lambda: supervisor.stats.level if supervisor.stats else 0),
            "engine_alive": ("Whether the engine takes requests.", lambda: supervisor.is_alive),
            "spare_ready": (
                "Whether a spare engine waits.",
                lambda: supervisor.spare is not None and supervisor.spare.is_ready,
            ),
            "engine_restarts": ("Engine processes that were replaced.", lambda: supervisor.restarts),
        }
        for name, (text, value) in gauges.items():
            self._add(Gauge, name, text).set_function(value)
        self._recent: deque[tuple[float, int, float]] = deque()  # time, codes, slack

    def _add(self, kind: Any, name: str, text: str, labels: list[str] | None = None, **options: Any) -> Any:
        return kind(f"anytime_{name}", text, labels or [], registry=self.registry, **options)

    def answered(self, result: Result, slack: float) -> None:
        """Count an answer."""
        self.codes.observe(result.count)
        self.slack.observe(slack)
        self.seconds.observe(result.seconds)
        if result.shortened:
            self.shortened.inc()
        self._recent.append((time.monotonic(), result.count, slack))
        self._forget()

    def _forget(self) -> None:
        oldest = time.monotonic() - RECENT_SECONDS
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()

    def text(self) -> bytes:
        """Return the metrics in Prometheus' format."""
        content: bytes = generate_latest(self.registry)
        return content

    def stats(self) -> dict[str, Any]:
        """Return the present load, and the answers of the last seconds."""
        self._forget()
        since = time.monotonic() - 1.0
        last = [(codes, slack) for at, codes, slack in self._recent if at >= since]
        engine = self.supervisor.stats
        return {
            "queue": len(self.supervisor.tickets),
            "slots_used": engine.slots_used if engine else 0,
            "level": engine.level if engine else 0.0,
            "slowdown": engine.slowdown if engine else 1.0,
            "engine": engine.choice if engine else "",
            "answers_per_second": len(last),
            "codes_per_answer": sum(codes for codes, _ in last) / len(last) if last else None,
            "slack_ms": 1000 * min(slack for _, slack in last) if last else None,
        }
