// Calls that Python tells of: those of process groups that are written in Python, which have no backend to wrap.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "native_call.hpp"

namespace recorder {

// `facts`: what else the begin line says, as the inside of a JSON object. Without inputs it is a call without tensors,
// without outputs one in place.
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
      "write(error, sender)\n\nThe call is over: why it failed, or None; who a receive from any rank got its data from, or -1.");
  module.def("begin", &begin_told, "begin(operation, group, seq, inputs, outputs, facts)\n\nA call begins.");
}

} // namespace recorder
