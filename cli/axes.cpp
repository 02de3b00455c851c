// SPDX-License-Identifier: Apache-2.0
#include "axes.hpp"

#include <algorithm>
#include <array>

#include "error.hpp"

namespace splitzip::cli {

Axes::Axes(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    Roles roles = parse(option);
    const std::size_t rank = roles.size();
    if (!by_rank_.emplace(rank, std::move(roles)).second) {
      throw UsageError("--axes is given twice for tensors of " + std::to_string(rank) + " axes");
    }
  }
}

Axes::Role Axes::role_of(const std::string& name, const std::string& option) {
  if (name == "batch") return Role::kBatch;
  if (name == "head") return Role::kHead;
  if (name == "token") return Role::kToken;
  if (name == "dim" || name == "channel") return Role::kChannel;
  throw UsageError("--axes " + option + ": \"" + name + "\" is none of batch, head, token, dim, channel");
}

Axes::Roles Axes::parse(const std::string& option) {
  Roles roles;
  for (std::size_t begin = 0; begin <= option.size();) {
    const std::size_t end = std::min(option.find(',', begin), option.size());
    const std::string name = option.substr(begin, end - begin);
    roles.push_back(role_of(name, option));
    begin = end + 1;
  }
  static const std::array<Roles, 5> kOrders = {
      Roles{Role::kHead, Role::kToken, Role::kChannel}, Roles{Role::kToken, Role::kHead, Role::kChannel},
      Roles{Role::kToken, Role::kChannel}, Roles{Role::kToken}, Roles{Role::kChannel}};
  const auto inner = std::find_if(roles.begin(), roles.end(), [](Role role) { return role != Role::kBatch; });
  if (std::find(kOrders.begin(), kOrders.end(), Roles(inner, roles.end())) == kOrders.end()) {
    throw UsageError("--axes " + option +
                     ": the order has to be any number of batch, then one of head,token,dim; token,head,dim; "
                     "token,dim; token; dim");
  }
  return roles;
}

Axes::Roles Axes::by_default(std::size_t rank) {
  if (rank == 1) return {Role::kToken};
  Roles roles(rank, Role::kBatch);
  constexpr std::array kInner = {Role::kChannel, Role::kToken, Role::kHead};
  for (std::size_t i = 0; i < std::min(rank, kInner.size()); ++i) roles[rank - 1 - i] = kInner[i];
  return roles;
}

Rows Axes::rows(std::span<const std::uint64_t> shape) const {
  const auto found = by_rank_.find(shape.size());
  const Roles roles = found != by_rank_.end() ? found->second : by_default(shape.size());
  Rows rows;
  bool token_seen = false;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    switch (roles[axis]) {
      case Role::kBatch: rows.sequences *= shape[axis]; break;
      case Role::kHead:
        rows.heads = shape[axis];
        rows.heads_first = !token_seen;
        break;
      case Role::kToken:
        rows.tokens = shape[axis];
        token_seen = true;
        break;
      case Role::kChannel: rows.channels = shape[axis]; break;
    }
  }
  if (rows.heads == 1) rows.heads_first = false;
  if (rows.tokens == 1) {
    // One row a sequence: the sequences are the tokens.
    rows.tokens = rows.sequences;
    rows.sequences = 1;
    rows.heads_first = false;
  }
  return rows;
}

}  // namespace splitzip::cli
