/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a codebook of sample data, encodes a key cache with it, decodes the frame and compares.
 */
#include <splitzip/splitzip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTokens = 512, kChannels = 256 };

/* BF16 values as they are in a key cache: bell-shaped, each channel with a scale of its own. */
static void fill(uint16_t* values, uint32_t seed) {
  for (size_t i = 0; i < (size_t)kTokens * kChannels; ++i) {
    float value = -2.0f;
    for (int k = 0; k < 4; ++k) {
      seed = seed * 1664525u + 1013904223u;
      value += (float)(seed >> 8) * 0x1p-24f;
    }
    value *= (float)(1u << (i % kChannels % 7));
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    values[i] = (uint16_t)(bits >> 16);
  }
}

int main(void) {
  const size_t raw_bytes = (size_t)kTokens * kChannels * sizeof(uint16_t);
  uint16_t* sample = malloc(raw_bytes);
  uint16_t* keys = malloc(raw_bytes);
  uint16_t* back = malloc(raw_bytes);
  void* bytes = NULL;
  size_t size = 0;
  splitzip_calibration* calibration = NULL;
  splitzip_codebook_set* codebooks = NULL;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  int result = 1;
  if (sample == NULL || keys == NULL || back == NULL) goto done;
  fill(sample, 1);
  fill(keys, 2);

  /* begin calibrate */
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, NULL, kTokens, kChannels);
  splitzip_layout layout = splitzip_layout_contiguous(sample, &tensor);
  if (splitzip_calibration_create(&calibration) != SPLITZIP_OK ||
      splitzip_calibration_add(calibration, "layer.0.key", kChannels, &tensor, &layout, &error) != SPLITZIP_OK ||
      splitzip_calibration_finish(calibration, "quickstart", &codebooks, &error) != SPLITZIP_OK) {
    goto done;
  }
  /* end calibrate */

  /* begin encode */
  tensor.codebook = splitzip_codebook_set_find(codebooks, "layer.0.key");
  layout = splitzip_layout_contiguous(keys, &tensor);
  splitzip_frame_sizes sizes = {.struct_size = sizeof sizes};
  if (splitzip_get_frame_sizes(&tensor, 1, NULL, &sizes, &error) != SPLITZIP_OK) goto done;
  bytes = malloc(sizes.bound_bytes);
  if (bytes == NULL) goto done;
  if (splitzip_encode(&tensor, &layout, 1, NULL, bytes, sizes.bound_bytes, &size, &error) != SPLITZIP_OK) goto done;
  /* end encode */

  /* begin decode */
  splitzip_frame frame = {.struct_size = sizeof frame};
  layout = splitzip_layout_contiguous(back, &tensor);
  if (splitzip_frame_open(bytes, size, NULL, &frame, &error) != SPLITZIP_OK ||
      splitzip_decode(&frame, &tensor, &layout, 1, NULL, &error) != SPLITZIP_OK) {
    goto done;
  }
  /* end decode */

  if (memcmp(keys, back, raw_bytes) != 0) {
    fputs("the decoded values differ\n", stderr);
    goto done;
  }
  printf("%zu bytes as %zu: ratio %.3f, every bit the same\n", raw_bytes, size, (double)raw_bytes / (double)size);
  result = size < raw_bytes ? 0 : 1;

done:
  if (error.status != SPLITZIP_OK) fprintf(stderr, "%s: %s\n", splitzip_status_name(error.status), error.message);
  splitzip_codebook_set_destroy(codebooks);
  splitzip_calibration_destroy(calibration);
  free(bytes);
  free(back);
  free(keys);
  free(sample);
  return result;
}
