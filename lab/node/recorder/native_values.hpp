// What is in a tensor: its elements, or a summary of them. Reads memory only: calls no operator of PyTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "native_json.hpp"

namespace recorder {

using Tensors = std::vector<at::Tensor>;

// A tensor of more elements is summarised from a sample, taken in evenly spread blocks that are a cache line or two.
constexpr int64_t kMost = 4096;
constexpr int64_t kBlocks = 64;
constexpr int64_t kBlock = 16;

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

// A fingerprint of bytes; not cryptographic. Four lanes, because one multiplication after another takes four times as long.
class Hash {
 public:
  void add(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (; size >= 32; bytes += 32, size -= 32)
      for (int lane = 0; lane < 4; lane++)
        mix(lane, bytes + 8 * lane, 8);
    for (int lane = 0; size > 0; lane++) {
      const size_t part = std::min<size_t>(size, 8);
      mix(lane, bytes, part);
      bytes += part;
      size -= part;
    }
  }

  uint64_t value() const {
    uint64_t result = 0;
    for (const uint64_t lane : lanes_)
      result = (result ^ lane ^ (lane >> 31)) * kPrime;
    return result ^ (result >> 29);
  }

 private:
  static constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;

  void mix(int lane, const unsigned char* bytes, size_t size) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, size);
    lanes_[lane] = (lanes_[lane] ^ word) * kPrime;
    lanes_[lane] ^= lanes_[lane] >> 32;
  }

  uint64_t lanes_[4] = {1, 2, 3, 4};
};

// Norm, least and greatest of numbers that come in runs. Of complex numbers it is their absolute values that are compared.
template <class T>
class Extremes {
 public:
  using Number = std::conditional_t<
      std::is_integral_v<T>,
      T,
      std::conditional_t<std::is_same_v<T, double> || IsComplex<T>::value, double, float>>;

  void add(const T* values, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int lane = 0; lane < kLanes; lane++)
        add_one(lane, values[i + lane]);
    for (; i < count; i++)
      add_one(0, values[i]);
  }

  void write(Json& json) const {
    double squares = 0;
    Number least = least_[0], greatest = greatest_[0];
    for (int lane = 0; lane < kLanes; lane++) {
      squares += squares_[lane];
      least = std::min(least, least_[lane]);
      greatest = std::max(greatest, greatest_[lane]);
    }
    json.key("norm").real(std::sqrt(squares));
    if (std::isnan(squares)) { // a comparison with a number that is none is false, so the two below never saw it
      json.key("min").raw("\"nan\"").key("max").raw("\"nan\"");
    } else if constexpr (std::is_integral_v<Number>) {
      json.key("min").integer(least).key("max").integer(greatest);
    } else {
      json.key("min").real(least).key("max").real(greatest);
    }
  }

 private:
  static constexpr int kLanes = 4;

  void add_one(int lane, const T& value) {
    Number number;
    if constexpr (IsComplex<T>::value)
      number = std::hypot(static_cast<double>(value.real()), static_cast<double>(value.imag()));
    else
      number = static_cast<Number>(value);
    const auto wide = static_cast<double>(number);
    squares_[lane] += wide * wide;
    least_[lane] = number < least_[lane] ? number : least_[lane];
    greatest_[lane] = number > greatest_[lane] ? number : greatest_[lane];
  }

  using Limits = std::numeric_limits<Number>;
  static constexpr Number kLeast = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr Number kGreatest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  double squares_[kLanes] = {0, 0, 0, 0};
  Number least_[kLanes] = {kLeast, kLeast, kLeast, kLeast};
  Number greatest_[kLanes] = {kGreatest, kGreatest, kGreatest, kGreatest};
};

inline void write_summary(Json& json, const at::Tensor& tensor) {
  const int64_t count = tensor.numel();
  const bool known = with_type(tensor.scalar_type(), [&](auto* typed) {
    using T = Stored<std::remove_const_t<std::remove_pointer_t<decltype(typed)>>>;
    json.raw("{").key("n").integer(count);
    std::vector<T> scratch;
    const Elements<T> elements(tensor);
    Extremes<T> extremes;
    Hash hash;
    auto add = [&](int64_t begin, int64_t length) {
      const T* values = elements.run(begin, length, scratch);
      extremes.add(values, length);
      hash.add(values, static_cast<size_t>(length) * sizeof(T));
    };
    if (count <= kMost) {
      add(0, count);
    } else {
      for (int64_t block = 0; block < kBlocks; block++)
        add((count - kBlock) / (kBlocks - 1) * block, kBlock);
    }
    if (count > 0)
      extremes.write(json);
    static constexpr char kHex[] = "0123456789abcdef";
    char digits[16];
    const uint64_t value = hash.value();
    for (int i = 0; i < 16; i++)
      digits[i] = kHex[value >> (60 - 4 * i) & 15];
    json.key("hash").string({digits, sizeof digits});
    if (count > kMost)
      json.key("sampled").integer(kBlocks * kBlock);
    json.raw("}");
  });
  if (!known)
    json.raw("null");
}

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
