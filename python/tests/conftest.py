# SPDX-License-Identifier: Apache-2.0
"""Sample data and codebooks of every element type; a Mooncake Store."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import splitzip_kv
from splitzip_kv import Calibration, CodebookSet, ElementType, Layout

NUMPY_TYPES = {
    ElementType.BF16: ml_dtypes.bfloat16,
    ElementType.FP16: np.float16,
    ElementType.FP32: np.float32,
    ElementType.FP8_E4M3: ml_dtypes.float8_e4m3fn,
    ElementType.FP8_E5M2: ml_dtypes.float8_e5m2,
    ElementType.BYTES: np.uint8,
}


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(bits(a), bits(b))


def values(shape: tuple[int, ...], type: ElementType = ElementType.BF16, seed: int = 0) -> np.ndarray:
    """Values whose scale depends on their last axis, with some of any bit pattern among them."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal(shape) * 4.0 ** random.integers(-3, 3, shape[-1:])
    if type == ElementType.BYTES:
        return np.clip(numbers * 16 + 128, 0, 255).astype(np.uint8)
    with np.errstate(all="ignore"):
        array = numbers.astype(NUMPY_TYPES[type])
    wild = random.random(shape) < 0.002
    integers = bits(array)
    integers[wild] = random.integers(0, 256**array.dtype.itemsize, int(wild.sum()), np.uint64).astype(integers.dtype)
    return integers.view(array.dtype)


@pytest.fixture(scope="session")
def books() -> CodebookSet:
    """A codebook named after each type, with one base for all channels, and "channels" for 64 channels of BF16."""
    calibration = Calibration()
    for type in NUMPY_TYPES:
        calibration.add(type.name, Layout(values((50, 64), type), "token,dim"), base_count=1)
    calibration.add("channels", Layout(values((50, 64)), "token,dim"))
    return calibration.finish("test data")


@pytest.fixture(scope="module")
def source() -> np.ndarray:
    return values((100, 2, 32))


@pytest.fixture(scope="module")
def layout(source) -> Layout:
    return Layout(source, "token,head,dim")


@pytest.fixture(scope="module")
def tensor(layout, books) -> splitzip_kv.Tensor:
    return layout.tensor(books.find("channels"), tokens_per_unit=16, tensor_key=77)


def round_trip(layout, target_layout, tensor, **options):
    frame = splitzip_kv.encode([tensor], [layout], **options)
    splitzip_kv.Frame(frame).decode([tensor], [target_layout])
    return frame


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start_mooncake_master(port: int) -> subprocess.Popen:
    command = Path(sys.executable).with_name("mooncake_master")
    if not command.exists():
        pytest.skip("mooncake_master is not installed")
    arguments = ["--rpc_address=127.0.0.1", f"--rpc_port={port}", f"--metrics_port={free_port()}"]
    # The time for which a value that was read is safe from eviction: tests fill a store on purpose.
    arguments += ["--enable_http_metadata_server=false", "--default_kv_lease_ttl=200"]
    master = subprocess.Popen([command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and master.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.05)
    return master


@pytest.fixture(scope="session")
def mooncake_master():
    """Address of a Mooncake Store's master process; skips where there is none."""
    port = free_port()
    master = start_mooncake_master(port)
    yield f"127.0.0.1:{port}"
    master.terminate()
    master.wait()


@pytest.fixture
def mooncake_values(mooncake_master):
    """Makes clients of the Mooncake Store, which is empty at the end of the test."""
    from splitzip_kv.store import StoreError
    from splitzip_kv.store.mooncake import MooncakeValues

    clients = []

    def client(**settings):
        sizes = {"segment_bytes": 32 << 20, "buffer_bytes": 32 << 20}
        try:
            clients.append(MooncakeValues(mooncake_master, **{**sizes, **settings}))
        except StoreError as error:
            pytest.skip(str(error))
        return clients[-1]

    yield client
    for values in clients:
        values.close()
