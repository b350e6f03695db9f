// Which line of the script led to a call: read from the Python frames of the calling thread.
#pragma once

#include <Python.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "native_json.hpp"

namespace recorder {

#if PY_VERSION_HEX >= 0x030d0000
inline bool python_is_ending() {
  return Py_IsFinalizing();
}
#else
inline bool python_is_ending() {
  return _Py_IsFinalizing();
}
#endif

class Source {
 public:
  // `folder` is the script's; `hidden` are beginnings of paths that are never the script. Needs the interpreter's lock.
  void start(std::string folder, std::vector<std::string> hidden) {
    folder_ = with_slash(std::move(folder));
    hidden_.clear();
    for (auto& prefix : hidden)
      if (!prefix.empty())
        hidden_.push_back(with_slash(std::move(prefix)));
    forget();
  }

  // Adds `at`, `fn` and `via`; adds nothing where no Python is under way in this thread. Takes the interpreter's lock
  // for a moment, so the caller holds no lock of the recorder's.
  void write(Json& json) {
    if (PyGILState_GetThisThreadState() == nullptr || python_is_ending())
      return;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback; // the caller may be handling an exception of its own
    PyErr_Fetch(&type, &value, &traceback);
    const Found found = look();
    if (found.code != nullptr) {
      write_line(json, found);
      json.key("fn").raw(found.code->function);
      if (found.via != nullptr)
        json.key("via").raw(found.via->name);
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
  }

  // Adds `at` only. The caller holds the interpreter's lock.
  void write_at(Json& json) {
    const Found found = look();
    if (found.code != nullptr)
      write_line(json, found);
  }

 private:
  enum class Place { kScript, kElsewhere, kHidden };

  // What is known of a piece of code; the texts are JSON already.
  struct Code {
    Place place;
    bool readable; // whether its name tells a reader something
    std::string file; // without the closing quote: the line's number follows
    std::string function;
    std::string name;
  };

  struct Found {
    const Code* code = nullptr;
    const Code* via = nullptr;
    int line = 0;
  };

  static constexpr int kDeepest = 256;
  static constexpr size_t kMostCodes = 16384;

  // Looks for the innermost frame of the script's folder; where there is none, for the innermost that is not hidden.
  Found look() {
    const Code* via = nullptr;
    Found found;
    if (codes_.size() > kMostCodes)
      forget();
    PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
    for (int depth = 0; frame != nullptr && depth < kDeepest; depth++) {
      const Code& code = code_of(frame);
      if (code.place == Place::kScript || (code.place == Place::kElsewhere && found.code == nullptr)) {
        found = {&code, via, PyFrame_GetLineNumber(frame)};
        if (code.place == Place::kScript)
          break;
      }
      if (code.readable)
        via = &code;
      PyFrameObject* outer = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = outer;
    }
    Py_XDECREF(frame);
    return found;
  }

  static void write_line(Json& json, const Found& found) {
    json.key("at").raw(found.code->file).raw(":").integer(found.line).raw("\"");
  }

  // Cached by the address of the code object, which is kept alive so that no other one gets that address.
  const Code& code_of(PyFrameObject* frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const auto known = codes_.find(code);
    if (known != codes_.end()) {
      Py_DECREF(code);
      return known->second;
    }
    return codes_.emplace(code, describe(code)).first->second;
  }

  Code describe(PyCodeObject* code) const {
    Code result;
    const std::string path = utf8(code->co_filename), function = utf8(code->co_name);
#if PY_VERSION_HEX >= 0x030b0000
    std::string name = utf8(code->co_qualname);
#else
    std::string name = function;
#endif
    std::string shown = path;
    result.place = place_of(path, shown);
    result.readable = is_readable(name);
    for (const std::string_view implied : {"Tensor."})
      if (std::string_view(name).substr(0, implied.size()) == implied)
        name.erase(0, implied.size());
    Json file, quoted_function, quoted_name;
    file.string(shown);
    file.text.pop_back();
    result.file = file.text;
    result.function = quoted_function.string(function).text;
    result.name = quoted_name.string(name).text;
    return result;
  }

  Place place_of(std::string_view path, std::string& shown) const {
    if (path.empty() || path[0] == '<')
      return Place::kHidden;
    for (const auto& prefix : hidden_)
      if (path.substr(0, prefix.size()) == prefix)
        return Place::kHidden;
    if (path[0] != '/') { // relative to the working folder, which is the script's
      if (path.substr(0, 2) == "./")
        shown = path.substr(2);
      return Place::kScript;
    }
    if (path.substr(0, folder_.size()) != folder_)
      return Place::kElsewhere;
    shown = path.substr(folder_.size());
    return Place::kScript;
  }

  // Decorators, context managers and the machinery of torch.nn.Module stand between a line and what it calls.
  static bool is_readable(std::string_view name) {
    const auto dot = name.rfind('.');
    const auto last = dot == std::string_view::npos ? name : name.substr(dot + 1);
    return name.find('<') == std::string_view::npos && last != "_wrapped_call_impl" && last != "_call_impl" &&
        last != "wrapper" && last != "decorate_context" && name.substr(0, 24) != "_GeneratorContextManager";
  }

  static std::string utf8(PyObject* text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes != nullptr)
      return std::string(bytes, static_cast<size_t>(size));
    PyErr_Clear(); // a path that is not UTF-8
    return "?";
  }

  static std::string with_slash(std::string folder) {
    if (folder.empty() || folder.back() != '/')
      folder += '/';
    return folder;
  }

  void forget() {
    for (auto& [code, _] : codes_)
      Py_DECREF(code);
    codes_.clear();
  }

  std::string folder_ = "/";
  std::vector<std::string> hidden_;
  std::unordered_map<PyCodeObject*, Code> codes_; // guarded by the interpreter's lock
};

// Never destroyed: a thread may still be recording while the process ends.
inline Source& source() {
  static Source& the_source = *new Source;
  return the_source;
}

} // namespace recorder
