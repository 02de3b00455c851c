// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codec_row.hpp"

namespace splitzip::bench {
namespace {

constexpr std::size_t kAlignment = 256;

/// All sets of a workload, which must be contiguous, in chunks.
class Codec {
 public:
  Codec(Workload& workload, const nvcomp::Library& library, const nvcomp::Variant& variant)
      : workload_(workload), library_(library), variant_(variant), functions_(library.functions(variant.codec)) {
    chunks_ = (workload.bytes + variant.chunk - 1) / variant.chunk;
    library.check(functions_.max_output_chunk_size(variant.chunk, variant.compress, &most_), "MaxOutputChunkSize");
    const std::size_t stride = (most_ + kAlignment - 1) / kAlignment * kAlignment;
    const std::size_t all = chunks_ * workload.sets;
    compressed_ = DeviceBytes(all * stride);
    std::vector<const void*> in(all), out(all), middle(all);
    raw_bytes_.resize(all);
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t chunk = i % chunks_ * variant.chunk, at = i / chunks_ * workload.bytes + chunk;
      in[i] = workload.source.data() + at;
      out[i] = workload.destination.data() + at;
      middle[i] = compressed_.data() + i * stride;
      raw_bytes_[i] = std::min(variant.chunk, workload.bytes - chunk);
    }
    in_ = DeviceBytes(in), out_ = DeviceBytes(out), middle_ = DeviceBytes(middle), in_bytes_ = DeviceBytes(raw_bytes_);
    middle_bytes_ = DeviceBytes(all * sizeof(std::size_t));
    out_bytes_ = DeviceBytes(all * sizeof(std::size_t));
    statuses_ = DeviceBytes(all * sizeof(nvcomp::Status));
    std::size_t encode = 0, decode = 0;
    library.check(
        functions_.compress_temp_size(chunks_, variant.chunk, variant.compress, &encode, workload.bytes, nullptr),
        "CompressGetTempSize");
    library.check(
        functions_.decompress_temp_size(chunks_, variant.chunk, variant.decompress, &decode, workload.bytes, nullptr),
        "DecompressGetTempSize");
    encode_temp_ = DeviceBytes(encode), decode_temp_ = DeviceBytes(decode);
  }

  void encode(std::size_t set, cudaStream_t stream) const {
    const std::size_t at = set * chunks_;
    library_.check(functions_.compress(in_.as<const void*>() + at, in_bytes_.as<std::size_t>() + at, variant_.chunk,
                                       chunks_, encode_temp_.data(), encode_temp_.size(), middle_.as<void*>() + at,
                                       middle_bytes_.as<std::size_t>() + at, variant_.compress,
                                       statuses_.as<nvcomp::Status>() + at, stream),
                   "CompressAsync");
  }
  void decode(std::size_t set, cudaStream_t stream) const {
    const std::size_t at = set * chunks_;
    library_.check(functions_.decompress(middle_.as<const void*>() + at, middle_bytes_.as<std::size_t>() + at,
                                         in_bytes_.as<std::size_t>() + at, out_bytes_.as<std::size_t>() + at, chunks_,
                                         decode_temp_.data(), decode_temp_.size(), out_.as<void*>() + at,
                                         variant_.decompress, statuses_.as<nvcomp::Status>() + at, stream),
                   "DecompressAsync");
  }

  double check_compressed() {
    check_statuses("compression");
    std::uint64_t total = 0;
    for (const std::size_t bytes : middle_bytes_.download<std::size_t>(raw_bytes_.size())) {
      if (bytes == 0 || bytes > most_) throw Failure("a compressed chunk has " + std::to_string(bytes) + " bytes");
      total += bytes;
    }
    return static_cast<double>(workload_.host.size()) / static_cast<double>(total);
  }
  void check_decompressed(const Stream& stream) {
    check_statuses("decompression");
    if (out_bytes_.download<std::size_t>(raw_bytes_.size()) != raw_bytes_)
      throw Failure("a decompressed chunk has another length");
    workload_.check_destination(stream);
  }
  void poison() {
    compressed_.fill(0xA5);
    workload_.destination.fill(0xA5);
    out_bytes_.fill(0);
    statuses_.fill(0);
  }

 private:
  void check_statuses(const char* what) {
    for (const nvcomp::Status status : statuses_.download<nvcomp::Status>(raw_bytes_.size()))
      library_.check(status, what);
  }

  Workload& workload_;
  const nvcomp::Library& library_;
  const nvcomp::Variant& variant_;
  nvcomp::Functions functions_;
  std::size_t chunks_ = 0, most_ = 0;
  std::vector<std::size_t> raw_bytes_;
  DeviceBytes compressed_, in_, out_, middle_, in_bytes_, middle_bytes_, out_bytes_, statuses_, encode_temp_,
      decode_temp_;
};

}  // namespace

void run_nvcomp(Workload& workload, const nvcomp::Library& library, const nvcomp::Variant& variant,
                const Settings& settings, const Stream& stream, Row& row) {
  row.codec = variant.name;
  if (!workload.pages.empty()) throw Failure("nvCOMP is measured on contiguous memory only");
  Codec codec(workload, library, variant);
  const auto encode = [&](std::size_t set) { codec.encode(set, stream); };
  const auto decode = [&](std::size_t set) { codec.decode(set, stream); };

  codec.poison();
  for (std::size_t set = 0; set < workload.sets; ++set) encode(set);
  stream.wait();
  row.ratio = codec.check_compressed();
  for (std::size_t set = 0; set < workload.sets; ++set) decode(set);
  stream.wait();
  codec.check_decompressed(stream);

  const bool graph = workload.bytes < settings.graph_below;
  row.encode = measure(stream, workload.sets, graph, settings.seconds, encode);
  row.decode = measure(stream, workload.sets, graph, settings.seconds, decode);
  codec.check_decompressed(stream);
}

}  // namespace splitzip::bench
