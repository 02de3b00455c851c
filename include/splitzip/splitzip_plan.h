/* SPDX-License-Identifier: Apache-2.0
 *
 * splitzip: is it worth encoding this transfer, in which mode, and in slices of which size?
 *
 * The planner is arithmetic on measured figures; it measures nothing, keeps nothing, allocates nothing and may be called for
 * every transfer. `splitzip bench --json` measures a machine, and `splitzip plan` is this header as a command.
 *
 * The model. A transfer of B raw bytes is cut into n = ceil(B / slice) equal slices. A slice of s bytes passes three stages,
 * each of which works on one slice at a time:
 *
 *     encode  e = encode_seconds + s / encode_bytes_per_second
 *     send    x = link.seconds   + s / (ratio * link.bytes_per_second)
 *     decode  d = decode_seconds + s / decode_bytes_per_second
 *
 * so the whole takes e + x + d + (n - 1) * max(e, x, d), the length of a flow shop of equal jobs. Plain raw transfer takes
 * raw_writes * link.seconds + B / link.bytes_per_second.
 */
#ifndef SPLITZIP_PLAN_H
#define SPLITZIP_PLAN_H

#include "splitzip/splitzip.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct splitzip_link {
  double bytes_per_second;
  double seconds; /* of each write beside its bytes: from posting it until the receiver knows that it is there */
} splitzip_link;

/* One way to run the codec, as measured. Speeds are of raw bytes and of large slices, at most 1e18; seconds are what a call costs
 * beside its bytes, handing the slice to the next stage included: between threads that is some 100 us. In mode RAW values are
 * gathered, framed and checked, not coded, and the ratio is just below 1. */
typedef struct splitzip_codec_speed {
  splitzip_mode mode;
  uint32_t budget; /* multiprocessors or threads that it occupies; the planner only prefers fewer of them */
  double ratio;    /* raw bytes / encoded bytes */
  double encode_bytes_per_second;
  double encode_seconds;
  double decode_bytes_per_second;
  double decode_seconds;
} splitzip_codec_speed;

typedef struct splitzip_plan_options {
  size_t struct_size;
  uint64_t raw_bytes;  /* of the transfer */
  uint64_t raw_writes; /* writes of a plain raw transfer: 1, or one for each page */
  splitzip_link link;
  const splitzip_codec_speed* speeds; /* the ways to choose from */
  size_t speed_count;                 /* may be 0: then the plan is plain raw */
  uint64_t smallest_slice_bytes;      /* slices are powers of two from here */
  uint64_t largest_slice_bytes;       /* to here, or the whole transfer where that is no longer than this */
  double least_gain;                  /* encode only if raw takes this share longer, for the errors of measurement */
} splitzip_plan_options;

/* One write, slices from 64 KiB to 256 MiB, encoded only where that gains 2 %. */
#define SPLITZIP_PLAN_OPTIONS_INIT \
  { sizeof(splitzip_plan_options), 0, 1, {0, 0}, NULL, 0, UINT64_C(1) << 16, UINT64_C(1) << 28, 0.02 }

/* What takes longest, and so bounds the transfer. */
typedef enum splitzip_plan_bound SPLITZIP_ANY_INT {
  SPLITZIP_BOUND_LINK = 0,
  SPLITZIP_BOUND_ENCODE = 1,
  SPLITZIP_BOUND_DECODE = 2
} splitzip_plan_bound;

typedef struct splitzip_plan {
  size_t struct_size;
  uint64_t speed;       /* index of the chosen way, or SPLITZIP_NOWHERE: plain raw, without the codec */
  uint64_t slice_bytes; /* the transfer as a whole if it is plain raw */
  uint64_t slices;
  double seconds;         /* predicted */
  double raw_seconds;     /* predicted of plain raw transfer; never less than `seconds` */
  double exposed_seconds; /* what encoding and decoding add to the time of the writes alone */
  splitzip_plan_bound bound;
  const char* reason; /* one English sentence, static storage */
} splitzip_plan;

/* The fastest way for this transfer. Among ways within 1 % of the fastest it takes the one of the smallest budget, then the largest
 * slices. INVALID_ARGUMENT: NULL, a struct_size of another version, a figure that is not finite or not positive (seconds and
 * least_gain may be 0), raw_writes of 0, slice sizes that are 0 or in the wrong order; error->tensor is then the index of the speed. */
SPLITZIP_API splitzip_status splitzip_plan_transfer(const splitzip_plan_options* options, splitzip_plan* plan,
                                                    splitzip_error* error);

#ifdef __cplusplus
}
#endif

#endif
