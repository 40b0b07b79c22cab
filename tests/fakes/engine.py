"""An inference engine's page of metrics, without the engine: what vLLM and SGLang declare, moving.

Names, types and labels are those of vLLM 0.33.0 (`vllm/v1/metrics/loggers.py`) and SGLang 0.5.23
(`sglang/srt/observability/metrics_collector.py`), as far as the rules read them; both write their
pages with prometheus_client, as this does.  Of their buckets a few are kept.
"""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

_REPLICA = ("model_name", "engine")
_SCHEDULER = ("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank")
_TOKENIZER = ("model_name", "engine_type")
_STREAMING = (*_TOKENIZER, "is_streaming")
DECLARED: dict[str, dict[str, tuple[type[Counter | Gauge | Histogram], tuple[str, ...]]]] = {
    "vllm": {
        "vllm:num_requests_running": (Gauge, _REPLICA),
        "vllm:num_requests_waiting": (Gauge, _REPLICA),
        "vllm:kv_cache_usage_perc": (Gauge, _REPLICA),
        "vllm:engine_sleep_state": (Gauge, (*_REPLICA, "sleep_state")),
        "vllm:generation_tokens": (Counter, _REPLICA),
        "vllm:prompt_tokens": (Counter, _REPLICA),
        "vllm:num_preemptions": (Counter, _REPLICA),
        "vllm:request_success": (Counter, (*_REPLICA, "finished_reason")),
        "vllm:time_to_first_token_seconds": (Histogram, _REPLICA),
        "vllm:inter_token_latency_seconds": (Histogram, _REPLICA),
    },
    "sglang": {
        "sglang:num_running_reqs": (Gauge, _SCHEDULER),
        "sglang:num_queue_reqs": (Gauge, _SCHEDULER),
        "sglang:token_usage": (Gauge, _SCHEDULER),
        "sglang:realtime_tokens_total": (Counter, (*_SCHEDULER, "mode")),
        "sglang:num_retracted_requests_total": (Counter, _SCHEDULER),
        "sglang:generation_tokens_total": (Counter, _STREAMING),
        "sglang:num_requests_total": (Counter, _STREAMING),
        "sglang:time_to_first_token_seconds": (Histogram, _STREAMING),
        "sglang:inter_token_latency_seconds": (Histogram, _TOKENIZER),
    },
}
"""Type and labels by the name in the declaration; prometheus_client ends a counter in `_total`."""
OF_OLDER_RELEASES = {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds_bucket"}
"""Of older releases of vLLM (documentation of 0.5.3, and early V1)."""
_BUCKETS = (0.01, 0.05, 0.25, 1.0, 5.0)


def series_names() -> set[str]:
    """The names of the series that rules may select."""
    names = set(OF_OLDER_RELEASES)
    for metrics in DECLARED.values():
        for name, (kind, _) in metrics.items():
            ending = {Counter: "_total", Histogram: "_bucket", Gauge: ""}[kind]
            names.add(name.removesuffix("_total") + ending)
    return names


class FakeEngine:
    """An engine that holds requests and, while it works, generates tokens; `close` ends it."""

    def __init__(self, kind: str, model: str = "Qwen/Qwen3-8B") -> None:
        self.registry = registry = CollectorRegistry()
        self.kind = kind
        self._labels = {
            "model_name": model, "engine": "0", "engine_type": "unified", "tp_rank": "0",
            "pp_rank": "0", "moe_ep_rank": "0", "is_streaming": "true", "finished_reason": "stop",
        }  # fmt: skip
        self._metrics = {
            name: (
                Histogram(name, name, labels, registry=registry, buckets=_BUCKETS)
                if metric is Histogram
                else metric(name, name, labels, registry=registry)
            )
            for name, (metric, labels) in DECLARED[kind].items()
        }
        self.working = threading.Event()
        self._ended = threading.Event()
        self.hold(0, 0)
        self.sleep(False)
        self._server, _ = start_http_server(0, "127.0.0.1", registry)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def hold(self, running: int, waiting: int, used: float = 0.5) -> None:
        """So many requests, and so much of the KV cache."""
        names = {
            "vllm": ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"),
            "sglang": ("num_running_reqs", "num_queue_reqs", "token_usage"),
        }[self.kind]
        for name, value in zip(names, (running, waiting, used), strict=True):
            self._of(name).set(value)

    def sleep(self, asleep: bool) -> None:
        """Go to sleep, of which only vLLM tells."""
        if self.kind == "vllm":
            self._of("engine_sleep_state", sleep_state="awake").set(0 if asleep else 1)
            self._of("engine_sleep_state", sleep_state="discard_all").set(1 if asleep else 0)

    def close(self) -> None:
        """End the server and the work."""
        self._ended.set()
        self._thread.join()
        self._server.shutdown()
        self._server.server_close()

    def _of(self, name: str, **more: str):  # type: ignore[no-untyped-def]
        name = f"{self.kind}:{name}"
        every = self._labels | more
        _, labels = DECLARED[self.kind][name]
        return self._metrics[name].labels(**{label: every[label] for label in labels})

    def _work(self) -> None:
        while not self._ended.wait(0.1):
            if not self.working.is_set():
                continue
            for name in ("time_to_first_token_seconds", "inter_token_latency_seconds"):
                self._of(name).observe(0.02)
            if self.kind == "vllm":
                self._of("generation_tokens").inc(50)
                self._of("prompt_tokens").inc(100)
                self._of("request_success").inc()
                self._of("num_preemptions").inc(0)
            else:  # it counts a request's tokens at its end; here no request ends
                self._of("realtime_tokens_total", mode="decode").inc(50)
                self._of("realtime_tokens_total", mode="prefill_compute").inc(100)
                self._of("num_requests_total").inc(0)
                self._of("num_retracted_requests_total").inc(0)
