// SPDX-License-Identifier: Apache-2.0
//
// The kernels are launched as the architecture was tuned that they were compiled for.
#include <iostream>

#include "batch.hpp"
#include "cuda/table.hpp"

namespace splitzip::test {
namespace {

class CudaTuning : public CudaTest {};

TEST_F(CudaTuning, is_chosen_by_the_architecture) {
  for (const auto& [compiled, chosen] : {std::pair{800u, 800u},
                                         {860u, 860u},
                                         {870u, 860u},
                                         {890u, 860u},
                                         {900u, 900u},
                                         {1000u, 1000u},
                                         {1030u, 1000u},
                                         {1200u, 1200u},
                                         {1210u, 1200u}}) {
    EXPECT_EQ(cuda::tuning_of(compiled).architecture, chosen);
  }
}

TEST_F(CudaTuning, is_that_of_the_kernels) {
  cuda::Tuning tuning;
  ASSERT_TRUE(cuda::find_tuning(tuning));
  cuda::for_each_field(tuning,
                       [](const char* name, std::uint32_t value) { std::cout << name << ' ' << value << '\n'; });
  cuda::Launches launches;
  ASSERT_TRUE(cuda::prepare_kernels(launches));
  EXPECT_EQ(launches.overlap, tuning.overlap);
  EXPECT_EQ(launches.finish_blocks, tuning.finish_blocks);
  // Blocks that are resident at the same time: all that the tuning asks for, but on a device that has less than the one it was made for.
  for (std::uint32_t k = 0; k < cuda::kKernels; ++k) {
    EXPECT_EQ(launches.encode[k].blocks, cuda::encode_tuning(k, false, tuning).blocks) << "kernel " << k;
    EXPECT_EQ(launches.decode[k].blocks, cuda::decode_tuning(k, false, tuning).blocks) << "kernel " << k;
  }
  for (std::uint32_t k = 0; k < cuda::kShortKernels; ++k) {
    EXPECT_EQ(launches.short_encode[k].blocks, tuning.short_call.blocks) << "kernel " << k;
    EXPECT_EQ(launches.short_decode[k].blocks, tuning.short_call.blocks) << "kernel " << k;
  }
}

}  // namespace
}  // namespace splitzip::test
