// What is said of a tensor with too many elements to keep: norm, least, greatest and a fingerprint.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "native_elements.hpp"

namespace recorder {

// A tensor of more elements is summarised from a sample, taken in evenly spread blocks that are a cache line or two.
constexpr int64_t kMost = 4096;
constexpr int64_t kBlocks = 64;
constexpr int64_t kBlock = 16;

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

} // namespace recorder
