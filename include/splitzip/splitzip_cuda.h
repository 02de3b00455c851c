/* SPDX-License-Identifier: Apache-2.0
 *
 * splitzip on the GPU: many tensors of many requests, gathered from and scattered to paged memory, in one call on a stream.
 *
 *   1. Tables        what is the same for every call: tensors, codebooks, memory layouts
 *   2. Batches       what a call works on: requests, their rows, their frames, their results
 *   3. Encoding and decoding
 *   4. The same in kernels of your own
 *
 * The frames are those of splitzip.h, byte for byte: all element types, all modes, also side by side in one batch.
 *
 * Rules, beside those of splitzip.h:
 *  - Only splitzip_cuda_table_create and splitzip_cuda_table_destroy allocate, free and wait. Encoding and decoding launch a constant
 *    number of kernels on the caller's stream and return; they never wait for the device, copy nothing to or from the host, and can be captured in a
 *    graph. What they read through device pointers they read when the kernels run: a replayed graph takes other data, page lists,
 *    token counts, frames and nonces that were written there meanwhile.
 *  - "Device-readable" is memory that kernels can read: of this device, of a peer that is enabled, or pinned host memory.
 *    Frames may lie in any such memory, too.
 *  - A call runs on the device that is current; it must be that of the table.
 *  - Calls on different streams may overlap if their workspaces, frames, results and destinations are different.
 *  - Frames of any bytes whatever are safe to decode: they give statuses, never a fault, and nothing outside of a request's
 *    destination is written. Page lists, pointers and strides are the caller's and are trusted.
 */
#ifndef SPLITZIP_CUDA_H
#define SPLITZIP_CUDA_H

#include "splitzip/splitzip.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA run time's cudaStream_t is a pointer to this. */
struct CUstream_st;

/* ---- 1. Tables ------------------------------------------------------------------------------------------------------ */

/* Tensors, their codebooks and where their values lie, on one device: for instance K and V of all layers of a paged cache. The same table
 * serves to encode from and to decode to that memory. It never changes after it was made. */
typedef struct splitzip_cuda_table splitzip_cuda_table;

/* Make a table of `count` tensors, at least one, on the current device.
 *
 * Of a tensor all fields count but first_block, which comes with a call; `tokens` is the most that any request will have.
 * Of a layout base, row_stride, range_stride, page_tokens and page_stride count; page lists and first_token come with a call and must be
 * NULL and 0. The value of token t, range r, channel c of a request lies at
 *
 *     page(t') + (t' mod page_tokens) * row_stride + r * range_stride + c * element bytes,     t' = first_token + t
 *
 * with page(t') = base + offset + page_indices[t' / page_tokens] * page_stride, or base + offset + page_pointers[t' / page_tokens] (base is then
 * an offset inside of every page), or base + offset if page_tokens is 0. Nothing needs an alignment, but memory is used at full speed only where
 * a row is a multiple of 16 bytes and base and strides are multiples of 16; then offset and page pointers must be multiples of 16, too.
 *
 * `row_lists` (NULL: all 0) says for each tensor which of a request's row lists has its tokens and pages: tensors with other
 * windows or page tables than the rest have a list of their own. There are 1 + the highest number lists.
 *
 * Errors: INVALID_ARGUMENT, INVALID_TENSOR, INVALID_LAYOUT, UNSUPPORTED_TYPE, UNSUPPORTED_MODE, CODEBOOK_*, TOO_LARGE,
 * OUT_OF_MEMORY, DEVICE. */
SPLITZIP_API splitzip_status splitzip_cuda_table_create(const splitzip_tensor* tensors, const splitzip_layout* layouts,
                                                        const uint32_t* row_lists, size_t count,
                                                        splitzip_cuda_table** table, splitzip_error* error);
/* Waits for the device before it frees. */
SPLITZIP_API void splitzip_cuda_table_destroy(splitzip_cuda_table* table);

/* ---- 2. Batches ----------------------------------------------------------------------------------------------------- */

/* One request: all tensors of the table as one frame. */
typedef struct splitzip_cuda_request {
  void* frame; /* a multiple of 16, better of 32: encoding is up to 9 % faster; NULL: nothing to do, the result is OK */
  uint64_t capacity; /* encoding: bytes at `frame`; decoding: bytes of the frame; with budgets, both: the budget */
  uint64_t nonce;    /* encoding: to write; decoding: to demand */
} splitzip_cuda_request;

/* The rows of a request's tensors that have the same list. */
typedef struct splitzip_cuda_rows {
  const int32_t*
      page_indices; /* device-readable, >= 0 each; exclusive with page_pointers; both NULL where the tensors are not paged */
  void* const* page_pointers; /* device-readable */
  uint64_t page_count;        /* entries of the list */
  uint64_t first_block;       /* as in splitzip_tensor */
  int64_t offset;             /* bytes, added to the base of every tensor of the list */
  uint32_t first_token;       /* position of token 0 in the page list */
  uint32_t tokens;            /* 0 is allowed */
} splitzip_cuda_rows;

/* What became of a request. Written on every path: first frame_bytes, then status with release semantics at system scope, after all bytes of the frame
 * or of the destination. So a thread may poll the status in pinned or peer memory, where it has put a value before that is no status, and may use
 * those bytes once the status has changed. */
typedef struct splitzip_cuda_result {
  uint64_t frame_bytes; /* encoding: length of the frame or mark, 0 on failure; decoding: the capacity that was given */
  uint32_t status;      /* splitzip_status */
  uint32_t reserved;
} splitzip_cuda_result;

typedef struct splitzip_cuda_batch {
  size_t struct_size;
  const splitzip_cuda_request* requests; /* device-readable, request_count of them */
  const splitzip_cuda_rows* rows;        /* device-readable: the lists of request 0, those of request 1, ... */
  splitzip_cuda_result* results;         /* device memory, or pinned host memory that is mapped; one a request */
  uint32_t* failed; /* the same: number of requests whose status is not OK, written last, with release semantics */
  void* workspace;  /* device memory, a multiple of 256; its content does not matter */
  uint64_t workspace_bytes;
  uint64_t
      max_total_tokens; /* the most tokens that a list has in all requests together; 0: what the table allows for each request */
  uint32_t request_count; /* at least 1; the captured maximum, since requests without a frame are skipped */
  uint32_t max_sms;       /* 0: all; else the kernels occupy no more than so many multiprocessors' worth of threads */
  int32_t checksums;      /* encoding: 0 leaves chunk checksums out; decoding: whether the frames have them */
  int32_t budgets;        /* not 0: capacities are budgets, see section 3 */
} splitzip_cuda_batch;

#define SPLITZIP_CUDA_BATCH_INIT \
  { sizeof(splitzip_cuda_batch), NULL, NULL, NULL, NULL, NULL, 0, 0, 1, 0, 1, 0 }

/* Bytes of workspace for batches of so many requests and tokens (as in splitzip_cuda_batch). Encoding needs room for all that any content may spill:
 * about a third of the raw bytes; decoding next to nothing. Errors: INVALID_ARGUMENT, TOO_LARGE. */
SPLITZIP_API splitzip_status splitzip_cuda_encode_workspace(const splitzip_cuda_table* table, uint32_t request_count,
                                                            uint64_t max_total_tokens, uint64_t* bytes);
SPLITZIP_API splitzip_status splitzip_cuda_decode_workspace(const splitzip_cuda_table* table, uint32_t request_count,
                                                            uint64_t max_total_tokens, uint64_t* bytes);

/* ---- 3. Encoding and decoding --------------------------------------------------------------------------------------- */

/* Encode every request of the batch to its frame. The return value tells whether the work was launched: INVALID_ARGUMENT, OUTPUT_TOO_SMALL
 * (the workspace), TOO_LARGE, DEVICE. The statuses of requests, on the device:
 *   OUTPUT_TOO_SMALL   the frame does not fit in capacity (splitzip_get_frame_sizes tells a bound)
 *   OVER_BUDGET        the same with budgets; the frame's place has a mark of that
 *   TOO_LARGE          more tokens than the table or max_total_tokens allows, or 2^24 chunks
 *   INVALID_LAYOUT     a page list that does not cover the tokens; an offset that is no multiple of 16 where it must be
 *   INVALID_ARGUMENT   a frame that is no multiple of 16
 *
 * With batch->budgets all bytes of a request's capacity are written, as by splitzip_encode with a budget: so they can be sent as they are, always
 * to the same place, without a word about their length and before anyone has seen the results. The frame, or the mark, is followed by zeros. */
SPLITZIP_API splitzip_status splitzip_cuda_encode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                                  struct CUstream_st* stream);

/* Decode every request's frame. What the frame must hold is what table, rows and nonce say, slots included (SPLITZIP_SLOT_DEFAULT: those of the
 * table's codebook, whose identity does not tell them); nothing is taken from the frame but values.
 * Statuses of requests, beside those above: BAD_MAGIC, UNSUPPORTED_VERSION, UNSUPPORTED_FLAG, TRUNCATED, TRAILING_BYTES, CORRUPT_HEADER,
 * CORRUPT_DIRECTORY, CORRUPT_PAYLOAD, CHECKSUM_MISMATCH, CODEBOOK_MISMATCH, GEOMETRY_MISMATCH, NONCE_MISMATCH; where several are true, the one with the
 * lowest number. With batch->budgets frames may end before their capacity: the length comes from the header, is compared with the budget before it
 * is used, and must fit what was decoded. OVER_BUDGET: the sender's frame did not fit.
 * A request that fails leaves its own destination in an unspecified state and all others as they are. */
SPLITZIP_API splitzip_status splitzip_cuda_decode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                                  struct CUstream_st* stream);

/* ---- 4. The same in kernels of your own ----------------------------------------------------------------------------- */

/* What comes before and after kernels that code the tiles of a batch by the functions of splitzip_device.cuh, on the same stream with the same table and
 * batch: begin plans the batch and fills `view`, host memory, which the kernels take as a parameter; end checks or completes the frames and reports the
 * results. That header calls begin for you: `view_bytes` and `version` tell whether it is of the library's version. Beside the return values above:
 *   UNSUPPORTED_VERSION   the header is of another version
 *   INVALID_LAYOUT        a tensor of the table in mode raw, or whose rows are no whole vectors of 16 bytes */
SPLITZIP_API splitzip_status splitzip_cuda_begin_encode(const splitzip_cuda_table* table,
                                                        const splitzip_cuda_batch* batch, struct CUstream_st* stream,
                                                        void* view, size_t view_bytes, const char* version);
SPLITZIP_API splitzip_status splitzip_cuda_end_encode(const splitzip_cuda_table* table,
                                                      const splitzip_cuda_batch* batch, struct CUstream_st* stream);
SPLITZIP_API splitzip_status splitzip_cuda_begin_decode(const splitzip_cuda_table* table,
                                                        const splitzip_cuda_batch* batch, struct CUstream_st* stream,
                                                        void* view, size_t view_bytes, const char* version);
SPLITZIP_API splitzip_status splitzip_cuda_end_decode(const splitzip_cuda_table* table,
                                                      const splitzip_cuda_batch* batch, struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif
