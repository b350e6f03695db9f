// Builds one line of JSON, left to right.
#pragma once

#include <c10/util/ArrayRef.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

namespace recorder {

class Json {
 public:
  Json() {
    text.reserve(512);
  }

  std::string text;

  Json& raw(std::string_view piece) {
    text.append(piece);
    return *this;
  }

  Json& key(std::string_view name) {
    separate();
    return raw("\"").raw(name).raw("\":");
  }

  // `write` writes each of the items.
  template <class Items, class Write>
  Json& list(const Items& items, Write&& write) {
    text += '[';
    for (const auto& item : items) {
      separate();
      write(item);
    }
    text += ']';
    return *this;
  }

  Json& integers(c10::IntArrayRef items) {
    return list(items, [this](int64_t item) { number(item); });
  }

  // For a float, the shortest text that reads back as the same float, with a point or exponent; a string if not finite.
  template <class Number>
  Json& number(Number value) {
    constexpr bool kFloat = std::is_floating_point_v<Number>;
    if constexpr (kFloat) {
      if (std::isnan(value))
        return raw("\"nan\"");
      if (std::isinf(value))
        return raw(value > 0 ? "\"inf\"" : "\"-inf\"");
    }
    char digits[40];
    const std::string_view written(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    return raw(written).raw(kFloat && written.find_first_of(".e") == std::string_view::npos ? ".0" : "");
  }

  Json& boolean(bool value) {
    return raw(value ? "true" : "false");
  }

  Json& string(std::string_view value) {
    text += '"';
    for (const char character : value) {
      if (character == '"' || character == '\\')
        text += '\\';
      if (static_cast<unsigned char>(character) >= 0x20) {
        text += character;
        continue;
      }
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", character);
      text += escaped;
    }
    text += '"';
    return *this;
  }

 private:
  // Writes a comma before each item of an object or a list, except the first.
  void separate() {
    if (!text.empty() && text.back() != '{' && text.back() != '[')
      text += ',';
  }
};

} // namespace recorder
