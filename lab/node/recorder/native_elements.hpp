// The elements of a tensor. Reads memory only: calls no operator of PyTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "native_json.hpp"

namespace recorder {

template <class T>
concept Complex = requires(T value) { value.imag(); };

// std::vector<bool> has no memory to point to, so booleans are read as bytes.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

// Whether the elements are plain numbers in this process's memory.
inline bool readable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.device().is_cpu() && !tensor.is_quantized() &&
      !tensor.is_conj() && !tensor.is_neg() && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
      tensor.has_storage() && (tensor.numel() == 0 || tensor.const_data_ptr() != nullptr);
}

// Calls `write` for the type of the elements; writes null for types that are not numbers.
template <class Write>
void write_typed(Json& json, const at::Tensor& tensor, Write&& write) {
#define RECORDER_TYPE(cpp_type, name) \
  case at::ScalarType::name:          \
    return write.template operator()<cpp_type>();
  switch (tensor.scalar_type()) {
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(RECORDER_TYPE)
    RECORDER_TYPE(uint16_t, UInt16)
    RECORDER_TYPE(uint32_t, UInt32)
    RECORDER_TYPE(uint64_t, UInt64)
    default:
      json.raw("null");
  }
#undef RECORDER_TYPE
}

// Appends `count` elements from number `begin` on; the tensor need not be contiguous.
template <class T>
void read(const at::Tensor& tensor, int64_t begin, int64_t count, std::vector<T>& values) {
  const auto* const first = static_cast<const T*>(tensor.const_data_ptr());
  if (tensor.is_contiguous()) {
    values.insert(values.end(), first + begin, first + begin + count);
    return;
  }
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  for (int64_t number = begin; number < begin + count; number++) {
    int64_t offset = 0, rest = number;
    for (size_t dim = sizes.size(); dim-- > 0; rest /= sizes[dim])
      offset += rest % sizes[dim] * strides[dim];
    values.push_back(first[offset]);
  }
}

// Prefetches the memory of an element.
template <class T>
void fetch(const at::Tensor& tensor, int64_t number) {
  if (tensor.is_contiguous())
    __builtin_prefetch(static_cast<const T*>(tensor.const_data_ptr()) + number);
}

template <class T>
void write_element(Json& json, const Stored<T>& value) {
  if constexpr (std::is_same_v<T, bool>) {
    json.boolean(value != 0);
  } else if constexpr (std::is_arithmetic_v<T>) {
    json.number(value);
  } else if constexpr (Complex<T>) {
    using Part = decltype(value.real());
    json.list(std::array{value.real(), value.imag()}, [&](Part part) { write_element<Part>(json, part); });
  } else {
    json.number(static_cast<float>(value));
  }
}

inline void write_values(Json& json, const at::Tensor& tensor) {
  write_typed(json, tensor, [&]<class T>() {
    std::vector<Stored<T>> values;
    read(tensor, 0, tensor.numel(), values);
    json.list(values, [&](const auto& value) { write_element<T>(json, value); });
  });
}

} // namespace recorder
