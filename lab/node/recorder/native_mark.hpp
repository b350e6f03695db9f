// The marks of phases: a function that writes one, and an object that calls a function and marks its beginning and end.
// Not by pybind11, whose calls take twice as long, nor in Python, where the frame of a wrapper costs more than the mark.
#pragma once

#include <Python.h>

#include <cstddef>
#include <string_view>

#include "native_json.hpp"
#include "native_log.hpp"
#include "native_source.hpp"

namespace recorder {

// `name` is a bytes object. Does not touch an exception that is under way where the phase ended.
inline void write_mark(PyObject* name, bool ended) {
  if (!log().on.load(std::memory_order_relaxed))
    return;
  Json line;
  line.raw("{\"k\":\"mark\",\"t\":").integer(now_ns()).key("n");
  line.string({PyBytes_AS_STRING(name), static_cast<size_t>(PyBytes_GET_SIZE(name))});
  line.key("e").integer(ended ? 1 : 0);
  if (!ended)
    source().write_at(line);
  log().write(line.raw("}\n").text);
}

// mark(name: bytes, ended: bool, *rest)
inline PyObject* mark(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 2 || !PyBytes_Check(arguments[0])) {
    PyErr_SetString(PyExc_TypeError, "mark(name: bytes, ended: bool, *rest)");
    return nullptr;
  }
  write_mark(arguments[0], arguments[1] == Py_True);
  Py_RETURN_NONE;
}

inline PyMethodDef kMark = {
    "mark",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(mark)),
    METH_FASTCALL,
    "mark(name: bytes, ended: bool, *rest)\n\nA phase of the script begins or ends. What else is given does not matter."};

// marked(name: bytes, function): stands in the place of a function of Python, as a method, too.
struct Marked {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* name;
  PyObject* function;
  PyObject* attributes;
  PyObject* weak_references;

  static PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *name, *function;
    if (!PyArg_ParseTuple(arguments, "SO", &name, &function))
      return nullptr;
    auto* const self = reinterpret_cast<Marked*>(type->tp_alloc(type, 0));
    if (self != nullptr) {
      self->call = vectorcall;
      Py_INCREF(self->name = name);
      Py_INCREF(self->function = function);
    }
    return reinterpret_cast<PyObject*>(self);
  }

  static PyObject* vectorcall(PyObject* object, PyObject* const* arguments, size_t count, PyObject* names) {
    auto* const self = reinterpret_cast<Marked*>(object);
    write_mark(self->name, false);
    PyObject* const result = PyObject_Vectorcall(self->function, arguments, count, names);
    write_mark(self->name, true);
    return result;
  }

  static PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
    if (instance != nullptr && instance != Py_None)
      return PyMethod_New(self, instance);
    Py_INCREF(self);
    return self;
  }

  // As functions are: by their name.
  static PyObject* reduce(PyObject* self, PyObject*) {
    return PyObject_GetAttrString(self, "__qualname__");
  }

  static int traverse(PyObject* object, visitproc visit, void* arg) {
    auto* const self = reinterpret_cast<Marked*>(object);
    Py_VISIT(self->function);
    Py_VISIT(self->attributes);
    return 0;
  }

  static int clear(PyObject* object) {
    auto* const self = reinterpret_cast<Marked*>(object);
    Py_CLEAR(self->function);
    Py_CLEAR(self->attributes);
    return 0;
  }

  static void free(PyObject* object) {
    auto* const self = reinterpret_cast<Marked*>(object);
    PyObject_GC_UnTrack(object);
    if (self->weak_references != nullptr)
      PyObject_ClearWeakRefs(object);
    clear(object);
    Py_XDECREF(self->name);
    Py_TYPE(object)->tp_free(object);
  }
};

inline PyTypeObject* marked_type() {
  static PyMethodDef methods[] = {{"__reduce__", Marked::reduce, METH_NOARGS, nullptr}, {}};
  static PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict}, {}};
  static PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "lab_recorder_native.marked";
  type.tp_doc = "marked(name: bytes, function)\n\nCalls a function and marks its beginning and its end.";
  type.tp_basicsize = sizeof(Marked);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  type.tp_vectorcall_offset = offsetof(Marked, call);
  type.tp_dictoffset = offsetof(Marked, attributes);
  type.tp_weaklistoffset = offsetof(Marked, weak_references);
  type.tp_new = Marked::make;
  type.tp_call = PyVectorcall_Call;
  type.tp_descr_get = Marked::bind;
  type.tp_methods = methods;
  type.tp_getset = properties;
  type.tp_traverse = Marked::traverse;
  type.tp_clear = Marked::clear;
  type.tp_dealloc = Marked::free;
  return PyType_Ready(&type) == 0 ? &type : nullptr;
}

} // namespace recorder
