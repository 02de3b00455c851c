/* SPDX-License-Identifier: Apache-2.0
 *
 * splitzip: lossless compression of LLM key-value caches.
 *
 * This header is the whole C interface for host memory; docs/format.md describes the bytes.
 *
 *   1. Status codes          5. Encoding
 *   2. Element types, modes  6. Decoding
 *   3. Codebooks             7. Calibration
 *   4. Tensors and layouts   8. Threads and CPU targets
 *
 * Rules that hold everywhere:
 *  - Memory belongs to the caller. Only the functions whose names end in create, load or finish allocate, and calibration while
 *    it counts; what create, load and finish return is released by the matching destroy, which accepts NULL.
 *  - Every function is thread-safe as long as no object is changed by one thread while another one uses it. Codebooks and
 *    codebook sets never change after they were made.
 *  - Functions return a splitzip_status. On failure no output argument but *error holds a promised value; a
 *    destination buffer may hold anything, and nothing outside of it was written.
 *  - Option and description structs begin with their own size. Another size than this version's is refused
 *    (INVALID_ARGUMENT), so that a program and a library of different versions cannot misread each other. The
 *    SPLITZIP_*_INIT macros, splitzip_tensor_contiguous and splitzip_layout_contiguous set them up.
 *  - Sizes are in bytes unless the name says tokens, channels, values, units, chunks or words.
 */
#ifndef SPLITZIP_H
#define SPLITZIP_H

#include <stddef.h>
#include <stdint.h>

#include "splitzip/version.h"

#if defined(SPLITZIP_STATIC)
#define SPLITZIP_API
#elif defined(_WIN32)
#if defined(SPLITZIP_BUILDING)
#define SPLITZIP_API __declspec(dllexport)
#else
#define SPLITZIP_API __declspec(dllimport)
#endif
#else
#define SPLITZIP_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#define SPLITZIP_ANY_INT : int /* any int is a value of an enum, as in C */
#else
#define SPLITZIP_ANY_INT
#endif

/* ---- 1. Status codes ------------------------------------------------------------------------------------------------ */

/* Codes come in families of ten; values never change their meaning once released. */
typedef enum splitzip_status SPLITZIP_ANY_INT {
  SPLITZIP_OK = 0,

  /* The bytes are not ours, or not of this version. */
  SPLITZIP_ERROR_BAD_MAGIC = 10,
  SPLITZIP_ERROR_UNSUPPORTED_VERSION = 11,
  SPLITZIP_ERROR_UNSUPPORTED_FLAG = 12,
  SPLITZIP_ERROR_UNSUPPORTED_TYPE = 13,
  SPLITZIP_ERROR_UNSUPPORTED_MODE = 14,

  /* The bytes are damaged. */
  SPLITZIP_ERROR_TRUNCATED = 20,         /* fewer bytes than the frame declares */
  SPLITZIP_ERROR_TRAILING_BYTES = 21,    /* more bytes than the frame declares */
  SPLITZIP_ERROR_CORRUPT_HEADER = 22,    /* header or tensor entries */
  SPLITZIP_ERROR_CORRUPT_DIRECTORY = 23, /* chunk records, checksums or tile records */
  SPLITZIP_ERROR_CORRUPT_PAYLOAD = 24,   /* codes, lengths or padding of a chunk */
  SPLITZIP_ERROR_CHECKSUM_MISMATCH = 25, /* a chunk decoded to other values than were encoded */

  /* Codebooks. */
  SPLITZIP_ERROR_CODEBOOK_REQUIRED = 30, /* the tensor's mode needs a codebook and none was given */
  SPLITZIP_ERROR_CODEBOOK_MISMATCH = 31, /* another codebook, type or channel count than is needed */
  SPLITZIP_ERROR_CODEBOOK_CORRUPT = 32,
  SPLITZIP_ERROR_CODEBOOK_NOT_FOUND = 33,

  /* The caller's arguments. */
  SPLITZIP_ERROR_INVALID_ARGUMENT = 40,
  SPLITZIP_ERROR_INVALID_TENSOR = 41,    /* a tensor description that cannot be */
  SPLITZIP_ERROR_INVALID_LAYOUT = 42,    /* a layout that does not cover the tensor */
  SPLITZIP_ERROR_GEOMETRY_MISMATCH = 43, /* the frame holds another tensor than the caller expects */
  SPLITZIP_ERROR_NONCE_MISMATCH = 44,    /* the frame is of another generation than the caller expects */
  SPLITZIP_ERROR_TOO_LARGE = 45,         /* beyond a limit of the format: split it into several frames */
  SPLITZIP_ERROR_NO_SAMPLES = 46,        /* calibration without a single value */

  SPLITZIP_ERROR_OUTPUT_TOO_SMALL = 50,
  SPLITZIP_ERROR_OUT_OF_MEMORY = 51,
  SPLITZIP_ERROR_OVER_BUDGET = 52, /* the frame did not fit in its budget, and a mark that says so is in its place */

  SPLITZIP_ERROR_DEVICE = 60, /* the device runtime reported an error */

  SPLITZIP_ERROR_INTERNAL = 100 /* a bug in the library */
} splitzip_status;

/* "SPLITZIP_ERROR_TRUNCATED" and the like; "SPLITZIP_ERROR_UNKNOWN" for a value that is no status. Never NULL, static. */
SPLITZIP_API const char* splitzip_status_name(splitzip_status status);

/* What went wrong and where. Functions that take one accept NULL; they fill it on failure only. */
typedef struct splitzip_error {
  size_t struct_size;
  splitzip_status status;
  const char* message; /* one English sentence, static storage */
  uint64_t tensor;     /* index of the tensor entry, or SPLITZIP_NOWHERE */
  uint64_t chunk;      /* number of the chunk in its entry, or SPLITZIP_NOWHERE */
  uint64_t offset;     /* byte of the input, or SPLITZIP_NOWHERE */
} splitzip_error;

#define SPLITZIP_NOWHERE UINT64_MAX
#define SPLITZIP_ERROR_INIT \
  { sizeof(splitzip_error), SPLITZIP_OK, "", SPLITZIP_NOWHERE, SPLITZIP_NOWHERE, SPLITZIP_NOWHERE }

/* Version of the library at run time, e.g. "0.1.0"; compare with SPLITZIP_VERSION_STRING. */
SPLITZIP_API const char* splitzip_version(void);

/* ---- 2. Element types and modes ------------------------------------------------------------------------------------- */

typedef enum splitzip_element_type SPLITZIP_ANY_INT {
  SPLITZIP_BF16 = 1,
  SPLITZIP_FP16 = 2,
  SPLITZIP_FP32 = 3,
  SPLITZIP_FP8_E4M3 = 4,
  SPLITZIP_FP8_E5M2 = 5,
  SPLITZIP_BYTES = 6 /* 8-bit integers, or anything; the upper four bits are coded */
} splitzip_element_type;

typedef enum splitzip_mode SPLITZIP_ANY_INT {
  SPLITZIP_MODE_RAW = 0,    /* as it is, with checksums; needs no codebook */
  SPLITZIP_MODE_FIXED4 = 1, /* exponents in 4 bits: the paper's code */
  SPLITZIP_MODE_TIERED = 2  /* exponents in 2, 4, 6 or 14 bits by frequency: the default */
} splitzip_mode;

/* 2 for BF16 and so on; 0 for an unknown type. */
SPLITZIP_API size_t splitzip_element_bytes(splitzip_element_type type);

/* "bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "bytes"; "raw", "fixed4", "tiered"; "unknown" otherwise. */
SPLITZIP_API const char* splitzip_element_type_name(splitzip_element_type type);
SPLITZIP_API const char* splitzip_mode_name(splitzip_mode mode);

/* ---- 3. Codebooks --------------------------------------------------------------------------------------------------- */

/* What `calibrate` learned of one tensor: a base exponent for each channel and nine ranks (docs/format.md, 3 and 7). A
 * codebook that fits badly costs ratio, never correctness. It belongs to its set and lives as long as the set. */
typedef struct splitzip_codebook splitzip_codebook;

/* Named codebooks, usually one for each tensor: what a *.szcb file holds. */
typedef struct splitzip_codebook_set splitzip_codebook_set;

typedef struct splitzip_codebook_info {
  size_t struct_size;
  uint64_t hash; /* identity: equal hashes decode each other's frames */
  splitzip_element_type type;
  uint32_t base_count; /* channels of the full tensor, or 1: one base for every channel */
  const uint8_t* bases;
  uint8_t ranks[9];
  uint32_t fixed4_slot_words; /* default slots, in words of a full tile */
  uint32_t tiered_slot_words;
  const char* name; /* zero-terminated UTF-8; "" serves every tensor without a codebook of its own */
  uint64_t sample_values;
  double top8_coverage; /* share of the values whose exponent is among the 8 (16) most frequent ones of the tensor */
  double top16_coverage;
  double entropy;               /* bits, of the exponent */
  double entropy_given_channel; /* bits, of the exponent given its channel */
  double fixed4_bits;           /* expected bits a value, without directory */
  double tiered_bits;
  double fixed4_escapes; /* expected escapes a value */
  double tiered_escapes;
} splitzip_codebook_info;

/* Load a set from the bytes of a *.szcb file; the bytes are copied. Any bytes whatever are safe to pass.
 * Errors: BAD_MAGIC, UNSUPPORTED_VERSION, CODEBOOK_CORRUPT, OUT_OF_MEMORY. */
SPLITZIP_API splitzip_status splitzip_codebook_set_load(const void* data, size_t size, splitzip_codebook_set** set,
                                                        splitzip_error* error);
/* Write the set as the bytes of a *.szcb file. With dst NULL, only *size is set. Errors: OUTPUT_TOO_SMALL. */
SPLITZIP_API splitzip_status splitzip_codebook_set_save(const splitzip_codebook_set* set, void* dst, size_t capacity,
                                                        size_t* size);
SPLITZIP_API void splitzip_codebook_set_destroy(splitzip_codebook_set* set);

SPLITZIP_API size_t splitzip_codebook_set_count(const splitzip_codebook_set* set);
/* Provenance text given at calibration; zero-terminated UTF-8. */
SPLITZIP_API const char* splitzip_codebook_set_provenance(const splitzip_codebook_set* set);
/* NULL where index >= count. */
SPLITZIP_API const splitzip_codebook* splitzip_codebook_set_get(const splitzip_codebook_set* set, size_t index);
/* By the name of a tensor: its own codebook, else the one named "", else NULL. */
SPLITZIP_API const splitzip_codebook* splitzip_codebook_set_find(const splitzip_codebook_set* set, const char* name);
/* By identity; NULL where there is none. */
SPLITZIP_API const splitzip_codebook* splitzip_codebook_set_find_hash(const splitzip_codebook_set* set, uint64_t hash);

/* Fill *info, whose struct_size the caller has set. Pointers in it live as long as the set. */
SPLITZIP_API splitzip_status splitzip_codebook_get_info(const splitzip_codebook* codebook,
                                                        splitzip_codebook_info* info);

/* ---- 4. Tensors and layouts ----------------------------------------------------------------------------------------- */

#define SPLITZIP_SLOT_DEFAULT UINT32_MAX

/* What is encoded: `tokens` rows of `ranges` x `channels` values of one type under one codebook.
 *
 * A range is a group of neighbouring channels that is to be addressed alone, usually one attention head; a unit is
 * `tokens_per_unit` tokens of one range, the smallest thing that can be decoded alone. A row whose fields differ in type or codebook
 * (K and V packed, the parts of an MLA row) is described by several tensors. Both ends must describe the same tensors. */
typedef struct splitzip_tensor {
  size_t struct_size;
  splitzip_element_type type;
  splitzip_mode mode;
  const splitzip_codebook* codebook; /* NULL in mode raw */
  uint64_t tensor_key;               /* the caller's name for the tensor (layer, K or V); part of the checksums */
  uint64_t first_block;              /* number of the first block of tokens_per_unit tokens in the caller's sequence */
  uint32_t tokens;                   /* 0 is allowed */
  uint32_t tokens_per_unit;          /* >= 1 */
  uint32_t channels;                 /* values of a token in one range, >= 1 */
  uint32_t first_channel;            /* channel of the full tensor (that of the codebook) where range 0 starts */
  uint32_t ranges;                   /* >= 1 */
  uint32_t slot_words; /* <= 1536, or SPLITZIP_SLOT_DEFAULT: from the codebook; the receiver may leave the default */
} splitzip_tensor;

/* Where the values are. The value of token t, range r, channel c lies at
 *
 *     page(t') + (t' mod page_tokens) * row_stride + r * range_stride + c * element size,     t' = first_token + t
 *
 * with page(t') = page_pointers[t' / page_tokens], or base + page_indices[t' / page_tokens] * page_stride, or base if
 * page_tokens is 0 (then t' is not reduced). Strides are in bytes, may be negative and need no alignment. Rows of a destination
 * must not overlap. Encoding never writes through it. */
typedef struct splitzip_layout {
  size_t struct_size;
  void* base;
  int64_t row_stride;
  int64_t range_stride;
  uint32_t page_tokens; /* tokens of a page, or 0: not paged */
  uint32_t first_token; /* position of token 0 in the page list */
  int64_t page_stride;
  const int32_t* page_indices; /* >= 0 each; exclusive with page_pointers */
  void* const* page_pointers;
  uint64_t page_count; /* entries of page_indices or page_pointers */
} splitzip_layout;

/* One unit of `tokens` x `channels` values. `codebook` may be NULL in mode raw. */
SPLITZIP_API splitzip_tensor splitzip_tensor_contiguous(splitzip_element_type type, splitzip_mode mode,
                                                        const splitzip_codebook* codebook, uint32_t tokens,
                                                        uint32_t channels);
/* The layout of `tensor` in one piece of memory, token-major: [tokens][ranges][channels]. */
SPLITZIP_API splitzip_layout splitzip_layout_contiguous(const void* base, const splitzip_tensor* tensor);

/* ---- 5. Encoding ---------------------------------------------------------------------------------------------------- */

/* Threads that help with large frames: section 8. */
typedef struct splitzip_workers splitzip_workers;

typedef struct splitzip_encode_options {
  size_t struct_size;
  uint64_t nonce;            /* generation number; a receiver can demand it */
  int32_t checksums;         /* 0: no content checksums */
  int32_t budget;            /* not 0: capacity is a budget, see splitzip_encode */
  splitzip_workers* workers; /* NULL: the calling thread alone */
} splitzip_encode_options;

#define SPLITZIP_ENCODE_OPTIONS_INIT \
  { sizeof(splitzip_encode_options), 0, 1, 0, NULL }

/* Sizes of the frame of `count` tensors, before encoding. */
typedef struct splitzip_frame_sizes {
  size_t struct_size;
  uint64_t raw_bytes;   /* values only */
  uint64_t known_bytes; /* everything but the spill: exact, and equal to the frame's size where nothing spills */
  uint64_t bound_bytes; /* no input whatever needs more */
  uint32_t chunk_count;
  uint32_t tile_count;
} splitzip_frame_sizes;

/* `options` may be NULL (defaults). Errors: INVALID_ARGUMENT, INVALID_TENSOR, UNSUPPORTED_*, CODEBOOK_*, TOO_LARGE. */
SPLITZIP_API splitzip_status splitzip_get_frame_sizes(const splitzip_tensor* tensors, size_t count,
                                                      const splitzip_encode_options* options,
                                                      splitzip_frame_sizes* sizes, splitzip_error* error);

/* The slot_words that the frame will have for the tensor: its own, or what SPLITZIP_SLOT_DEFAULT stands for; 0 in mode raw. Codebooks of one
 * identity may differ in their slots, so whoever tells a receiver what frames hold has to tell it these, too. Errors: those of splitzip_get_frame_sizes. */
SPLITZIP_API splitzip_status splitzip_get_slot_words(const splitzip_tensor* tensor, uint32_t* slot_words,
                                                     splitzip_error* error);

/* Encode `count` tensors, found at sources[0..count-1], as one frame at dst. *size receives its length. The frame is the same on every
 * machine and in every backend. dst needs no alignment and must not overlap a source. Succeeds exactly if the frame fits in capacity.
 *
 * With options->budget all of dst[0..capacity-1] is written, so that it can be sent as it is, always to the same place and without a word
 * about its length: the frame and then zeros, or, if the frame does not fit, a mark of 48 bytes and then zeros, with the status OVER_BUDGET
 * and *size 48. splitzip_frame_open_budget is the other end. Less than 48 bytes are OUTPUT_TOO_SMALL, and nothing is written.
 *
 * Errors: those of splitzip_get_frame_sizes, INVALID_LAYOUT, OUTPUT_TOO_SMALL, OVER_BUDGET. */
SPLITZIP_API splitzip_status splitzip_encode(const splitzip_tensor* tensors, const splitzip_layout* sources,
                                             size_t count, const splitzip_encode_options* options, void* dst,
                                             size_t capacity, size_t* size, splitzip_error* error);

/* ---- 6. Decoding ---------------------------------------------------------------------------------------------------- */

/* A frame whose header, entries and directory were checked. It points into the caller's bytes, which must stay
 * unchanged while it is used; fields are for reading only. If the bytes do change, decoding fails or gives wrong values, but stays
 * inside of the frame and of the destination. */
typedef struct splitzip_frame {
  size_t struct_size;
  const void* data;
  uint64_t size;
  uint64_t nonce;
  uint32_t flags; /* bit 0: chunk checksums */
  uint32_t tensor_count;
  uint32_t chunk_count;
  uint32_t tile_count;
  uint32_t spill_words;
  uint32_t reserved;
} splitzip_frame;

/* Length of the frame that starts at `data`, from its header alone (size >= 48, else TRUNCATED), for readers of streams. The header is not
 * authenticated by this: check the length against what is there before relying on it. Errors: BAD_MAGIC, UNSUPPORTED_VERSION, TRUNCATED. */
SPLITZIP_API splitzip_status splitzip_frame_get_size(const void* data, size_t size, uint64_t* frame_size);

/* Check the frame that fills data[0..size-1] and describe it in *frame. Reads header, entries and directory, not the planes.
 * `expected_nonce` NULL: any. Any bytes whatever are safe to pass.
 * Errors: BAD_MAGIC, UNSUPPORTED_*, TRUNCATED, TRAILING_BYTES, CORRUPT_HEADER, CORRUPT_DIRECTORY, NONCE_MISMATCH, OVER_BUDGET (a mark). */
SPLITZIP_API splitzip_status splitzip_frame_open(const void* data, size_t size, const uint64_t* expected_nonce,
                                                 splitzip_frame* frame, splitzip_error* error);

/* The same for what was encoded with a budget: the frame starts at `data` and ends somewhere in data[0..budget-1]; what follows it is not
 * looked at. The nonce is always demanded, since nothing else tells what has just arrived from what lay there before.
 * Errors: those of splitzip_frame_open but TRAILING_BYTES; OVER_BUDGET: the sender's frame did not fit, and this very unit has to come by
 * another way; TRUNCATED: also a frame longer than the budget. */
SPLITZIP_API splitzip_status splitzip_frame_open_budget(const void* data, size_t budget, uint64_t expected_nonce,
                                                        splitzip_frame* frame, splitzip_error* error);

/* Description of tensor `index` of the frame, with codebook NULL and the identity of its codebook in *codebook_hash (0: none). */
SPLITZIP_API splitzip_status splitzip_frame_get_tensor(const splitzip_frame* frame, size_t index,
                                                       splitzip_tensor* tensor, uint64_t* codebook_hash);

typedef struct splitzip_decode_options {
  size_t struct_size;
  splitzip_workers* workers; /* NULL: the calling thread alone */
} splitzip_decode_options;

#define SPLITZIP_DECODE_OPTIONS_INIT \
  { sizeof(splitzip_decode_options), NULL }

/* Decode the frame: tensor i goes to destinations[i]. `tensors` says what the caller expects; count and geometry must equal the frame's.
 * Each chunk's checksum is verified before the chunk is stored. Exactly the bytes of the values are written. `options` may be NULL (defaults).
 * Errors: GEOMETRY_MISMATCH, CODEBOOK_*, INVALID_*, CORRUPT_DIRECTORY, CORRUPT_PAYLOAD, CHECKSUM_MISMATCH. */
SPLITZIP_API splitzip_status splitzip_decode(const splitzip_frame* frame, const splitzip_tensor* tensors,
                                             const splitzip_layout* destinations, size_t count,
                                             const splitzip_decode_options* options, splitzip_error* error);

/* Decode tokens [first_token, first_token + token_count) of unit `unit` of tensor `index`; token first_token of the unit
 * is token 0 of the destination, whose range_stride is not used. Only the chunks that hold these tokens are read.
 * Unit numbers run block by block, inside of a block range by range. Errors: as splitzip_decode. */
SPLITZIP_API splitzip_status splitzip_decode_unit(const splitzip_frame* frame, size_t index,
                                                  const splitzip_tensor* tensor, uint64_t unit, uint32_t first_token,
                                                  uint32_t token_count, const splitzip_layout* destination,
                                                  splitzip_error* error);

/* ---- 7. Calibration ------------------------------------------------------------------------------------------------- */

/* Exponent counts by tensor name, type and channel. Feed it any amount of sample data, piece by piece; counts of several runs
 * can be saved, loaded and merged; finish builds the codebooks. Takes 8 bytes for each exponent of each channel (2 KiB a channel for BF16). Not thread-safe. */
typedef struct splitzip_calibration splitzip_calibration;

SPLITZIP_API splitzip_status splitzip_calibration_create(splitzip_calibration** calibration);
SPLITZIP_API void splitzip_calibration_destroy(splitzip_calibration* calibration);

/* Count the values of `tensor` (its mode, codebook, keys and units are not used) under `name`. `base_count` is the number of channels
 * of the full tensor, or 1 to have all channels share one base; it and the type must be the same in each call for a name.
 * Errors: INVALID_*, UNSUPPORTED_TYPE, CODEBOOK_MISMATCH (another type or base_count than before), OUT_OF_MEMORY. */
SPLITZIP_API splitzip_status splitzip_calibration_add(splitzip_calibration* calibration, const char* name,
                                                      uint32_t base_count, const splitzip_tensor* tensor,
                                                      const splitzip_layout* source, splitzip_error* error);
/* Add the counts of `other`, which stays as it is. Errors: CODEBOOK_MISMATCH, TOO_LARGE (more than 2^58 values of a tensor in all),
 * OUT_OF_MEMORY. */
SPLITZIP_API splitzip_status splitzip_calibration_merge(splitzip_calibration* calibration,
                                                        const splitzip_calibration* other);
/* Counts as bytes, and back. With dst NULL, save sets *size only. Any bytes whatever are safe to load. */
SPLITZIP_API splitzip_status splitzip_calibration_save(const splitzip_calibration* calibration, void* dst,
                                                       size_t capacity, size_t* size);
SPLITZIP_API splitzip_status splitzip_calibration_load(const void* data, size_t size,
                                                       splitzip_calibration** calibration, splitzip_error* error);
/* Build one codebook for each name, in order of the names. `provenance` (UTF-8, NULL: none) is stored for people to read.
 * The result depends on the counts alone. Errors: NO_SAMPLES, OUT_OF_MEMORY, INVALID_ARGUMENT (provenance too long). */
SPLITZIP_API splitzip_status splitzip_calibration_finish(const splitzip_calibration* calibration,
                                                         const char* provenance, splitzip_codebook_set** set,
                                                         splitzip_error* error);

/* From the lengths of `count` sample frames of one shape (so many tokens of such a tensor), the budget that frames of the same kind of data
 * overrun at about `overflow_rate`, above 0 and below 1. Where too few of the samples are beyond that rate, the longest tenth of them
 * is continued as an exponential tail. `frame_bytes` is sorted by this. Multiples of 16 keep frames aligned that lie one after the other.
 * Errors: INVALID_ARGUMENT (NULL, count 0, a rate that is none), TOO_LARGE. */
SPLITZIP_API splitzip_status splitzip_propose_budget(uint64_t* frame_bytes, size_t count, double overflow_rate,
                                                     uint64_t* budget);

/* ---- 8. Threads and CPU targets ------------------------------------------------------------------------------------- */

/* Threads, created once, that share the work of any number of calls. The result of a call does not depend on them. Calls may use the same
 * workers at the same time: the threads help one call, the others go on with their own thread alone.
 * `threads` counts the calling thread and is at most 4096; 0 means as many as the machine has processors. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY
 * (also for threads that the system does not grant). No call may use the workers while they are destroyed. */
SPLITZIP_API splitzip_status splitzip_workers_create(uint32_t threads, splitzip_workers** workers);
SPLITZIP_API void splitzip_workers_destroy(splitzip_workers* workers);
/* How many threads work for a call, the calling one included; 1 for NULL. */
SPLITZIP_API uint32_t splitzip_workers_threads(const splitzip_workers* workers);

/* The library holds its inner loops in several versions: "scalar" (plain C++, everywhere), "sse4", "avx2", "avx512", "avx512_vbmi2", "neon".
 * All give the same bytes. Those that this machine can run are listed here, the preferred one first, "scalar" last; NULL beyond the end. */
SPLITZIP_API size_t splitzip_cpu_target_count(void);
SPLITZIP_API const char* splitzip_cpu_target_name(size_t index);
/* The one in use, and use another one in all calls that start from now on (NULL or "": the preferred one), for tests and measurements.
 * Errors: INVALID_ARGUMENT (this machine has no such target). */
SPLITZIP_API const char* splitzip_cpu_target_active(void);
SPLITZIP_API splitzip_status splitzip_cpu_target_select(const char* name);

#ifdef __cplusplus
}
#endif

#endif
