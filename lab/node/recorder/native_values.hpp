// The contents of the tensors of a call: types and shapes, and the elements or a summary of each tensor.
#pragma once

#include <algorithm>
#include <vector>

#include "native_elements.hpp"
#include "native_summary.hpp"

namespace recorder {

using Tensors = std::vector<at::Tensor>;

// Writes the elements of one side of a call under `values_key`, or, if they are more than `limit`, summaries under
// `summary_key`. Writes neither if no tensor is readable.
inline void write_contents(
    Json& json,
    std::string_view values_key,
    std::string_view summary_key,
    const Tensors& tensors,
    int64_t limit) {
  int64_t count = 0;
  for (const auto& tensor : tensors)
    if (readable(tensor))
      count += tensor.numel();
  if (std::none_of(tensors.begin(), tensors.end(), readable))
    return;
  const bool whole = count <= limit;
  json.key(whole ? values_key : summary_key).list(tensors, [&](const at::Tensor& tensor) {
    if (!readable(tensor))
      json.raw("null");
    else if (whole)
      write_values(json, tensor);
    else
      write_summary(json, tensor);
  });
}

// Writes a list of [dtype, shape] for each tensor; returns the size of the tensors in bytes.
inline int64_t write_shapes(Json& json, std::string_view key, const Tensors& tensors) {
  int64_t bytes = 0;
  json.key(key).list(tensors, [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      json.raw("[\"undefined\",[]]");
      return;
    }
    json.raw("[").string(c10::getDtypeNames(tensor.scalar_type()).first).raw(",").integers(tensor.sizes()).raw("]");
    if (tensor.layout() == c10::kStrided)
      bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  });
  return bytes;
}

} // namespace recorder
