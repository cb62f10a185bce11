"""GET /debug/state: all that a dashboard shows, in one answer."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from pagoda.core.version import own_version
from pagoda.engine.output import RequestOutput
from pagoda.engine.snapshot import Snapshot
from pagoda.observability.histogram import Histogram
from pagoda.scheduler.view import SequenceView
from pagoda.scheduler.words import sentence
from pagoda.server.exchange import Exchange
from pagoda.server.history import History, Sample
from pagoda.server.service import Service

RATE_SECONDS = 5.0


async def debug_state(exchange: Exchange, service: Service) -> None:
    snapshot, age = await service.snapshots.latest()
    content = describe(service, snapshot, age, time.monotonic())
    await exchange.json(content, headers=[(b"cache-control", b"no-store")])


def describe(service: Service, snapshot: Snapshot | None, age: float, now: float) -> dict[str, Any]:
    return {
        "model": service.model_name,
        "version": own_version(),
        "engine": _engine(service),
        "now": _now(service, now),
        "latency": _latency(service, now),
        "history": _columns(service.history, now),
        "requests": _requests(service, snapshot, now),
        "num_waiting_left_out": _left_out(service, snapshot),
        "pages": _pages(snapshot),
        "steps": _steps(snapshot, now),
        "snapshot_age_seconds": round(age, 3) if snapshot is not None else None,
    }


def _engine(service: Service) -> dict[str, Any]:
    state, info = service.engine.state, service.engine.state.info
    status = "ready" if state.is_ready else "loading" if state.pid is not None else "down"
    found: dict[str, Any] = {
        "status": "draining" if service.admission.is_draining else status,
        "num_loaded": state.num_loaded,
        "num_to_load": state.num_to_load,
        "num_deaths": state.num_deaths,
    }
    if info is not None:
        found |= {
            "max_model_len": info.max_model_len,
            "max_num_seqs": info.max_num_seqs,
            "page_size": info.page_size,
            "num_pages": info.num_pages,
            "weight_bytes": info.weight_bytes,
            "cache_bytes": info.cache_bytes,
            "kv_cache_type": info.kv_cache_type,
            "compute": info.compute,
        }
    return found


def _now(service: Service, now: float) -> dict[str, Any]:
    latest, before = service.history.since(now, RATE_SECONDS)
    seconds = max(latest.time - before.time, 1e-3)
    report, info = service.engine.state.report, service.engine.state.info
    idle = 0.0
    if report is not None and info is not None and info.num_pages[0]:
        idle = report.num_idle_pages[0] / info.num_pages[0]
    return {
        "new_tokens_per_second": (latest.num_new_tokens - before.num_new_tokens) / seconds,
        "prompt_tokens_per_second": (latest.num_prompt_tokens - before.num_prompt_tokens) / seconds,
        "num_running": latest.num_running,
        "num_waiting": latest.num_waiting,
        "num_open": service.admission.num_open,
        "num_refused": service.admission.num_refused,
        "num_preemptions": report.num_preemptions if report is not None else 0,
        "num_paused": report.num_paused if report is not None else 0,
        "num_steps": report.num_steps if report is not None else 0,
        "kv_used": latest.used,
        "kv_idle": idle,
        "hit_rate": {
            "last_minute": _hit_rate(*service.history.since(now)),
            "since_start": _hit_rate(latest, None),
        },
        "num_new_tokens": latest.num_new_tokens,
        "num_prompt_tokens": latest.num_prompt_tokens,
    }


def _hit_rate(latest: Sample, before: Sample | None) -> float | None:
    """None where no prompt was looked up."""
    num_looked_up = latest.num_prompt_tokens - (before.num_prompt_tokens if before else 0)
    num_found = latest.num_cached_tokens - (before.num_cached_tokens if before else 0)
    return num_found / num_looked_up if num_looked_up else None


def _latency(service: Service, now: float) -> dict[str, Any]:
    latest, before = service.history.since(now)
    return {
        "first_token": {
            "last_minute": _percentiles(latest.first_token.since(before.first_token)),
            "since_start": _percentiles(latest.first_token),
        },
        "between_tokens": {
            "last_minute": _percentiles(latest.between_tokens.since(before.between_tokens)),
            "since_start": _percentiles(latest.between_tokens),
        },
    }


def _percentiles(histogram: Histogram) -> dict[str, Any]:
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {"count": histogram.count} | {name: histogram.percentile(share) for name, share in shares.items()}


def _columns(history: History, now: float) -> dict[str, list[float]]:
    """One list for each quantity: shorter than a record for each second."""
    rates = [asdict(rates) for rates in history.rates(now)]
    names = ("seconds_ago", "new_tokens", "prompt_tokens", "num_running", "num_waiting", "used")
    return {name: [round(one[name], 3) for one in rates] for name in names}


def _requests(service: Service, snapshot: Snapshot | None, now: float) -> list[dict[str, Any]]:
    """Those that the engine has, in its order, and those that are on their way to it."""
    outputs = {output.request_id: output for output in service.engine.open_outputs()}
    views = [*snapshot.running, *snapshot.waiting] if snapshot is not None else []
    found = [_request(view, outputs.get(view.request_id), now) for view in views]
    known = {view.request_id for view in views}
    if snapshot is None:
        found += [_arriving(output, now) for output in outputs.values() if output.request_id not in known]
    return found


def _request(view: SequenceView, output: RequestOutput | None, now: float) -> dict[str, Any]:
    return {
        "number": view.number,
        "id": view.request_id,
        "sample": view.sample_index,
        "phase": view.phase,
        "priority": view.priority,
        "prompt_tokens": view.num_prompt_tokens,
        "cached_tokens": output.num_cached_tokens if output is not None else 0,
        "computed_tokens": view.num_computed,
        "new_tokens": max(0, view.num_known - view.num_prompt_tokens),
        "max_new_tokens": view.max_total_tokens - view.num_prompt_tokens,
        "pages": view.num_pages,
        "preemptions": view.num_preemptions,
        "age_seconds": round(now - output.metrics.arrival_time, 3) if output is not None else None,
    }


def _arriving(output: RequestOutput, now: float) -> dict[str, Any]:
    """There is no engine, or it has not said anything yet."""
    num_prompt = len(output.prompt_token_ids)
    view = SequenceView(-1, output.request_id, 0, "waiting", 0, num_prompt, num_prompt, 0, num_prompt, 0, 0)
    return _request(view, output, now)


def _left_out(service: Service, snapshot: Snapshot | None) -> int:
    report = service.engine.state.report
    if snapshot is None or report is None:
        return 0
    return max(0, report.num_waiting - len(snapshot.waiting))


def _pages(snapshot: Snapshot | None) -> list[dict[str, Any]]:
    """`cells` is base64 of two bytes a cell: see `kv_cache/page_map.py`; owners are `number`s of requests."""
    if snapshot is None:
        return []
    owners = [view.number for view in snapshot.running]
    return [
        {
            "kind": group.kind,
            "num_pages": group.pages.num_pages,
            "stride": group.pages.stride,
            "owners": owners,
            "cells": group.pages.cells,
        }
        for group in snapshot.groups
    ]


def _steps(snapshot: Snapshot | None, now: float) -> list[dict[str, Any]]:
    if snapshot is None:
        return []
    decided: dict[int, list[dict[str, Any]]] = {}
    for one in snapshot.decisions:
        words = {"request": one.request_id, "sample": one.sample_index}
        words |= {"kind": one.reason.name.lower(), "text": sentence(one)}
        decided.setdefault(one.step_id, []).append(words)
    return [
        {
            "step": step.step_id,
            "seconds_ago": round(now - step.time, 3),
            "milliseconds": round(1e3 * step.seconds, 3),
            "rows": step.num_rows,
            "tokens": step.num_tokens,
            "drawn": step.num_drawn,
            "decisions": decided.get(step.step_id, []),
        }
        for step in snapshot.steps
    ]
