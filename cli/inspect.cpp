// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <memory>

#include "command.hpp"
#include "common/bytes.hpp"
#include "container.hpp"
#include "format/frame.hpp"
#include "json.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
};

/// What is known of a frame without its values.
struct FrameFacts {
  ReadFrame read;  // its pointers are no longer valid
  std::array<std::uint32_t, 3> kinds{};
};

/// What a part of the original (the header, a tensor) takes in the file.
struct PartFacts {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t frames = 0;
  std::array<std::uint64_t, 3> frames_by_mode{};

  std::string modes() const {
    std::string text;
    for (std::size_t mode = 0; mode < frames_by_mode.size(); ++mode) {
      if (frames_by_mode[mode] > 0)
        text += (text.empty() ? "" : "+") + std::string(splitzip_mode_name(static_cast<splitzip_mode>(mode)));
    }
    return text;
  }
};

/// Chunks by kind, from the directory of a frame that was checked.
std::array<std::uint32_t, 3> chunk_kinds(const splitzip_frame& frame) {
  const auto* const data = static_cast<const std::uint8_t*>(frame.data);
  GeometryWalk walk;
  const char* message = nullptr;
  walk.count(load_entry(data, 0).shape(), &message);
  walk.finish_counting((frame.flags & kFlagChecksums) != 0);
  std::array<std::uint32_t, 3> kinds{};
  for (std::uint32_t chunk = 0; chunk < frame.chunk_count; ++chunk) {
    const auto record = load<std::uint16_t>(data + walk.frame().records_offset + 2 * std::uint64_t{chunk});
    ++kinds.at(record >> 8);
  }
  return kinds;
}

class FileInspector {
 public:
  FileInspector(Input& input, Console& console) : reader_(input) {
    const bool safetensors = reader_.kind() == OriginalKind::kSafetensors;
    std::vector<std::uint8_t> buffer;
    while (const auto read = reader_.next(buffer)) {
      frames_.push_back({*read, chunk_kinds(read->frame)});
      if (safetensors) collect_header(*read);
      console.progress(input.name(), input.position(), input.size());
    }
    file_bytes_ = reader_.file_bytes();
    describe_parts(safetensors);
    assign_frames();
  }

  void print(bool verbose) const {
    std::string text = reader_.name() + "\n";
    text += format("%llu => %llu bytes, ratio %.4f; %s; %zu frames; %s\n",
                   static_cast<unsigned long long>(reader_.original_bytes()),
                   static_cast<unsigned long long>(file_bytes_), ratio(reader_.original_bytes(), file_bytes_),
                   reader_.kind() == OriginalKind::kSafetensors ? "safetensors" : "plain", frames_.size(),
                   reader_.codebook_set().empty() ? "no codebooks embedded" : "codebooks embedded");
    std::vector<std::vector<std::string>> rows = {
        {"tensor", "dtype", "shape", "bytes", "stored", "ratio", "mode", "frames"}};
    for (const PartFacts& part : parts_) {
      std::string shape;
      for (const std::uint64_t length : part.shape)
        shape.append(shape.empty() ? "" : "x").append(std::to_string(length));
      rows.push_back({printable(part.name), part.dtype, shape, std::to_string(part.end - part.begin),
                      std::to_string(part.stored_bytes),
                      format("%.4f", ratio(part.end - part.begin, part.stored_bytes)), part.modes(),
                      std::to_string(part.frames)});
    }
    text += table(rows);
    if (verbose) text += frame_table();
    std::fputs(text.c_str(), stdout);
  }

  Json json() const {
    Json result = {{"file", reader_.name()},
                   {"kind", "file"},
                   {"version", SPLITZIP_FORMAT_VERSION},
                   {"original", reader_.kind() == OriginalKind::kSafetensors ? "safetensors" : "plain"},
                   {"original_bytes", reader_.original_bytes()},
                   {"file_bytes", file_bytes_},
                   {"ratio", ratio(reader_.original_bytes(), file_bytes_)},
                   {"codebook_set", nullptr},
                   {"tensors", Json::array()},
                   {"frames", Json::array()}};
    if (!reader_.codebook_set().empty()) {
      const auto set = parse_codebook_set(reader_.codebook_set(), reader_.name() + ": embedded codebook set");
      result["codebook_set"] = codebook_set_json(set.get());
    }
    for (const PartFacts& part : parts_) {
      result["tensors"].push_back({{"name", part.name},
                                   {"dtype", part.dtype},
                                   {"shape", part.shape},
                                   {"original_bytes", part.end - part.begin},
                                   {"stored_bytes", part.stored_bytes},
                                   {"ratio", ratio(part.end - part.begin, part.stored_bytes)},
                                   {"mode", part.modes()},
                                   {"frames", part.frames}});
    }
    for (const FrameFacts& frame : frames_) result["frames"].push_back(frame_json(frame));
    return result;
  }

 private:
  /// The first frames hold the length field and the header; they are raw, so no codebook is needed to read them.
  void collect_header(const ReadFrame& frame) {
    if (frame.original_offset >= header_end() || frame.codebook_hash != 0) return;
    std::vector<std::uint8_t> values;
    const Bytes piece = Decoder().decode(frame, reader_.name(), values);
    header_.insert(header_.end(), piece.begin(), piece.end());
  }

  std::uint64_t header_end() const {
    if (header_.size() < kSafetensorsLengthBytes) return kSafetensorsLengthBytes;
    return kSafetensorsLengthBytes + parse_safetensors_length(Bytes(header_).first<kSafetensorsLengthBytes>());
  }

  void describe_parts(bool safetensors) {
    if (!safetensors) {
      parts_.push_back({.name = "(all)", .dtype = {}, .shape = {}, .begin = 0, .end = reader_.original_bytes()});
      return;
    }
    const std::uint64_t end = header_end();
    if (header_.size() != end)
      throw Error(reader_.name() + ": the first frames are not the header of a safetensors file");
    const Bytes json = Bytes(header_).subspan(kSafetensorsLengthBytes);
    const auto header = parse_safetensors_header({reinterpret_cast<const char*>(json.data()), json.size()});
    parts_.push_back({.name = "(header)", .dtype = {}, .shape = {}, .begin = 0, .end = end});
    for (const SafetensorsTensor& tensor : header.tensors) {
      parts_.push_back({.name = tensor.name,
                        .dtype = std::string(tensor.dtype->name),
                        .shape = tensor.shape,
                        .begin = end + tensor.begin,
                        .end = end + tensor.end});
    }
    if (end + header.data_bytes != reader_.original_bytes()) {
      throw Error(reader_.name() + ": the frames do not give as many bytes as the safetensors header declares");
    }
  }

  /// Frames and parts are both in the order of the original.
  void assign_frames() {
    std::size_t part = 0;
    for (FrameFacts& frame : frames_) {
      while (part + 1 < parts_.size() && frame.read.original_offset >= parts_[part].end) ++part;
      frame_parts_.push_back(part);
      parts_[part].stored_bytes += frame.read.frame.size;
      ++parts_[part].frames;
      ++parts_[part].frames_by_mode.at(static_cast<std::size_t>(frame.read.tensor.mode));
    }
  }

  Json frame_json(const FrameFacts& frame) const {
    const splitzip_tensor& tensor = frame.read.tensor;
    return {{"number", frame.read.number},
            {"file_offset", frame.read.block_offset + kFilePartBytes},
            {"frame_bytes", frame.read.frame.size},
            {"original_offset", frame.read.original_offset},
            {"original_bytes", frame.read.original_bytes},
            {"ratio", ratio(frame.read.original_bytes, frame.read.frame.size)},
            {"tensor", parts_[frame_parts_[frame.read.number]].name},
            {"order", frame.read.order == FrameOrder::kTokenMajor ? "token_major" : "range_major"},
            {"type", splitzip_element_type_name(tensor.type)},
            {"mode", splitzip_mode_name(tensor.mode)},
            {"codebook", frame.read.codebook_hash == 0 ? Json(nullptr) : Json(hex64(frame.read.codebook_hash))},
            {"tensor_key", hex64(tensor.tensor_key)},
            {"first_block", tensor.first_block},
            {"tokens", tensor.tokens},
            {"tokens_per_unit", tensor.tokens_per_unit},
            {"channels", tensor.channels},
            {"first_channel", tensor.first_channel},
            {"ranges", tensor.ranges},
            {"slot_words", tensor.slot_words},
            {"tiles", frame.read.frame.tile_count},
            {"spill_bytes", std::uint64_t{frame.read.frame.spill_words} * 4},
            {"chunks", {{"coded", frame.kinds[0]}, {"raw", frame.kinds[1]}, {"constant", frame.kinds[2]}}}};
  }

  std::string frame_table() const {
    std::vector<std::vector<std::string>> rows = {{"frame", "original at", "bytes", "stored", "type", "mode", "tokens",
                                                   "unit", "ranges", "channels", "coded", "raw", "constant", "spill"}};
    for (const FrameFacts& frame : frames_) {
      const splitzip_tensor& tensor = frame.read.tensor;
      rows.push_back({std::to_string(frame.read.number), std::to_string(frame.read.original_offset),
                      std::to_string(frame.read.original_bytes), std::to_string(frame.read.frame.size),
                      splitzip_element_type_name(tensor.type), splitzip_mode_name(tensor.mode),
                      std::to_string(tensor.tokens), std::to_string(tensor.tokens_per_unit),
                      std::to_string(tensor.ranges), std::to_string(tensor.channels), std::to_string(frame.kinds[0]),
                      std::to_string(frame.kinds[1]), std::to_string(frame.kinds[2]),
                      human_bytes(std::uint64_t{frame.read.frame.spill_words} * 4)});
    }
    return table(rows);
  }

  ContainerReader reader_;
  std::uint64_t file_bytes_ = 0;
  std::vector<FrameFacts> frames_;
  std::vector<std::size_t> frame_parts_;  // of each frame, the part where it begins
  std::vector<PartFacts> parts_;
  std::vector<std::uint8_t> header_;
};

void inspect_codebook_set(Input& input, bool as_json) {
  const auto bytes = input.read_all(kLargestCodebookSet, "a codebook set");
  const CodebookSet set = parse_codebook_set(bytes, input.name());
  if (as_json) {
    Json result = {{"file", input.name()},
                   {"kind", "codebook_set"},
                   {"version", SPLITZIP_FORMAT_VERSION},
                   {"file_bytes", bytes.size()}};
    result.update(codebook_set_json(set.get()));
    print_json(result);
    return;
  }
  std::printf("%s\n%zu codebooks, %zu bytes; %s\n%s", input.name().c_str(), splitzip_codebook_set_count(set.get()),
              bytes.size(), printable(splitzip_codebook_set_provenance(set.get())).c_str(),
              codebook_table(set.get()).c_str());
}

int inspect(const InspectOptions& options) {
  Console console(options.common.quiet, options.common.verbose);
  return for_each_input(options.common, console, [&](const std::string& path) {
    Input input(path);
    if (input.begins_as(kCodebookSetFile)) {
      inspect_codebook_set(input, options.common.json);
      return;
    }
    const FileInspector inspector(input, console);
    console.clear_progress();
    if (options.common.json) {
      print_json(inspector.json());
    } else {
      inspector.print(options.common.verbose);
    }
  });
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("inspect", "What is in *.szkv files and *.szcb codebook sets");
  const auto options = std::make_shared<InspectOptions>();
  add_common_options(*command, options->common, "A line for each frame, too");
  command->callback([options, &run] { run = [options] { return inspect(*options); }; });
}

}  // namespace splitzip::cli
