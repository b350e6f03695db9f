// What is in the tensors of a call: their types and shapes, and their elements or a summary of each.
#pragma once

#include <vector>

#include "native_elements.hpp"
#include "native_summary.hpp"

namespace recorder {

using Tensors = std::vector<at::Tensor>;

// The contents of one side of a call under `values_key`, or, where they are more than `limit` elements, under
// `summary_key`; neither where nothing of them can be read.
inline void write_contents(
    Json& json,
    std::string_view values_key,
    std::string_view summary_key,
    const Tensors& tensors,
    int64_t limit) {
  int64_t count = 0;
  bool any = false;
  for (const auto& tensor : tensors) {
    if (readable(tensor)) {
      count += tensor.numel();
      any = true;
    }
  }
  if (!any)
    return;
  const bool whole = count <= limit;
  json.key(whole ? values_key : summary_key).raw("[");
  for (size_t i = 0; i < tensors.size(); i++) {
    if (i)
      json.raw(",");
    if (!readable(tensors[i]))
      json.raw("null");
    else if (whole)
      write_values(json, tensors[i]);
    else
      write_summary(json, tensors[i]);
  }
  json.raw("]");
}

// A list of [dtype, shape] for each tensor; returns their bytes.
inline int64_t write_shapes(Json& json, std::string_view key, const Tensors& tensors) {
  int64_t bytes = 0;
  json.key(key).raw("[");
  for (size_t i = 0; i < tensors.size(); i++) {
    const auto& tensor = tensors[i];
    if (i)
      json.raw(",");
    if (!tensor.defined()) {
      json.raw("[\"undefined\",[]]");
      continue;
    }
    json.raw("[").string(c10::getDtypeNames(tensor.scalar_type()).first).raw(",[");
    const auto sizes = tensor.sizes();
    for (size_t dim = 0; dim < sizes.size(); dim++) {
      if (dim)
        json.raw(",");
      json.integer(sizes[dim]);
    }
    json.raw("]]");
    if (tensor.layout() == c10::kStrided)
      bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  json.raw("]");
  return bytes;
}

} // namespace recorder
