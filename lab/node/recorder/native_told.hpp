// Calls that Python reports: calls of process groups that are written in Python, which have no backend to wrap.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "native_call.hpp"

namespace recorder {

// `facts`: the other facts of the begin line, as the inside of a JSON object. No inputs: a call without tensors. No
// outputs: a call that works in place.
inline End begin_told(
    const std::string& operation,
    const std::string& group,
    int64_t seq,
    const std::optional<Tensors>& inputs,
    const std::optional<Tensors>& outputs,
    const std::string& facts) {
  Begin begin(operation.c_str(), group, seq);
  if (inputs && outputs)
    begin.from_to(*inputs, *outputs);
  else if (inputs)
    begin.in_place(*inputs);
  begin.facts(facts);
  return begin.write();
}

inline void add_told(pybind11::module& module) {
  pybind11::class_<End>(module, "End").def(
      "write",
      [](const End& end, const std::optional<std::string>& error, int sender) {
        end.write(error ? std::make_exception_ptr(std::runtime_error(*error)) : nullptr, sender);
      },
      "write(error, sender)\n\nA call ends. error: the reason, or None. sender: source of a recv from any rank, or -1.");
  module.def("begin", &begin_told, "begin(operation, group, seq, inputs, outputs, facts)\n\nA call begins.");
}

} // namespace recorder
