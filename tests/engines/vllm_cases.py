# SPDX-License-Identifier: Apache-2.0
"""vLLM's API servers on the processor, with SplitZipConnector or without, and what is asked of them."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

from engine_cases import CODEBOOKS, free_port, prompts

__all__ = ["BLOCK", "CODEBOOKS", "Server", "connector", "disaggregated", "free_port", "prompts", "servers"]
MODEL = os.environ.get("SPLITZIP_MODEL", "")
BLOCK = 128  # tokens: what vLLM uses on processors
ANSWER_TOKENS = 6

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def _import_once() -> None:
    """Every server has three processes, and vLLM takes long to import: they are all forks of this one."""
    os.environ.update(ENVIRONMENT)
    import vllm.entrypoints.openai.api_server
    import vllm.model_executor.models.llama
    import vllm.v1.engine.core
    import vllm.v1.executor.multiproc_executor
    import vllm.v1.worker.cpu_worker  # noqa: F401


class Server:
    def __init__(self, transfer: dict | None = None, **environment: str) -> None:
        self.port = free_port()
        arguments = ["api_server", "--model", MODEL, "--served-model-name", "smollm2", "--host", "127.0.0.1"]
        arguments += ["--port", str(self.port), "--enforce-eager", "--max-model-len", "1280"]
        arguments += ["--no-enable-prefix-caching", "--max-num-seqs", "8", "--dtype", "bfloat16"]
        if transfer is not None:
            arguments += ["--kv-transfer-config", json.dumps(transfer)]
        descriptor, self._log = tempfile.mkstemp(suffix=".log")
        _import_once()
        self.process = os.fork()
        if self.process == 0:
            try:
                os.setsid()
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                os.environ.update(environment)
                sys.argv = arguments
                fork = multiprocessing.get_context("fork")
                multiprocessing.get_context = lambda method=None: fork
                from vllm.entrypoints.launchers.api_server.entry import main

                main()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(descriptor)
        self.status: int | None = None

    def ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.process, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def wait_until_up(self, seconds: float = 580) -> Server:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert not self.ended(), f"the server ended with {self.status}:\n{self.log()[-6000:]}"
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return self
            time.sleep(0.5)
        raise AssertionError(f"the server is not up:\n{self.log()[-6000:]}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return Path(self._log).read_text(errors="replace")

    def ask(self, prompt: str, tokens: int = ANSWER_TOKENS, params: dict | None = None) -> dict:
        body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True}
        body["ignore_eos"] = True
        if params is not None:
            body["kv_transfer_params"] = params
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def tokens(self, prompt: str, tokens: int = ANSWER_TOKENS, params: dict | None = None) -> list[int]:
        return self.ask(prompt, tokens, params)["choices"][0]["token_ids"]

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        values: dict[str, float] = {}
        for name, value in re.findall(r"^(vllm:\w+?)(?:_total)?\{[^}]*\} ([\d.e+-]+)$", text, re.MULTILINE):
            values[name.removeprefix("vllm:")] = values.get(name.removeprefix("vllm:"), 0.0) + float(value)
        return values

    def metric(self, name: str, value: float) -> dict[str, float]:
        """All metrics, when this one has reached `value`: vLLM reports what happened with its next step."""
        deadline = time.monotonic() + 20
        while (found := self.metrics()).get(name) != value and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found.get(name) == value, {key: count for key, count in found.items() if "splitzip" in key}
        return found

    def kill(self) -> None:
        """All of its processes, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        while not self.ended():
            time.sleep(0.02)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.kill()


@contextlib.contextmanager
def servers(*transfers: dict | None, **environment: str):
    started = [Server(transfer, **environment) for transfer in transfers]
    try:
        yield [server.wait_until_up() for server in started]
    finally:
        for server in started:
            server.stop()


def connector(role: str, policy: str = "recompute", module: str = "splitzip_kv.integrations.vllm", **extra) -> dict:
    return {
        "kv_connector": "SplitZipConnector",
        "kv_connector_module_path": module,
        "kv_role": role,
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": extra,
    }


def disaggregated(prefill: Server, decode: Server, prompt: str, tokens: int = ANSWER_TOKENS) -> list[int]:
    asked = prefill.ask(prompt, 1, {"do_remote_decode": True, "do_remote_prefill": False})
    return decode.tokens(prompt, tokens, asked["kv_transfer_params"])
