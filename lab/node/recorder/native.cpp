// The compiled recorder: a c10d backend that forwards every call to the real backend and records its beginning and its
// end. docs/trace.md describes the format of the lines.

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "native_backend.hpp"
#include "native_holds.hpp"
#include "native_log.hpp"
#include "native_source.hpp"
#include "native_told.hpp"

namespace recorder {

// mark(name: bytes, ended: bool): a phase begins or ends. Does not use pybind11, whose calls take twice as long.
PyObject* mark(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2 || !PyBytes_Check(arguments[0])) {
    PyErr_SetString(PyExc_TypeError, "mark(name: bytes, ended: bool)");
    return nullptr;
  }
  if (log().on.load(std::memory_order_relaxed)) {
    const bool ended = arguments[1] == Py_True;
    const std::string_view name(PyBytes_AS_STRING(arguments[0]), static_cast<size_t>(PyBytes_GET_SIZE(arguments[0])));
    Json line = line_of("mark");
    line.key("n").string(name).key("e").number(ended ? 1 : 0);
    if (!ended)
      source().write_at(line);
    log().write(std::move(line));
  }
  Py_RETURN_NONE;
}

PyMethodDef kMark = {"mark", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(mark)), METH_FASTCALL, nullptr};

} // namespace recorder

PYBIND11_MODULE(lab_recorder_native, module) {
  using namespace recorder;
  module.doc() = "The compiled recorder of collectives. Off until start().";
  stop_in_forks();
  pthread_atfork(nullptr, nullptr, [] { holds().armed = false; });
  module.def(
      "start",
      [](int fd, std::string folder, std::vector<std::string> hidden, int64_t values, size_t limit) {
        source().start(std::move(folder), std::move(hidden));
        log().start(fd, values, limit);
      },
      "start(fd, folder, hidden, values, limit)\n\n"
      "Start to record at most `limit` bytes to a descriptor that is open for reading and appending.");
  module.def(
      "write", [](const pybind11::bytes& line) { log().write(line); }, "Append one whole line, if it records.");
  module.def("wrap", &RecordingBackend::wrap, "A backend that records calls and forwards them to the given one.");
  add_told(module);
  module.def(
      "hold",
      [](pybind11::function reach, Holds::Points points) { holds().arm(std::move(reach), std::move(points)); },
      "hold(reach, points)\n\n"
      "Call reach(op, nth, edge, tensors=) at these calls: {op: [(nth, whether after the call)]}. It may raise.");
  module.def(
      "count",
      [](const std::string& operation) { return holds().count(operation); },
      "Count a call that begins; return its number among the calls of its operation, 0 if nothing watches them.");
  module.add_object("mark", pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&kMark, nullptr)));
  module.def("stop", [] { return log().stop(); }, "Stop to write lines; return whether it recorded until now.");
}
