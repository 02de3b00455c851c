// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

namespace splitzip::cli {

splitzip_status Device::encode(const splitzip_tensor& tensor, const splitzip_layout& layout,
                               const splitzip_encode_options& options, std::span<std::uint8_t> to, std::size_t& size,
                               splitzip_error& error) {
  return splitzip_encode(&tensor, &layout, 1, &options, to.data(), to.size(), &size, &error);
}

splitzip_status Device::decode(const splitzip_frame& frame, const splitzip_tensor& tensor,
                               const splitzip_layout& layout, const splitzip_decode_options& options,
                               splitzip_error& error) {
  return splitzip_decode(&frame, &tensor, &layout, 1, &options, &error);
}

std::unique_ptr<ResidentTensors> Device::load(const std::vector<splitzip_tensor>&, const std::vector<splitzip_layout>&,
                                              std::span<const std::uint8_t>) {
  return nullptr;
}

std::unique_ptr<Device> make_device(const std::string& name) {
  return name == "cuda" ? make_cuda_device() : std::make_unique<Device>();
}

}  // namespace splitzip::cli
