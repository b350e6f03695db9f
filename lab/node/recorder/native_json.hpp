// Builds one line of JSON, left to right.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

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

  // A key of the object being written; every key but the first comes after a comma.
  Json& key(std::string_view name) {
    if (!text.empty() && text.back() != '{')
      text += ',';
    text += '"';
    text.append(name);
    text.append("\":");
    return *this;
  }

  template <class Integer>
  Json& integer(Integer value) {
    char digits[24];
    auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    text.append(digits, end);
    return *this;
  }

  // The shortest text that reads back as the same number, marked as a float; a string where JSON has no number.
  template <class Float>
  Json& real(Float value) {
    if (std::isnan(value))
      return raw("\"nan\"");
    if (std::isinf(value))
      return raw(value > 0 ? "\"inf\"" : "\"-inf\"");
    char digits[40];
    auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    std::string_view written(digits, end - digits);
    text.append(written);
    if (written.find_first_of(".e") == std::string_view::npos)
      text.append(".0");
    return *this;
  }

  Json& boolean(bool value) {
    return raw(value ? "true" : "false");
  }

  // A string in quotes. Bytes beyond ASCII are kept where they are UTF-8, and become '?' where they are not.
  Json& string(std::string_view value) {
    static constexpr char kHex[] = "0123456789abcdef";
    text += '"';
    for (size_t at = 0; at < value.size();) {
      const auto byte = static_cast<unsigned char>(value[at]);
      if (byte >= 0x80) {
        const size_t length = utf8_length(value.substr(at));
        if (length == 0)
          text += '?';
        else
          text.append(value.substr(at, length));
        at += length ? length : 1;
        continue;
      }
      if (byte == '"' || byte == '\\') {
        text += '\\';
        text += static_cast<char>(byte);
      } else if (byte < 0x20 || byte == 0x7f) {
        text.append("\\u00");
        text += kHex[byte >> 4];
        text += kHex[byte & 15];
      } else {
        text += static_cast<char>(byte);
      }
      at++;
    }
    text += '"';
    return *this;
  }

 private:
  // Bytes of the character at the beginning of `rest`; 0 if that is not UTF-8.
  static size_t utf8_length(std::string_view rest) {
    const auto lead = static_cast<unsigned char>(rest[0]);
    const size_t length = lead >= 0xf5 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
    if (length == 0 || rest.size() < length)
      return 0;
    for (size_t at = 1; at < length; at++)
      if ((static_cast<unsigned char>(rest[at]) & 0xc0) != 0x80)
        return 0;
    const auto second = static_cast<unsigned char>(rest[1]);
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool outside = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
    return overlong || outside ? 0 : length;
  }
};

} // namespace recorder
