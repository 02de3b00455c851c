# SPDX-License-Identifier: Apache-2.0
"""The two processes, seen from the one that starts them."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from typing import Any


class WorkerFailed(Exception):
    """A process reported an error or is gone."""


class Worker:
    """A prefill or decode process; it ends with the `with` block."""

    def __init__(self, role: str, **settings: Any) -> None:
        self.role = role
        self._answers: queue.Queue[str] = queue.Queue()
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "splitzip_kv.transfer.demo.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self._send({"role": role, **settings})

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._noise.close()

    def ask(self, do: str, timeout: float = 120.0, **arguments: Any) -> dict[str, Any]:
        self.begin(do, **arguments)
        return self.answer(timeout)

    def begin(self, do: str, **arguments: Any) -> None:
        self._send({"do": do, **arguments})

    def answer(self, timeout: float = 120.0) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise WorkerFailed(f"the {self.role} process did not answer within {timeout:g} s") from None
        if not line:
            raise WorkerFailed(
                f"the {self.role} process ended with status {self.process.wait()}\n{self.noise()}".rstrip()
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self.role}: {answer['error']}")
        return answer

    def noise(self) -> str:
        """What the process wrote to standard error, for when it failed."""
        self._noise.seek(0)
        return self._noise.read()

    def _send(self, command: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer says so
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")
