// The elements of a tensor. Reads memory only: calls no operator of PyTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "native_json.hpp"

namespace recorder {

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<c10::complex<T>> : std::true_type {};

// Whether the elements are plain numbers in this process's memory.
inline bool readable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.device().is_cpu() && !tensor.is_quantized() &&
      !tensor.is_conj() && !tensor.is_neg() && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
      tensor.has_storage() && (tensor.numel() == 0 || tensor.const_data_ptr() != nullptr);
}

// Calls `visit` with a typed null pointer for the type of the elements; false for types that are not numbers.
template <class Visit>
bool with_type(at::ScalarType type, Visit&& visit) {
#define RECORDER_TYPE(cpp_type, name)           \
  case at::ScalarType::name:                    \
    visit(static_cast<const cpp_type*>(nullptr)); \
    return true;
  switch (type) {
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(RECORDER_TYPE)
    RECORDER_TYPE(uint16_t, UInt16)
    RECORDER_TYPE(uint32_t, UInt32)
    RECORDER_TYPE(uint64_t, UInt64)
    default:
      return false;
  }
#undef RECORDER_TYPE
}

// The elements of a tensor in order, wherever they lie.
template <class T>
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor)
      : first_(static_cast<const T*>(tensor.const_data_ptr())),
        dense_(tensor.is_contiguous()),
        sizes_(tensor.sizes()),
        strides_(tensor.strides()) {}

  // A pointer to `count` elements from number `begin` on; where they do not lie side by side, to a copy in `scratch`.
  const T* run(int64_t begin, int64_t count, std::vector<T>& scratch) const {
    if (dense_)
      return first_ + begin;
    scratch.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; i++)
      scratch[i] = first_[offset(begin + i)];
    return scratch.data();
  }

 private:
  int64_t offset(int64_t number) const {
    int64_t offset = 0;
    for (size_t dim = sizes_.size(); dim-- > 0;) {
      offset += number % sizes_[dim] * strides_[dim];
      number /= sizes_[dim];
    }
    return offset;
  }

  const T* first_;
  const bool dense_;
  const at::IntArrayRef sizes_;
  const at::IntArrayRef strides_;
};

// std::vector<bool> has no memory to point to, so booleans are read as the bytes that they are.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
void write_element(Json& json, const Stored<T>& value) {
  if constexpr (std::is_same_v<T, bool>)
    json.boolean(value != 0);
  else if constexpr (std::is_integral_v<T>)
    json.integer(value);
  else if constexpr (std::is_floating_point_v<T>)
    json.real(value);
  else if constexpr (std::is_same_v<T, c10::complex<double>>)
    json.raw("[").real(value.real()).raw(",").real(value.imag()).raw("]");
  else if constexpr (IsComplex<T>::value)
    json.raw("[").real(static_cast<float>(value.real())).raw(",").real(static_cast<float>(value.imag())).raw("]");
  else
    json.real(static_cast<float>(value));
}

inline void write_values(Json& json, const at::Tensor& tensor) {
  const bool known = with_type(tensor.scalar_type(), [&](auto* typed) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    std::vector<Stored<T>> scratch;
    const auto count = tensor.numel();
    const auto* values = Elements<Stored<T>>(tensor).run(0, count, scratch);
    json.raw("[");
    for (int64_t i = 0; i < count; i++) {
      if (i)
        json.raw(",");
      write_element<T>(json, values[i]);
    }
    json.raw("]");
  });
  if (!known)
    json.raw("null");
}

} // namespace recorder
