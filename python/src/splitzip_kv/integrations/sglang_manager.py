# SPDX-License-Identifier: Apache-2.0
"""SGLang's Mooncake manager and receiver, whose caches go coded to peers that can take them.

The decode side says where it takes coded caches in a last field of the message that registers its memory; SGLang
without this plugin does not look at it. The prefill side then offers its chunks there before it takes SGLang's own way.
A chunk counts as sent when the decode side has verified it, so SGLang's word that a request has arrived is true.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from prometheus_client import Counter
from sglang.srt.disaggregation.base.conn import KVPoll
from sglang.srt.disaggregation.mooncake.conn import MooncakeKVManager, MooncakeKVReceiver
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool

from .. import CodebookSet, SplitzipError
from ..transfer import TransferError
from ..transfer.mooncake import MooncakeEngine, has_rdma_device
from .blocks import Blocks, LayerMemory
from .rooms import DecodeRooms, NotTaken, Piece, PrefillRooms
from .sglang_settings import Settings, log

GREETING = b"splitzip/1 "  # and an address

COUNTERS = {
    name: Counter(f"sglang:splitzip_{name}", f"splitzip: {text}")
    for name, text in {
        "sent_pieces": "chunks that went coded and were verified",
        "sent_bytes": "bytes of them on the wire",
        "sent_raw_bytes": "bytes of them in the cache",
        "send_microseconds": "time from the offer to the verification",
        "failed_pieces": "chunks that were taken and did not arrive",
        "untaken_pieces": "chunks that were not taken and went SGLang's own way",
        "shadow_mismatches": "frames that did not decode to what was encoded",
        "received_pieces": "chunks that arrived",
        "received_bytes": "bytes of them on the wire",
        "received_raw_bytes": "bytes of them in the cache",
    }.items()
}


class SplitZipKVManager(MooncakeKVManager):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._decode: DecodeRooms | None = None
        self._prefill: PrefillRooms | None = None
        self._peers: dict[str, str] = {}
        """Addresses that take coded caches, by Mooncake session."""
        self._untaken: dict[str, int] = {}
        """Offers in a row that were not taken, by Mooncake session."""
        self._work = threading.local()
        self._counted: dict[str, int] = {}
        self._counting = threading.Lock()
        super().__init__(*arguments, **named)

    def attach(self, pool: Any, settings: Settings) -> None:
        """Take part in transfers of what is in `pool`, or say in the log why not."""
        try:
            blocks = self._blocks_of(pool)
            codebooks = CodebookSet.load(settings.codebooks.replace("{rank}", str(self.attn_tp_rank)))
            engine = self._engine(settings)
        except (ValueError, TypeError, OSError, SplitzipError, TransferError) as error:
            log.warning("caches go SGLang's own way: %s", error)
            return
        options = blocks.options(settings.given)
        self._breaker = options.breaker
        where = "host memory" if blocks.device is None else f"GPU {blocks.device}"
        if self.disaggregation_mode == DisaggregationMode.DECODE:
            self._decode = DecodeRooms(engine, blocks, codebooks, options)
            log.info("takes coded caches at %s, decoded to %s", self._decode.address, where)
        else:
            self._prefill = PrefillRooms(engine, blocks, codebooks, options)
            log.info("offers coded caches, encoded from %s", where)

    def _blocks_of(self, pool: Any) -> Blocks:
        if type(pool) is MHATokenToKVPool:
            kinds = {"k": pool.k_buffer, "v": pool.v_buffer}
            plain = not pool.use_hnd and pool.k_scale_buffer is None
        elif type(pool) is MLATokenToKVPool:
            kinds, plain = {"kv": pool.kv_buffer}, True
        else:
            raise ValueError(f"a cache of the kind {type(pool).__name__} is not supported")
        addresses = [tensor.data_ptr() for tensors in kinds.values() for tensor in tensors]
        if self.pp_size > 1 or self.dcp_size > 1 or self.kv_shard_size > 1 or self.kv_args.host_kv_data_ptrs:
            raise ValueError("pipeline and context parallelism and host pools are not supported")
        if not plain or addresses != list(self.kv_args.kv_data_ptrs):
            raise ValueError("what SGLang sends is not the plain cache of one model")
        return Blocks(
            [
                LayerMemory(
                    [(kind, _pages(tensors[layer], pool), "page,token,head,dim") for kind, tensors in kinds.items()]
                )
                for layer in range(pool.layer_num)
            ],
            pool.page_size,
        )

    def _engine(self, settings: Settings) -> MooncakeEngine:
        # Our engine would set a shorter one where there is none, for SGLang's transfers, too.
        os.environ.setdefault("MC_TRANSFER_TIMEOUT", "30")
        forced = os.environ.get("MC_FORCE_TCP", "") not in ("", "0") or not has_rdma_device()
        protocol = settings.protocol or ("tcp" if forced else "rdma")
        device = getattr(self.kv_args, "ib_device", None) or ""
        return MooncakeEngine(settings.host or self.local_ip, protocol=protocol, device=device)

    # The decode side.

    def build_receiver_registration_message(self) -> list[bytes]:
        message: list[bytes] = super().build_receiver_registration_message()
        return message if self._decode is None else [*message, GREETING + self._decode.address.encode("ascii")]

    def build_receiver_metadata_message(self, **fields: Any) -> list[bytes]:
        if self._decode is not None and not fields["is_dummy"] and fields.get("device_kv_indices") is None:
            self._decode.open(fields["bootstrap_room"], fields["kv_indices"])
        message: list[bytes] = super().build_receiver_metadata_message(**fields)
        return message

    def close_room(self, room: int) -> None:
        """Its pages are about to be freed."""
        if self._decode is not None:
            self._decode.close(room)
            self._count(self._decode.counters)

    # The prefill side.

    def _make_worker_recv(self, *arguments: Any, **named: Any) -> Any:
        receive = super()._make_worker_recv(*arguments, **named)

        def received() -> Any:
            message = receive()
            if message and message[0] == b"None":
                self._registered(message[3].decode("ascii"), message[-1])
            return message

        return received

    def _registered(self, session: str, last_field: bytes) -> None:
        self._peers.pop(session, None)
        self._untaken.pop(session, None)
        if last_field.startswith(GREETING):
            self._peers[session] = last_field.removeprefix(GREETING).decode("ascii", "replace")
            log.info("decode server %s takes coded caches at %s", session, self._peers[session])
        else:
            log.info("decode server %s takes no coded caches", session)

    def transfer_worker(self, queue: Any, *arguments: Any, **named: Any) -> None:
        super().transfer_worker(_Remembering(queue, self._work), *arguments, **named)

    def send_kvcache(
        self,
        mooncake_session_id: str,
        prefill_kv_indices: np.ndarray,
        dst_kv_ptrs: list[int],
        dst_kv_indices: np.ndarray,
        executor: Any,
        **named: Any,
    ) -> int:
        def own_way() -> int:
            result: int = super(SplitZipKVManager, self).send_kvcache(
                mooncake_session_id, prefill_kv_indices, dst_kv_ptrs, dst_kv_indices, executor, **named
            )
            return result

        address = self._peers.get(mooncake_session_id)
        if self._prefill is None or address is None or named.get("dst_device_kv_indices") is not None:
            return own_way()
        chunk = self._work.chunk
        if self._failed(chunk.room):
            return 0  # another of its decode servers did not get it
        pages, page_tokens = len(prefill_kv_indices), self.kv_args.page_size
        tokens = chunk.num_kv_tokens
        if tokens is None or -(-tokens // page_tokens) != pages:
            tokens = pages * page_tokens  # a part of the chunk: other ranks have the rest
        try:
            piece = Piece(chunk.room, chunk.index_slice.start, pages, tokens)
            self._prefill.send(address, piece, prefill_kv_indices)
            self._untaken.pop(mooncake_session_id, None)
        except NotTaken as error:
            self._not_taken(mooncake_session_id, error)
            return own_way()
        except (TransferError, SplitzipError) as error:
            # Of this request only: a result other than 0 would give the decode server up.
            log.warning("a chunk of request %d did not arrive: %s", chunk.room, error)
            self.conclude_failure(bootstrap_room=chunk.room, failure_reason=f"splitzip: {error}")
        finally:
            self._count(self._prefill.counters | {"shadow_mismatches": self._prefill.shadow_mismatches})
        return 0

    def _not_taken(self, session: str, error: NotTaken) -> None:
        self._untaken[session] = self._untaken.get(session, 0) + 1
        log.warning("decode server %s did not take a chunk, which goes SGLang's own way: %s", session, error)
        if self._untaken[session] >= self._breaker:
            log.error("%d in a row: it gets no more offers", self._breaker)
            self._peers.pop(session, None)

    # What SGLang sends after the cache goes to memory that a failed request no longer owns.

    def send_aux(self, req: Any, *arguments: Any, **named: Any) -> int:
        result: int = -1 if self._failed(req.room) else super().send_aux(req, *arguments, **named)
        return result

    def maybe_send_extra(self, req: Any, *arguments: Any, **named: Any) -> int:
        result: int = -1 if self._failed(req.room) else super().maybe_send_extra(req, *arguments, **named)
        return result

    def _failed(self, room: int) -> bool:
        # A request that is not there any more has failed, too: this thread is still working for it.
        return self._prefill is not None and bool(self.request_status.get(room, KVPoll.Failed) == KVPoll.Failed)

    def _count(self, counts: dict[str, int]) -> None:
        with self._counting:
            for name, count in counts.items():
                if name in COUNTERS and count > self._counted.get(name, 0):
                    COUNTERS[name].inc(count - self._counted.get(name, 0))
                    self._counted[name] = count

    def teardown(self) -> None:
        super().teardown()
        for side in (self._prefill, self._decode):
            if side is not None:
                side.shut_down()
        self._prefill = self._decode = None


class SplitZipKVReceiver(MooncakeKVReceiver):
    def _clear(self) -> None:
        self.kv_mgr.close_room(self.bootstrap_room)
        super()._clear()

    def abort(self) -> None:
        super().abort()
        self.kv_mgr.close_room(self.bootstrap_room)


OURS = {MooncakeKVManager: SplitZipKVManager, MooncakeKVReceiver: SplitZipKVReceiver}


class _Remembering:
    """A queue of chunks that leaves the one which its thread works on in `work`."""

    def __init__(self, queue: Any, work: threading.local) -> None:
        self._queue = queue
        self._work = work
        self.put = queue.put

    def get(self) -> Any:
        self._work.chunk = self._queue.get()
        return self._work.chunk


def _pages(tensor: Any, pool: Any) -> Any:
    """[slot, head, dim] as [page, token, head, dim]."""
    values = tensor if tensor.dtype == pool.dtype else tensor.view(pool.dtype)
    whole = len(values) // pool.page_size
    return values[: whole * pool.page_size].view(whole, pool.page_size, *values.shape[1:])
