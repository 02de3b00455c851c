/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers the keys of a sequence from the scattered 16-token pages of one pool, and scatters them to single-token slots of
 * another one; then takes one block of one head out of the same frame.
 */
#include <splitzip/splitzip.h>
#include <stdio.h>
#include <string.h>

enum { kTokens = 40, kHeads = 2, kHeadChannels = 64, kPageTokens = 16, kPages = 8, kSlots = 64 };

typedef uint16_t Row[kHeads][kHeadChannels];

static Row sent[kPages][kPageTokens];
static Row received[kSlots];
static uint16_t block[kPageTokens][kHeadChannels];
static unsigned char bytes[1 << 16];

static const int32_t pages[] = {6, 1, 4}; /* where the sequence lies in the sender's pool */
static int32_t slots[kTokens];            /* and in the receiver's */

/* The row of token t, on either side. */
static Row* sent_row(uint32_t t) { return &sent[pages[t / kPageTokens]][t % kPageTokens]; }
static Row* received_row(uint32_t t) { return &received[slots[t]]; }

static int failed(const splitzip_error* error) {
  fprintf(stderr, "%s: %s\n", splitzip_status_name(error->status), error->message);
  return 1;
}

int main(void) {
  for (uint32_t t = 0; t < kTokens; ++t) {
    slots[t] = (int32_t)(t * 37 % kSlots);
    for (uint32_t h = 0; h < kHeads; ++h) {
      for (uint32_t c = 0; c < kHeadChannels; ++c) (*sent_row(t))[h][c] = (uint16_t)(0x3F80 + t + h * c);
    }
  }
  splitzip_error error = SPLITZIP_ERROR_INIT;

  /* begin gather */
  splitzip_tensor keys = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, NULL, kTokens, kHeadChannels);
  keys.ranges = kHeads;
  keys.tokens_per_unit = kPageTokens;

  splitzip_layout source = splitzip_layout_contiguous(sent, &keys);
  source.page_tokens = kPageTokens;
  source.page_stride = sizeof sent[0];
  source.page_indices = pages;
  source.page_count = sizeof pages / sizeof pages[0];

  size_t size = 0;
  if (splitzip_encode(&keys, &source, 1, NULL, bytes, sizeof bytes, &size, &error) != SPLITZIP_OK)
    return failed(&error);
  /* end gather */

  /* begin scatter */
  splitzip_layout destination = splitzip_layout_contiguous(received, &keys);
  destination.page_tokens = 1;
  destination.page_stride = sizeof received[0];
  destination.page_indices = slots;
  destination.page_count = kTokens;

  splitzip_frame frame = {.struct_size = sizeof frame};
  if (splitzip_frame_open(bytes, size, NULL, &frame, &error) != SPLITZIP_OK ||
      splitzip_decode(&frame, &keys, &destination, 1, NULL, &error) != SPLITZIP_OK) {
    return failed(&error);
  }
  /* end scatter */

  /* begin unit */
  const uint32_t head = 1, block_number = 1; /* tokens 16 to 31 of head 1 */
  splitzip_layout one = {.struct_size = sizeof one, .base = block, .row_stride = sizeof block[0]};
  if (splitzip_decode_unit(&frame, 0, &keys, block_number * kHeads + head, 0, kPageTokens, &one, &error) !=
      SPLITZIP_OK) {
    return failed(&error);
  }
  /* end unit */

  for (uint32_t t = 0; t < kTokens; ++t) {
    if (memcmp(sent_row(t), received_row(t), sizeof(Row)) != 0) return 1;
  }
  for (uint32_t t = 0; t < kPageTokens; ++t) {
    if (memcmp((*sent_row(kPageTokens + t))[head], block[t], sizeof block[t]) != 0) return 1;
  }
  puts("the pools hold the same rows, and the unit is its part of them");
  return 0;
}
