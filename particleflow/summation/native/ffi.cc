// The only file that includes XLA's FFI: it reads operands into problems and hands work to XLA's own threads.
//
// Operands come untyped, because decoding typed lists of arguments costs seconds of building. All have the same leading
// axes, of any number, each as long as that of the results or 1: a batch in which some operands are shared.
#include <algorithm>
#include <new>
#include <vector>
#include "far_problem.h"
#include "problem.h"
#include "workers.h"
#include "xla/ffi/api/ffi.h"

namespace particleflow {

bool sum_all(const std::vector<Problem<float>> &, const Workers &);
bool sum_all(const std::vector<Problem<double>> &, const Workers &);
bool pull_all(const std::vector<Adjoint<float>> &, const Workers &);
bool pull_all(const std::vector<Adjoint<double>> &, const Workers &);
bool far_sum(const FarProblem &, const Workers &);

namespace {

namespace ffi = xla::ffi;

// Of a problem, its place along every axis of the batch.
using Place = std::vector<int64_t>;

struct Operand {
  char *data;
  std::vector<int64_t> dims;
  int inner;  // so many of the last axes belong to one problem
  std::vector<size_t> strides;  // of the leading axes, in numbers; 0 where all problems along one share the operand

  Operand(const ffi::AnyBuffer &buffer, int inner) : data((char *)buffer.untyped_data()), inner(inner) {
    const auto given = buffer.dimensions();
    dims.assign(given.begin(), given.end());
    if (leading() < 0) return;
    strides.resize(leading());
    size_t size = 1;
    for (int a = (int)dims.size() - 1; a >= 0; size *= dims[a--])
      if (a < leading()) strides[a] = dims[a] == 1 ? 0 : size;
  }
  int64_t axis(int from_end) const { return dims[dims.size() - from_end]; }
  int leading() const { return (int)dims.size() - inner; }

  // Where the numbers of one problem of a batch begin.
  template <class T> T *at(const Place &place) const {
    size_t offset = 0;
    for (size_t a = 0; a < strides.size(); a++) offset += place[a] * strides[a];
    return (T *)data + offset;
  }
};

struct Call {
  std::vector<Operand> in, out;
  std::vector<int64_t> batch;

  // `axes`: how many of the last axes of each operand and result belong to one problem.
  ffi::Error decode(ffi::RemainingArgs &args, ffi::RemainingRets &rets, const std::vector<int> &axes) {
    if (args.size() + rets.size() != axes.size()) return ffi::Error::InvalidArgument("wrong number of operands");
    for (size_t i = 0; i < args.size(); i++) in.emplace_back(*args.get<ffi::AnyBuffer>(i), axes[i]);
    for (size_t i = 0; i < rets.size(); i++) out.emplace_back(**rets.get<ffi::AnyBuffer>(i), axes[args.size() + i]);
    if (out[0].leading() < 0) return ffi::Error::InvalidArgument("too few axes");
    batch.assign(out[0].dims.begin(), out[0].dims.begin() + out[0].leading());
    for (const auto *list : {&in, &out})
      for (const Operand &operand : *list) {
        if (operand.leading() != (int)batch.size()) return ffi::Error::InvalidArgument("batches of unequal rank");
        for (size_t a = 0; a < batch.size(); a++)
          if (operand.dims[a] != 1 && operand.dims[a] != batch[a])
            return ffi::Error::InvalidArgument("batches of unequal length");
      }
    return ffi::Error::Success();
  }

  // Visit one problem after another, by its place along every axis of the batch; the last axis runs fastest.
  template <class Visit> void each(Visit visit) const {
    Place place(batch.size());
    for (int64_t length : batch)
      if (length == 0) return;
    for (int axis = 0; axis >= 0;) {
      visit(place);
      for (axis = (int)batch.size() - 1; axis >= 0 && ++place[axis] == batch[axis]; axis--) place[axis] = 0;
    }
  }
};

// Operands of a problem: query features, key features, values, log-weights, positions of both (with no numbers where
// there is no band), and (power, least, most, slope, scale), with one number more where only some of the queries are
// summed, as many as the results have rows: the first of them.
const int PROBLEM = 7, NUMBERS = 5;

// The attributes of a call, as for Problem; with a negative tolerance all pairs are summed.
struct Form {
  int64_t inner, profile, packet;
  double tolerance;
  bool widen;
};

template <class T> Problem<T> problem_at(const Call &call, const Place &place, const Form &form) {
  const auto at = [&](int operand) { return (const T *)call.in[operand].at<T>(place); };
  const Operand &queries = call.in[0], &values = call.in[2];
  const bool banded = call.in[5].axis(1) > 0;
  const T *numbers = at(6);
  return {(int)queries.axis(2), (int)values.axis(2), (int)queries.axis(1), (int)form.inner, (int)values.axis(1),
          (Profile)form.profile, at(0), at(1), at(2), at(3), banded ? at(4) : nullptr, banded ? at(5) : nullptr,
          numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], form.tolerance, (int)form.packet, form.widen,
          nullptr, nullptr, nullptr};
}

Workers workers_of(ffi::ThreadPool &pool, const Call &call) {
  return {(int)std::max<int64_t>(1, pool.num_threads()),
          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); },
          call.batch.empty() ? WORTH_SHARING : BATCH_WORTH_SHARING};
}

ffi::Error told(bool done) {
  return done ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory left for a sum");
}

template <class T> ffi::Error moments(const Call &call, ffi::ThreadPool &pool, const Form &form) {
  std::vector<Problem<T>> problems;
  call.each([&](const Place &place) {
    Problem<T> problem = problem_at<T>(call, place, form);
    if (call.in[6].axis(1) > NUMBERS)
      problem = problem.some_queries((int)call.in[6].at<T>(place)[NUMBERS], (int)call.out[0].axis(1));
    problem.mass = call.out[0].at<T>(place), problem.shift = call.out[1].at<T>(place);
    problem.mean = call.out[2].at<T>(place);
    const int missing = (int)call.out[0].axis(1) - problem.queries;  // rows without a query are zeros
    std::fill_n(problem.mass + problem.queries, missing, T(0)), std::fill_n(problem.shift + problem.queries, missing, T(0));
    std::fill_n(problem.mean + (size_t)problem.queries * problem.columns, (size_t)missing * problem.columns, T(0));
    problems.push_back(problem);
  });
  return told(sum_all(problems, workers_of(pool, call)));
}

template <class T>
ffi::Error adjoint(const Call &call, ffi::ThreadPool &pool, const Form &form, bool with_values) {
  std::vector<Adjoint<T>> adjoints;
  call.each([&](const Place &place) {
    const auto at = [&](int operand) { return (const T *)call.in[PROBLEM + operand].at<T>(place); };
    const auto to = [&](int result) { return call.out[result].at<T>(place); };
    adjoints.push_back({problem_at<T>(call, place, form), at(0), at(1), at(2), at(3), at(4), to(0), to(1),
                        with_values ? to(2) : nullptr, to(3)});
  });
  return told(pull_all(adjoints, workers_of(pool, call)));
}

template <class Function> ffi::Error guarded(Function function) {
  try {
    return function();
  } catch (const std::bad_alloc &) {
    return told(false);
  }
}

ffi::Error handle_moments(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t inner,
                          int64_t profile, int64_t packet, double tolerance, bool widen) {
  return guarded([&] {
    Call call;
    ffi::Error error = call.decode(args, rets, {2, 2, 2, 1, 1, 1, 1, 1, 1, 2});
    if (error.failure()) return error;
    const Form form{inner, profile, packet, tolerance, widen};
    return rets.get<ffi::AnyBuffer>(0).value()->element_type() == ffi::F32
               ? moments<float>(call, pool, form)
               : moments<double>(call, pool, form);
  });
}

ffi::Error handle_adjoint(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t inner,
                          int64_t profile, int64_t packet, double tolerance, bool widen, bool with_values) {
  return guarded([&] {
    Call call;
    ffi::Error error = call.decode(args, rets, {2, 2, 2, 1, 1, 1, 1, 1, 2, 1, 1, 2, 2, 1, 2, 2});
    if (error.failure()) return error;
    const Form form{inner, profile, packet, tolerance, widen};
    return rets.get<ffi::AnyBuffer>(0).value()->element_type() == ffi::F32
               ? adjoint<float>(call, pool, form, with_values)
               : adjoint<double>(call, pool, form, with_values);
  });
}

// Points of queries and sources, charges, and (power, square of the softening), all in double precision, of one sum.
ffi::Error handle_far(ffi::ThreadPool pool, ffi::Buffer<ffi::F64> queries, ffi::Buffer<ffi::F64> keys,
                      ffi::Buffer<ffi::F64> charges, ffi::Buffer<ffi::F64> numbers, ffi::ResultBuffer<ffi::F64> results,
                      int64_t kind, bool logarithmic, double error) {
  return guarded([&] {
    const auto ours = queries.dimensions(), theirs = keys.dimensions();
    const int columns = (int)(kind == DIPOLES ? charges.dimensions()[1] / ours[1] : charges.dimensions()[1]);
    const double *law = numbers.typed_data();
    const FarProblem problem{(int)ours[0], (int)theirs[0], (int)ours[1], columns, (FarKind)kind,
                             {law[0], law[1], logarithmic}, error, queries.typed_data(), keys.typed_data(),
                             charges.typed_data(), results->typed_data()};
    const Workers workers{(int)std::max<int64_t>(1, pool.num_threads()),
                          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }, WORTH_SHARING};
    return told(far_sum(problem, workers));
  });
}

}  // namespace
}  // namespace particleflow

XLA_FFI_DEFINE_HANDLER_SYMBOL(particleflow_far, particleflow::handle_far,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F64>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F64>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F64>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F64>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F64>>()
                                  .Attr<int64_t>("kind")
                                  .Attr<bool>("logarithmic")
                                  .Attr<double>("error"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(particleflow_moments, particleflow::handle_moments,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("inner")
                                  .Attr<int64_t>("profile")
                                  .Attr<int64_t>("packet")
                                  .Attr<double>("tolerance")
                                  .Attr<bool>("widen"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(particleflow_adjoint, particleflow::handle_adjoint,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("inner")
                                  .Attr<int64_t>("profile")
                                  .Attr<int64_t>("packet")
                                  .Attr<double>("tolerance")
                                  .Attr<bool>("widen")
                                  .Attr<bool>("with_values"));
