# SPDX-License-Identifier: Apache-2.0
"""SGLang's servers on the processor, with our plugin or without, and what is asked of them."""

from __future__ import annotations

import contextlib
import itertools
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine_cases import CODEBOOKS, free_port, prompts

__all__ = ["CODEBOOKS", "Server", "disaggregated", "free_port", "prompts", "servers"]

HERE = Path(__file__).parent
MODEL = os.environ.get("SPLITZIP_MODEL", "")
ANSWER_TOKENS = 6
CHUNK = 128  # tokens: most prompts are longer

ENVIRONMENT = {
    "SGLANG_HOST_IP": "127.0.0.1",
    "MC_FORCE_TCP": "1",
    "MOONCAKE_PROTOCOL": "tcp",
    "MC_LOG_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def _import_once() -> None:
    """Every server has three processes, and SGLang takes long to import: they are all forks of this one. Counters that
    all processes of a server share have to be wanted before the import."""
    os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", tempfile.mkdtemp())
    os.environ.update(ENVIRONMENT)
    shims = str(HERE / "sglang_shims")
    if shims not in sys.path:
        sys.path.insert(0, shims)
    import sglang.launch_server
    import sglang.srt.disaggregation.mooncake.conn
    import sglang.srt.entrypoints.http_server
    import sglang.srt.managers.detokenizer_manager
    import sglang.srt.managers.scheduler
    import sglang.srt.models.llama  # noqa: F401


def _serve(arguments: list[str]) -> None:
    multiprocessing.set_start_method = lambda *names, **named: None
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args

    load_plugins()
    run_server(prepare_server_args(arguments))


class Server:
    """`mode` is "prefill", "decode" or "null"; `settings` are those of our plugin, None: a server without it."""

    def __init__(self, mode: str = "null", settings: dict | None = None, **environment: str) -> None:
        self.port, self.bootstrap_port = free_port(), free_port()
        arguments = ["--model-path", MODEL, "--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu"]
        arguments += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "bfloat16"]
        arguments += ["--disable-radix-cache", "--disable-overlap-schedule", "--skip-server-warmup", "--enable-metrics"]
        arguments += ["--max-total-tokens", "8192", "--context-length", "2048", "--chunked-prefill-size", str(CHUNK)]
        arguments += ["--random-seed", "1", "--log-level", "info"]
        if mode != "null":
            arguments += ["--disaggregation-mode", mode, "--disaggregation-transfer-backend", "mooncake"]
            arguments += ["--disaggregation-bootstrap-port", str(self.bootstrap_port)]
        environment |= {"SGLANG_PLUGINS": "shims", "PROMETHEUS_MULTIPROC_DIR": tempfile.mkdtemp()}
        if settings is not None:
            environment |= {"SGLANG_PLUGINS": "shims,splitzip", "SPLITZIP_SGLANG": json.dumps(settings)}
        descriptor, self._log = tempfile.mkstemp(suffix=".log")
        _import_once()
        self.process = os.fork()
        if self.process == 0:
            try:
                os.setsid()
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                os.environ.update(environment)
                _serve(arguments)
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

    def ask(self, prompt: str, tokens: int = ANSWER_TOKENS, **fields) -> dict:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        body = {"text": prompt, "sampling_params": sampling, **fields}
        request = urllib.request.Request(f"{self.url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        values: dict[str, float] = {}
        for name, value in re.findall(r"^sglang:(\w+?)(?:_total)?(?:\{[^}]*\})? ([\d.e+-]+)$", text, re.MULTILINE):
            values[name] = values.get(name, 0.0) + float(value)
        return values

    def stop(self) -> None:
        """All of its processes, at once: SGLang takes long to end by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        while not self.ended():
            time.sleep(0.02)


@contextlib.contextmanager
def servers(*made: Server):
    try:
        yield [server.wait_until_up() for server in made]
    finally:
        for server in made:
            server.stop()


_rooms = itertools.count(1000)


def disaggregated(prefill: Server, decode: Server, prompt: str, tokens: int = ANSWER_TOKENS) -> list[int]:
    """Both are asked at the same time, as SGLang's router does. Raises what the decode server's answer is."""
    fields = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.bootstrap_port, "bootstrap_room": next(_rooms)}
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(prefill.ask, prompt, tokens, **fields)
        try:
            return decode.ask(prompt, tokens, **fields)["output_ids"]
        finally:
            with contextlib.suppress(urllib.error.HTTPError):
                other.result()
