// Finds the line of the script that made a call, on the Python frames of the calling thread.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "native_json.hpp"

namespace recorder {

class Source {
  enum class Place { kScript, kElsewhere, kHidden };

  // Facts about a code object; the texts are JSON already.
  struct Code {
    Place place;
    std::string file; // without the closing quote, because the line number follows
    std::string function;
    std::string name; // empty if it tells a reader nothing
    bool is_module;
    // By instruction; Python searches its table from the beginning each time, which costs more than all else here.
    mutable std::unordered_map<int, int> lines{};
  };

  struct Found {
    const Code* code = nullptr;
    const Code* via = nullptr;
    int line = 0;
    const Code* caller = nullptr; // of the script too
    int caller_line = 0;
  };

 public:
  // `folder` is the script's, with a slash at its end; `hidden` are prefixes of paths that never belong to the script.
  // Needs the interpreter's lock.
  void start(std::string folder, std::vector<std::string> hidden) {
    folder_ = std::move(folder);
    hidden_ = std::move(hidden);
    forget();
  }

  // Adds `at`, `fn`, `via`, and `by`; adds nothing if this thread has no Python frames. Takes the interpreter's lock for a
  // moment, so the caller must not hold a lock of the recorder.
  void write(Json& json) {
    if (PyGILState_GetThisThreadState() == nullptr || Py_IsFinalizing())
      return;
    const PyGILState_STATE state = PyGILState_Ensure();
    {
      const pybind11::error_scope callers_own;
      const Found found = write_at(json);
      if (found.code != nullptr)
        json.key("fn").raw(found.code->function);
      if (found.via != nullptr)
        json.key("via").raw(found.via->name);
      if (found.caller != nullptr)
        json.key("by").raw(found.caller->file).raw(":").number(found.caller_line).raw("\"");
    }
    PyGILState_Release(state);
  }

  // Adds only `at`, if there is a line. The caller holds the interpreter's lock.
  Found write_at(Json& json) {
    const Found found = look();
    if (found.code != nullptr)
      json.key("at").raw(found.code->file).raw(":").number(found.line).raw("\"");
    return found;
  }

 private:
  static constexpr int kDeepest = 256;
  static constexpr size_t kMostCodes = 16384;

  static constexpr int kFarthestCaller = 64;

  // Finds the innermost frame of the script's folder, and the one that called it; if there is none, the innermost
  // visible frame.
  Found look() {
    const Code* via = nullptr;
    Found found;
    if (codes_.size() > kMostCodes)
      forget();
    PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
    for (int depth = 0; frame != nullptr && depth < kDeepest; depth++) {
      const Code& code = code_of(frame);
      if (code.place == Place::kScript || (code.place == Place::kElsewhere && found.code == nullptr))
        found = {&code, via, line_of(code, frame)};
      if (code.place == Place::kScript) {
        find_caller(frame, found);
        break;
      }
      if (!code.name.empty())
        via = &code;
      PyFrameObject* outer = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = outer;
    }
    Py_XDECREF(frame);
    return found;
  }

  void find_caller(PyFrameObject* called, Found& found) {
    const Code* code = found.code;
    PyFrameObject* frame = called;
    Py_INCREF(frame);
    for (int depth = 0; frame != nullptr && !code->is_module && depth < kFarthestCaller; depth++) {
      PyFrameObject* outer = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = outer;
      if (frame == nullptr)
        break;
      code = &code_of(frame);
      if (code->place == Place::kScript) {
        found.caller = code;
        found.caller_line = line_of(*code, frame);
        break;
      }
    }
    Py_XDECREF(frame);
  }

  static int line_of(const Code& code, PyFrameObject* frame) {
    int& line = code.lines[PyFrame_GetLasti(frame)];
    if (line == 0)
      line = PyFrame_GetLineNumber(frame);
    return line;
  }

  // Caches by the address of the code object, and keeps that alive so that no other object gets its address.
  const Code& code_of(PyFrameObject* frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const auto known = codes_.find(code);
    if (known != codes_.end()) {
      Py_DECREF(code);
      return known->second;
    }
    return codes_.emplace(code, describe(frame, code)).first->second;
  }

  Code describe([[maybe_unused]] PyFrameObject* frame, PyCodeObject* code) const {
    const std::string path = utf8(code->co_filename), function = utf8(code->co_name);
#if PY_VERSION_HEX >= 0x030b0000
    const std::string name = utf8(code->co_qualname);
#else
    const std::string name = (code->co_flags & CO_NESTED) != 0 ? "<locals>" : class_of(frame, code) + function;
#endif
    std::string file = quoted(without("./", without(folder_, path)));
    file.pop_back();
    const std::string readable = is_readable(name) ? quoted(without("Tensor.", name)) : "";
    return {place_of(path), file, quoted(function), readable, function == "<module>"};
  }

#if PY_VERSION_HEX < 0x030b0000
  // Returns the class of a method, and a dot, if it is a class of its module; code objects of Python 3.10 do not have it.
  static std::string class_of(PyFrameObject* frame, PyCodeObject* code) {
    for (const auto& [_, kind] : pybind11::reinterpret_borrow<pybind11::dict>(frame->f_globals)) {
      if (!PyType_Check(kind.ptr()))
        continue;
      PyTypeObject* type = reinterpret_cast<PyTypeObject*>(kind.ptr());
      auto method = pybind11::reinterpret_borrow<pybind11::object>(PyDict_GetItem(type->tp_dict, code->co_name));
      while (method && pybind11::hasattr(method, "__wrapped__"))
        method = pybind11::getattr(method, "__wrapped__");
      if (method && pybind11::getattr(method, "__code__", pybind11::none()).ptr() == reinterpret_cast<PyObject*>(code))
        return std::string(type->tp_name) + ".";
    }
    return "";
  }
#endif

  Place place_of(const std::string& path) const {
    const auto begins = [&](const std::string& folder) { return path.starts_with(folder); };
    if (path.empty() || std::any_of(hidden_.begin(), hidden_.end(), begins))
      return Place::kHidden;
    // A relative path starts at the working folder, which is the script's folder.
    return path[0] != '/' || begins(folder_) ? Place::kScript : Place::kElsewhere;
  }

  // Functions of decorators, context managers, and torch.nn.Module, whose names tell a reader nothing.
  static bool is_readable(std::string_view name) {
    const auto dot = name.rfind('.');
    const auto last = dot == std::string_view::npos ? name : name.substr(dot + 1);
    return name.find('<') == std::string_view::npos && last != "_wrapped_call_impl" && last != "_call_impl" &&
        last != "wrapper" && last != "decorate_context" && !name.starts_with("_GeneratorContextManager");
  }

  static std::string utf8(PyObject* text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes != nullptr)
      return std::string(bytes, static_cast<size_t>(size));
    PyErr_Clear(); // a path that is not UTF-8
    return "?";
  }

  static std::string_view without(std::string_view beginning, std::string_view text) {
    return text.starts_with(beginning) ? text.substr(beginning.size()) : text;
  }

  static std::string quoted(std::string_view text) {
    return std::move(Json().string(text).text);
  }

  void forget() {
    for (auto& [code, _] : codes_)
      Py_DECREF(code);
    codes_.clear();
  }

  std::string folder_;
  std::vector<std::string> hidden_;
  std::unordered_map<PyCodeObject*, Code> codes_; // guarded by the interpreter's lock
};

// Never destroyed: a thread may still be recording while the process ends.
inline Source& source() {
  static Source& the_source = *new Source;
  return the_source;
}

} // namespace recorder
