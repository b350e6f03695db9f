// The summary of a tensor with too many elements to record: norm, minimum, maximum, and a fingerprint.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "native_elements.hpp"

namespace recorder {

// The summary of a tensor with more elements uses a sample of evenly spaced blocks, most of which fit into one cache
// line.
constexpr int64_t kMost = 4096;
constexpr int64_t kBlocks = 32;
constexpr int64_t kBlock = 8;

// Four independent chains at a time: a single chain of dependent operations takes four times as long.
constexpr size_t kLanes = 4;

// A hash of bytes; not cryptographic.
inline uint64_t fingerprint(const void* data, size_t size) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
  uint64_t lanes[kLanes] = {1, 2, 3, 4};
  const auto* bytes = static_cast<const unsigned char*>(data);
  const auto mix = [&](size_t lane, size_t length) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * lane, length);
    lanes[lane] = (lanes[lane] ^ word) * kPrime;
    lanes[lane] ^= lanes[lane] >> 32;
  };
  for (; size >= 8 * kLanes; bytes += 8 * kLanes, size -= 8 * kLanes)
    for (size_t lane = 0; lane < kLanes; lane++)
      mix(lane, 8);
  for (size_t lane = 0; 8 * lane < size; lane++)
    mix(lane, std::min<size_t>(size - 8 * lane, 8));
  uint64_t result = 0;
  for (const uint64_t lane : lanes)
    result = (result ^ lane ^ (lane >> 31)) * kPrime;
  return result ^ (result >> 29);
}

template <class T>
using Number = std::conditional_t<
    std::is_integral_v<T>,
    T,
    std::conditional_t<std::is_same_v<T, double> || Complex<T>, double, float>>;

// The number to compare; for a complex number, its absolute value.
template <class T>
Number<T> number_of(const T& value) {
  if constexpr (Complex<T>)
    return std::hypot(static_cast<double>(value.real()), static_cast<double>(value.imag()));
  else
    return static_cast<Number<T>>(value);
}

// Norm, minimum, and maximum of at least one number.
template <class T>
void write_extremes(Json& json, const std::vector<T>& values) {
  double squares[kLanes] = {};
  Number<T> least[kLanes], greatest[kLanes];
  std::fill_n(least, kLanes, number_of(values[0]));
  std::fill_n(greatest, kLanes, number_of(values[0]));
  const auto add = [&](size_t lane, const T& value) {
    const auto number = number_of(value);
    squares[lane] += static_cast<double>(number) * static_cast<double>(number);
    least[lane] = number < least[lane] ? number : least[lane];
    greatest[lane] = number > greatest[lane] ? number : greatest[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; lane++)
      add(lane, values[i + lane]);
  for (; i < values.size(); i++)
    add(0, values[i]);

  const double sum = squares[0] + squares[1] + squares[2] + squares[3];
  json.key("norm").number(std::sqrt(sum));
  if (std::isnan(sum)) // comparisons with NaN are false, so minimum and maximum would be wrong
    json.key("min").raw("\"nan\"").key("max").raw("\"nan\"");
  else
    json.key("min")
        .number(*std::min_element(least, least + kLanes))
        .key("max")
        .number(*std::max_element(greatest, greatest + kLanes));
}

inline void write_summary(Json& json, const at::Tensor& tensor) {
  write_typed(json, tensor, [&]<class T>() {
    const int64_t count = tensor.numel();
    std::vector<Stored<T>> values;
    if (count <= kMost) {
      read(tensor, 0, count, values);
    } else {
      const int64_t apart = (count - kBlock) / (kBlocks - 1);
      values.reserve(kBlocks * kBlock);
      for (int64_t block = 0; block < kBlocks; block++)
        fetch<Stored<T>>(tensor, apart * block); // blocks are in different pages, whose loads now overlap
      for (int64_t block = 0; block < kBlocks; block++)
        read(tensor, apart * block, kBlock, values);
    }
    json.raw("{").key("n").number(count);
    if (count > 0)
      write_extremes(json, values);
    char digits[16];
    const auto hash = fingerprint(values.data(), values.size() * sizeof(Stored<T>));
    json.key("hash").string({digits, std::to_chars(digits, digits + sizeof digits, hash, 16).ptr});
    if (count > kMost)
      json.key("sampled").number(kBlocks * kBlock);
    json.raw("}");
  });
}

} // namespace recorder
