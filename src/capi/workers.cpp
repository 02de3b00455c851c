// SPDX-License-Identifier: Apache-2.0
#include "capi/workers.hpp"

#include <new>
#include <system_error>
#include <thread>

#include "cpu/backend.hpp"

namespace {

constexpr std::uint32_t kMaxThreads = 4096;

}  // namespace

splitzip_status splitzip_workers_create(uint32_t threads, splitzip_workers** workers) {
  if (workers == nullptr || threads > kMaxThreads) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  if (threads == 0) threads = std::thread::hardware_concurrency();
  if (threads == 0) threads = 1;
  try {
    *workers = new splitzip_workers{splitzip::Workers(threads)};
    return SPLITZIP_OK;
  } catch (const std::bad_alloc&) {
    return SPLITZIP_ERROR_OUT_OF_MEMORY;
  } catch (const std::system_error&) {
    return SPLITZIP_ERROR_OUT_OF_MEMORY;
  }
}

void splitzip_workers_destroy(splitzip_workers* workers) { delete workers; }

uint32_t splitzip_workers_threads(const splitzip_workers* workers) {
  return workers == nullptr ? 1 : workers->threads.threads();
}

size_t splitzip_cpu_target_count(void) { return splitzip::backends().size(); }

const char* splitzip_cpu_target_name(size_t index) {
  return index < splitzip::backends().size() ? splitzip::backends()[index]->name : nullptr;
}

const char* splitzip_cpu_target_active(void) { return splitzip::active_backend().name; }

splitzip_status splitzip_cpu_target_select(const char* name) {
  return splitzip::select_backend(name == nullptr ? "" : name) ? SPLITZIP_OK : SPLITZIP_ERROR_INVALID_ARGUMENT;
}
