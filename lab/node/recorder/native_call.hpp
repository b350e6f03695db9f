// One call: its begin line and its end line.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "native_json.hpp"
#include "native_log.hpp"
#include "native_source.hpp"
#include "native_values.hpp"

namespace recorder {

using TensorLists = std::vector<Tensors>;

struct Operation {
  const char* name;
  c10d::OpType type;
};

inline Tensors flat(const at::Tensor& tensor) {
  return {tensor};
}

inline const Tensors& flat(const Tensors& tensors) {
  return tensors;
}

inline Tensors flat(const TensorLists& lists) {
  Tensors all;
  for (const auto& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

constexpr size_t kLongestReason = 300;

// The first line of the text of an exception.
inline std::string reason_of(const std::exception_ptr& error) {
  std::string reason;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    reason = known.what();
  } catch (...) {
    reason = "unknown error";
  }
  return reason.substr(0, std::min(reason.find('\n'), kLongestReason));
}

class End {
 public:
  End(int64_t number, Tensors results) : number_(number), results_(std::move(results)) {}

  // `sender`: group rank from which a receive from any rank got its data.
  void write(const std::exception_ptr& error = nullptr, int sender = -1) const noexcept {
    if (!log().on.load(std::memory_order_relaxed))
      return;
    try {
      Json json = line_of("end");
      json.key("i").number(number_);
      if (error)
        json.key("err").string(reason_of(error));
      else if (!results_.empty())
        write_contents(json, "ov", "os", results_, log().values);
      if (sender >= 0)
        json.key("peer").number(sender);
      log().write(std::move(json));
    } catch (...) { // out of memory: lose a line, not the run
    }
  }

 private:
  int64_t number_;
  Tensors results_;
};

class Begin {
 public:
  // `seq`: number of the collective in its group; 0 for point-to-point calls.
  Begin(const char* operation, const std::string& group, int64_t seq) : number_(++log().calls), limit_(log().values) {
    json_.key("i").number(number_).key("op").string(operation).key("g").string(group);
    if (seq > 0)
      json_.key("seq").number(seq);
  }

  Begin& in_place(const Tensors& tensors) {
    describe_inputs(tensors);
    results(tensors);
    return *this;
  }

  Begin& from_to(const Tensors& inputs, const Tensors& outputs) {
    describe_inputs(inputs);
    const int64_t bytes = write_shapes(json_, "out", outputs);
    json_.key("ob").number(bytes);
    results(outputs);
    return *this;
  }

  Begin& peer(int group_rank, int tag) {
    json_.key("peer").number(group_rank).key("tag").number(tag);
    return *this;
  }

  Begin& split(const std::vector<int64_t>& output, const std::vector<int64_t>& input) {
    if (!output.empty() || !input.empty())
      json_.key("split").raw("[").integers(output).raw(",").integers(input).raw("]");
    return *this;
  }

  template <class Options>
  Begin& options(const Options& given) {
    if constexpr (requires { given.reduceOp; })
      reduce(given.reduceOp);
    if constexpr (requires { given.rootRank; })
      json_.key("root").number(given.rootRank);
    return async(given.asyncOp);
  }

  Begin& facts(const std::string& inside_of_object) {
    if (!inside_of_object.empty())
      json_.raw(",").raw(inside_of_object);
    return *this;
  }

  Begin& async(bool asked) {
    json_.key("async").boolean(asked);
    return *this;
  }

  // Takes the time last, so that the recorder's own time does not count as the call's.
  End write() {
    source().write(json_);
    log().write(std::move(line_of("begin").raw(",").raw(json_.text)));
    return {number_, std::move(results_)};
  }

 private:
  void describe_inputs(const Tensors& tensors) {
    const int64_t bytes = write_shapes(json_, "in", tensors);
    json_.key("ib").number(bytes);
    if (limit_ > 0 && !tensors.empty())
      write_contents(json_, "iv", "is", tensors, limit_);
  }

  void results(const Tensors& tensors) {
    if (limit_ > 0)
      results_ = tensors;
  }

  void reduce(const c10d::ReduceOp& operation) {
    static constexpr const char* kNames[] = {
        "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    const auto number = static_cast<size_t>(static_cast<c10d::ReduceOp::RedOpType>(operation));
    if (number < std::size(kNames))
      json_.key("red").string(kNames[number]);
  }

  const int64_t number_;
  const int64_t limit_;
  Tensors results_;
  Json json_;
};

} // namespace recorder
