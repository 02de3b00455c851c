// SPDX-License-Identifier: Apache-2.0
//
// Random batches with requests of all kinds, also such as break the rules of a batch or have damaged frames: each gets the status that is due to it, those
// without fault have the CPU's bytes, and nothing beside them is touched. All calls share one workspace and find there what others have left.
#include <cstdlib>
#include <sstream>

#include "batch.hpp"

namespace splitzip::test {
namespace {

constexpr std::uint64_t kGuard = 512;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// What is wrong with a request, beside its frame.
enum class Trouble { kNone, kNoFrame, kTokens, kFirstToken, kPages, kTwoLists, kFrame8, kOffset };
/// What is wrong with a frame that is to be decoded.
enum class Damage { kNone, kBit, kBytes, kSwap, kShorter, kLonger, kNonce, kBlock, kLengths, kMark, kStale };

struct Expected {
  Bytes bytes;  // of the whole capacity, as the CPU leaves them; without a budget, of the frame
  splitzip_status status = SPLITZIP_OK;
};

class Campaign {
 public:
  Campaign(std::uint64_t seed, DeviceBytes& workspace) : random_(seed), workspace_(workspace), spec_(draw()) {}

  const BatchSpec& spec() const { return spec_; }
  std::string describe() const {
    std::ostringstream text;
    for (const TensorSpec& t : spec_.tensors) {
      text << splitzip_element_type_name(t.type) << " " << splitzip_mode_name(t.mode) << " channels " << t.channels
           << " ranges " << t.ranges << " first " << t.first_channel << " unit " << t.tokens_per_unit << " slot "
           << t.slot_words << " gap " << t.gap << (t.range_major ? " range-major" : "") << " content "
           << static_cast<int>(t.content) << "\n";
    }
    text << spec_.tokens.size() << " requests, tokens";
    for (std::size_t f = 0; f < std::min<std::size_t>(spec_.tokens.size(), 16); ++f) text << " " << spec_.tokens[f];
    if (spec_.tokens.size() > 16) text << " ...";
    text << "\npages of " << spec_.page_tokens << (spec_.page_pointers ? " by pointers" : "") << ", first token "
         << spec_.first_token << ", shift " << spec_.shift << ", checksums " << spec_.checksums << ", max_sms "
         << spec_.max_sms << (spec_.row_lists.empty() ? "" : ", lists");
    return text.str();
  }

  void run() {
    BatchPair pair(spec_);
    const Table table(pair.make_table(pair.device_pool().data()));
    ASSERT_NE(table, nullptr);
    frames_ = pair.encode_all_on_cpu();
    encode(pair, table.get());
    if (::testing::Test::HasFatalFailure()) return;
    DeviceBytes destination(pair.pool().size());
    const Table to(pair.make_table(destination.data()));
    is_value_ = pair.value_bytes();
    for (int times = 0; times < 2 && !::testing::Test::HasFailure(); ++times) {
      destination.fill(kPoison);
      decode(pair, to.get(), destination);
    }
  }

 private:
  BatchSpec draw() {
    BatchSpec spec;
    spec.seed = random_.next();
    spec.tensors.clear();
    // Short calls need BF16 in rows of whole vectors; else anything.
    const bool usual = random_.chance(2), one_giant = random_.chance(6);
    const std::uint32_t most = random_.chance(8) ? 40 : random_.between(1, 5);
    std::uint64_t row_bytes = 0;
    for (std::uint32_t i = random_.between(1, most); i > 0; --i) {
      TensorSpec t;
      if (!usual) t.type = kTypes[random_.below(kTypes.size())];
      t.mode = usual ? kCodedModes[random_.below(2)] : kModes[random_.below(3)];
      t.channels = random_.chance(10)           ? random_.between(1, 8192)
                   : usual || random_.chance(2) ? 8 * random_.between(1, 40)
                                                : random_.between(1, 300);
      if (usual) t.channels = (t.channels + 7) / 8 * 8;
      t.ranges = random_.chance(2) ? 1 : random_.between(2, 5);
      t.first_channel = random_.chance(2) ? 0 : random_.below(20);
      t.tokens_per_unit = random_.chance(3) ? 0 : random_.chance(3) ? 1 : random_.between(1, 70);
      t.slot_words = random_.chance(2) ? SPLITZIP_SLOT_DEFAULT : random_.chance(3) ? 0 : random_.below(1537);
      t.gap = usual ? 16 * random_.below(3) : random_.chance(2) ? 0 : random_.below(40);
      t.range_major = random_.chance(3);
      t.content = static_cast<Content>(random_.below(5));
      row_bytes += std::uint64_t{t.channels} * t.ranges * element(t.type).bytes;
      spec.tensors.push_back(t);
    }
    const std::uint32_t requests = random_.chance(6)    ? random_.between(31, 34)  // around the most of a short call,
                                   : random_.chance(12) ? random_.between(250, 270)
                                   : random_.chance(20) ? 1100  // and of what is planned in shared memory
                                                        : random_.between(1, 8);
    std::uint64_t left = std::min<std::uint64_t>(250'000 / row_bytes, 2000) + 1;  // rows of all requests
    // As many rows as each request has room for, since the memory of all of them is that of the longest.
    const std::uint64_t room = (std::uint64_t{16} << 20) / row_bytes / requests;
    spec.tokens.clear();
    for (std::uint32_t r = 0; r < requests; ++r) {
      std::uint32_t tokens = 0;
      if (!random_.chance(4)) {
        const auto limit = static_cast<std::uint32_t>(std::min({left, room, std::uint64_t{one_giant ? 9u : 2000u}}));
        tokens = random_.below(std::min(limit, random_.chance(3) ? 2000u : 90u) + 1);
      }
      left -= tokens;
      spec.tokens.push_back(tokens);
    }
    if (one_giant) spec.tokens[random_.below(requests)] = static_cast<std::uint32_t>(std::min(left, room));
    const auto most_page = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, 256));
    spec.page_tokens = random_.chance(2) ? 0 : random_.chance(3) ? 1 : random_.between(1, most_page);
    spec.page_pointers = spec.page_tokens != 0 && random_.chance(3);
    spec.first_token = spec.page_tokens == 0 ? 0 : random_.below(std::min(most_page, 100u));
    constexpr std::uint32_t kShifts[] = {0, 0, 0, 2, 4, 8, 1};
    spec.shift = usual && random_.chance(2) ? 0 : kShifts[random_.below(spec.page_pointers ? 6 : 7)];
    if (random_.chance(3)) {
      for (std::size_t i = 0; i < spec.tensors.size(); ++i)
        spec.row_lists.push_back(random_.below(static_cast<std::uint32_t>(spec.tensors.size())));
    }
    spec.checksums = !random_.chance(4);
    spec.max_sms = random_.chance(2) ? 0 : random_.between(1, 9);
    return spec;
  }

  /// All lists of all requests, of which that of one tensor has trouble.
  DeviceBytes lists(const std::vector<splitzip_cuda_rows>& rows, const std::vector<splitzip_cuda_rows>& troubled) {
    std::uint32_t count = 1;
    for (const std::uint32_t list : spec_.row_lists) count = std::max(count, list + 1);
    const std::uint32_t bad = spec_.row_lists.empty()
                                  ? 0
                                  : spec_.row_lists[random_.below(static_cast<std::uint32_t>(spec_.row_lists.size()))];
    std::vector<splitzip_cuda_rows> all;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::uint32_t list = 0; list < count; ++list) all.push_back(list == bad ? troubled[r] : rows[r]);
    }
    return on_device(all);
  }

  Trouble trouble(splitzip_cuda_rows& row, splitzip_cuda_request& request, const BatchPair& pair,
                  splitzip_status& status) {
    static constexpr std::uint32_t kHostile[] = {UINT32_MAX, UINT32_MAX - 1, 0x80000000u, 0x80000001u, 0x10000u};
    if (!random_.chance(4)) return Trouble::kNone;
    const auto trouble = static_cast<Trouble>(1 + random_.below(7));
    const std::uint32_t most = pair.tensors()[0].tokens;
    switch (trouble) {
      case Trouble::kNoFrame: request.frame = nullptr; break;
      case Trouble::kTokens:
        row.tokens = random_.chance(2) ? most + 1 : kHostile[random_.below(std::size(kHostile))];
        if (row.tokens <= most) row.tokens = most + 1;
        status = SPLITZIP_ERROR_TOO_LARGE;
        break;
      case Trouble::kFirstToken:
        if (row.tokens == 0) return Trouble::kNone;
        row.first_token = UINT32_MAX - random_.below(row.tokens);
        status = SPLITZIP_ERROR_TOO_LARGE;
        break;
      case Trouble::kPages:
        if (row.tokens == 0) return Trouble::kNone;
        if (spec_.page_tokens == 0) {
          row.page_indices = reinterpret_cast<const std::int32_t*>(16);
        } else {
          row.page_count = random_.below(static_cast<std::uint32_t>(row.page_count));
        }
        status = SPLITZIP_ERROR_INVALID_LAYOUT;
        break;
      case Trouble::kTwoLists:
        if (row.tokens == 0) return Trouble::kNone;
        row.page_indices = reinterpret_cast<const std::int32_t*>(16);
        row.page_pointers = reinterpret_cast<void* const*>(16);
        status = SPLITZIP_ERROR_INVALID_LAYOUT;
        break;
      case Trouble::kFrame8:
        request.frame = static_cast<std::uint8_t*>(request.frame) + random_.between(1, 15);
        status = SPLITZIP_ERROR_INVALID_ARGUMENT;
        break;
      default: return Trouble::kNone;
    }
    return trouble;
  }

  /// Bytes of workspace that a call is given, just as many as it asks for, with a guard behind; all else is what was there before.
  void give_workspace(splitzip_cuda_batch& batch, const splitzip_cuda_table* table, bool decoding) {
    const auto query = decoding ? splitzip_cuda_decode_workspace : splitzip_cuda_encode_workspace;
    ASSERT_EQ(query(table, batch.request_count, batch.max_total_tokens, &batch.workspace_bytes), SPLITZIP_OK);
    ASSERT_EQ(batch.workspace_bytes % 256, 0u);
    if (workspace_.size() < batch.workspace_bytes + kGuard) workspace_ = DeviceBytes(batch.workspace_bytes + kGuard);
    // At the end of the memory, so that what goes far beyond it shows, too.
    std::uint8_t* const guard = workspace_.data() + workspace_.size() / 256 * 256 - kGuard;
    batch.workspace = guard - batch.workspace_bytes;
    check_cuda(cudaMemset(guard, kPoison, kGuard));
  }
  void expect_guards() {
    Bytes guard(kGuard);
    check_cuda(cudaMemcpy(guard.data(), workspace_.data() + workspace_.size() / 256 * 256 - kGuard, kGuard,
                          cudaMemcpyDefault));
    EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::uint8_t b) { return b == kPoison; })) << "workspace";
  }

  /// 0, or no less than what the requests have.
  std::uint64_t promise(const std::vector<splitzip_cuda_rows>& rows, bool& kept) {
    std::uint64_t sum = 0;
    for (const auto& row : rows) sum += row.tokens;
    kept = true;
    switch (random_.below(6)) {
      case 0: return std::max<std::uint64_t>(sum, 1);
      case 1: return sum + random_.below(100) + 1;
      case 2: kept = sum <= 1; return 1;
      case 3: {
        const std::uint64_t less = sum / random_.between(1, 20) + 1;
        return kept = less >= sum, less;
      }
      default: return 0;
    }
  }

  void encode(BatchPair& pair, const splitzip_cuda_table* table) {
    const std::vector<splitzip_cuda_rows> good = pair.make_rows(pair.device_pool().data());
    const bool budgets = random_.chance(3);
    std::vector<std::uint64_t> capacities;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      const std::uint64_t size = frames_[r].size();
      switch (random_.below(9)) {
        case 0: capacities.push_back(size - 1); break;
        case 1: capacities.push_back(random_.below(static_cast<std::uint32_t>(size))); break;
        case 2: capacities.push_back(random_.below(60)); break;
        case 3: capacities.push_back(size + random_.below(10'000)); break;
        case 4: capacities.push_back(pair.known(r)); break;
        case 5: capacities.push_back(pair.bound(r)); break;
        default: capacities.push_back(size);
      }
    }
    Call call(good, capacities, spec_, table);
    auto rows = good;
    std::vector<splitzip_status> due(pair.requests(), SPLITZIP_OK);
    std::vector<Trouble> troubles;
    for (std::size_t r = 0; r < pair.requests(); ++r)
      troubles.push_back(trouble(rows[r], call.requests()[r], pair, due[r]));
    const DeviceBytes row_lists = lists(good, rows);
    call.batch().rows = row_lists.as<splitzip_cuda_rows>();
    bool kept = false;
    call.batch().max_total_tokens = promise(good, kept);
    call.batch().budgets = budgets;
    ASSERT_NO_FATAL_FAILURE(give_workspace(call.batch(), table, false));
    ASSERT_NO_FATAL_FAILURE(call.encode());
    expect_guards();
    std::uint32_t failed = 0;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      SCOPED_TRACE(::testing::Message() << "encoding request " << r << ", trouble " << static_cast<int>(troubles[r])
                                        << ", capacity " << capacities[r] << ", frame " << frames_[r].size()
                                        << (budgets ? ", budgets" : ""));
      const auto status = static_cast<splitzip_status>(call.result(r).status);
      failed += status != SPLITZIP_OK;
      EXPECT_TRUE(call.guard_is_whole(r));
      if (troubles[r] == Trouble::kNoFrame) {
        EXPECT_EQ(status, SPLITZIP_OK);
        EXPECT_EQ(call.result(r).frame_bytes, 0u);
        expect_untouched(call, r);
        continue;
      }
      if (troubles[r] == Trouble::kFrame8) {
        EXPECT_EQ(status, due[r]);
        continue;
      }
      if (due[r] != SPLITZIP_OK) {
        EXPECT_EQ(status, due[r]);
        EXPECT_EQ(call.result(r).frame_bytes, 0u);
        continue;
      }
      // That there are more tokens than was promised fails those that have no place any more.
      if (!kept && status == SPLITZIP_ERROR_TOO_LARGE) continue;
      if (budgets) {
        Bytes bytes(capacities[r], kPoison);
        const splitzip_status on_cpu = pair.encode_in_budget(r, bytes);
        ASSERT_EQ(status, on_cpu);
        if (status != SPLITZIP_OK && status != SPLITZIP_ERROR_OVER_BUDGET) continue;
        ASSERT_EQ(call.result(r).frame_bytes, status == SPLITZIP_OK ? frames_[r].size() : 48);
        ASSERT_EQ(call.capacity_bytes(r), bytes);
        continue;
      }
      if (capacities[r] < frames_[r].size()) {
        ASSERT_EQ(status, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
        ASSERT_EQ(call.result(r).frame_bytes, 0u);
        continue;
      }
      ASSERT_EQ(status, SPLITZIP_OK);
      ASSERT_EQ(call.result(r).frame_bytes, frames_[r].size());
      ASSERT_EQ(call.frame(r), frames_[r]);
      Bytes all = call.capacity_bytes(r);
      EXPECT_TRUE(std::all_of(all.begin() + static_cast<std::ptrdiff_t>(frames_[r].size()), all.end(),
                              [](std::uint8_t b) { return b == kPoison; }));
    }
    EXPECT_EQ(call.failed(), failed);
    ASSERT_EQ(pair.device_pool().download(), pair.pool()) << "the source has changed";
  }

  static void expect_untouched(const Call& call, std::size_t r) {
    const Bytes all = call.capacity_bytes(r);
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::uint8_t b) { return b == kPoison; }));
  }

  /// Changes a frame, and what is told of it. Returns the damage that was done.
  Damage damage(Bytes& frame, std::size_t r, splitzip_cuda_rows& row, std::uint64_t& nonce) {
    if (!random_.chance(3) || frame.empty()) return Damage::kNone;
    const auto damage = static_cast<Damage>(1 + random_.below(10));
    const auto size = static_cast<std::uint32_t>(frame.size());
    switch (damage) {
      case Damage::kBit:
        frame[random_.below(random_.chance(2) ? std::min(size, 600u) : size)] ^=
            static_cast<std::uint8_t>(1u << random_.below(8));
        break;
      case Damage::kBytes: {
        const std::uint32_t at = random_.below(random_.chance(2) ? std::min(size, 600u) : size);
        const bool ones = random_.chance(2);
        for (std::uint32_t i = at; i < std::min(size, at + random_.between(1, 70)); ++i)
          frame[i] = ones ? 0xff : random_.byte();
        break;
      }
      case Damage::kSwap: frame = frames_[random_.below(static_cast<std::uint32_t>(frames_.size()))]; break;
      case Damage::kShorter: frame.resize(random_.chance(3) ? random_.below(100) % size : random_.below(size)); break;
      case Damage::kLonger: frame.resize(size + random_.between(1, 64), 0); break;
      case Damage::kNonce: nonce ^= std::uint64_t{1} << random_.below(64); break;
      case Damage::kBlock: row.first_block ^= std::uint64_t{1} << random_.below(64); break;
      case Damage::kLengths: {  // of header and entries: any of them may be believed
        const std::uint32_t word = random_.below(std::min(size / 4, 24u)),
                            x = random_.chance(2) ? static_cast<std::uint32_t>(random_.next())
                                                  : 0x80000000u >> random_.below(32);
        std::memcpy(&frame[4 * word], &x, 4);
        break;
      }
      case Damage::kMark: {
        Bytes mark(48);
        std::memcpy(mark.data(), frame.data(), std::min<std::size_t>(16, frame.size()));
        mark[6] = 2;
        std::copy_n(mark.begin(), std::min<std::size_t>(48, frame.size()), frame.begin());
        break;
      }
      case Damage::kStale:
        for (auto& byte : frame) byte = kPoison;
        break;
      default: break;
    }
    static_cast<void>(r);
    return damage;
  }

  /// What the CPU says of a frame that is to be the request's.
  splitzip_status judge_on_cpu(BatchPair& pair, std::size_t r, const Bytes& frame, std::uint64_t nonce, bool budgets,
                               const splitzip_cuda_rows& row) {
    std::vector<splitzip_tensor> tensors;
    std::vector<splitzip_layout> layouts;
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
      tensors.push_back(pair.tensor(r, i));
      tensors.back().first_block = row.first_block;
      layouts.push_back(pair.layout(scratch_, r, i));
      splitzip_get_slot_words(&tensors.back(), &tensors.back().slot_words, nullptr);
    }
    splitzip_frame opened{};
    opened.struct_size = sizeof opened;
    const splitzip_status status = budgets
                                       ? splitzip_frame_open_budget(frame.data(), frame.size(), nonce, &opened, nullptr)
                                       : splitzip_frame_open(frame.data(), frame.size(), &nonce, &opened, nullptr);
    if (status != SPLITZIP_OK) return status;
    if (((opened.flags & 1) != 0) != spec_.checksums) return SPLITZIP_ERROR_GEOMETRY_MISMATCH;
    return splitzip_decode(&opened, tensors.data(), layouts.data(), tensors.size(), nullptr, nullptr);
  }

  void decode(BatchPair& pair, const splitzip_cuda_table* table, DeviceBytes& destination) {
    const std::vector<splitzip_cuda_rows> good = pair.make_rows(destination.data());
    const bool budgets = random_.chance(3);
    auto rows = good;
    std::vector<Bytes> frames = frames_;
    std::vector<std::uint64_t> nonces, sizes;
    std::vector<Damage> damages;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      if (budgets) frames[r].resize(frames[r].size() + random_.below(100));
      nonces.push_back(BatchPair::nonce(r));
      damages.push_back(damage(frames[r], r, rows[r], nonces[r]));
      sizes.push_back(frames[r].size());
    }
    Call call(good, sizes, spec_, table);
    std::vector<splitzip_status> due(pair.requests(), SPLITZIP_OK);
    std::vector<Trouble> troubles;
    auto troubled = rows;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      call.set_frame(r, frames[r]);
      call.requests()[r].nonce = nonces[r];
      troubles.push_back(damages[r] != Damage::kNone ? Trouble::kNone
                                                     : trouble(troubled[r], call.requests()[r], pair, due[r]));
    }
    const DeviceBytes row_lists = lists(rows, troubled);
    call.batch().rows = row_lists.as<splitzip_cuda_rows>();
    bool kept = false;
    call.batch().max_total_tokens = promise(good, kept);
    call.batch().budgets = budgets;
    ASSERT_NO_FATAL_FAILURE(give_workspace(call.batch(), table, true));
    ASSERT_NO_FATAL_FAILURE(call.decode(table, sizes));
    expect_guards();

    // What may have been written: values of requests; and what must have been: what the CPU makes of the same frame.
    Bytes written(pair.pool().size(), 0);
    const Bytes got = destination.download();
    scratch_.assign(pair.pool().size(), kPoison);
    std::uint32_t failed = 0;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      SCOPED_TRACE(::testing::Message() << "decoding request " << r << ", trouble " << static_cast<int>(troubles[r])
                                        << ", damage " << static_cast<int>(damages[r]) << ", frame " << frames[r].size()
                                        << " of " << frames_[r].size() << (budgets ? ", budgets" : ""));
      const auto status = static_cast<splitzip_status>(call.result(r).status);
      failed += status != SPLITZIP_OK;
      EXPECT_TRUE(call.guard_is_whole(r));
      EXPECT_EQ(call.result(r).frame_bytes, sizes[r]);
      if (troubles[r] != Trouble::kNone) {
        EXPECT_EQ(status, due[r]);
        continue;
      }
      if (!kept && status == SPLITZIP_ERROR_TOO_LARGE) continue;
      const splitzip_status on_cpu = judge_on_cpu(pair, r, frames[r], nonces[r], budgets, rows[r]);
      // Of several faults the two may tell different ones.
      ASSERT_EQ(status == SPLITZIP_OK, on_cpu == SPLITZIP_OK)
          << splitzip_status_name(status) << " but on the CPU " << splitzip_status_name(on_cpu);
      ASSERT_TRUE(status == SPLITZIP_OK || damages[r] != Damage::kNone);
      if (status == SPLITZIP_OK) pair.mark_values(r, written);
    }
    EXPECT_EQ(call.failed(), failed);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (written[i] != 0) {
        ASSERT_EQ(got[i], scratch_[i]) << "byte " << i << " of the pool";
      } else if (is_value_[i] == 0) {
        ASSERT_EQ(got[i], kPoison) << "byte " << i << " of the pool";
      }
    }
  }

  Random random_;
  DeviceBytes& workspace_;
  BatchSpec spec_;
  std::vector<Bytes> frames_;
  Bytes is_value_, scratch_;
};

class CudaCampaign : public CudaTest {};

// SPLITZIP_CUDA_BATCHES: how many batches (default 1,000); SPLITZIP_CUDA_SEED: the first one's.
TEST_F(CudaCampaign, batches) {
  const std::uint64_t batches = from_environment("SPLITZIP_CUDA_BATCHES", 1000),
                      first = from_environment("SPLITZIP_CUDA_SEED", 1);
  DeviceBytes workspace(std::size_t{256} << 20);  // grows where a batch needs more
  for (std::uint64_t seed = first; seed < first + batches; ++seed) {
    Campaign campaign(seed, workspace);
    SCOPED_TRACE(::testing::Message() << "SPLITZIP_CUDA_SEED=" << seed << "\n" << campaign.describe());
    campaign.run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace splitzip::test
