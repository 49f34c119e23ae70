// The door to XLA: operands in, problems out, tasks to XLA's own threads.
//
// Operands come untyped, because decoding typed lists of arguments costs seconds of building. All have the same leading
// axes, of any number, each as long as that of the results or 1: a batch in which some operands are shared.
#include "work.h"
#include "xla/ffi/api/ffi.h"

namespace particleflow {

bool sum_all(const std::vector<Problem<float>> &, const Workers &);
bool sum_all(const std::vector<Problem<double>> &, const Workers &);
bool pull_all(const std::vector<Adjoint<float>> &, const Workers &);
bool pull_all(const std::vector<Adjoint<double>> &, const Workers &);

namespace {

namespace ffi = xla::ffi;

struct Operand {
  char *data;
  std::vector<int64_t> dims;
  int inner;  // so many of the last axes belong to one problem

  Operand(const ffi::AnyBuffer &buffer, int inner) : data((char *)buffer.untyped_data()), inner(inner) {
    const auto given = buffer.dimensions();
    dims.assign(given.begin(), given.end());
  }
  int64_t axis(int from_end) const { return dims[dims.size() - from_end]; }
  size_t each() const {
    size_t size = 1;
    for (int a = 1; a <= inner; a++) size *= axis(a);
    return size;
  }
  int leading() const { return (int)dims.size() - inner; }

  // Where the numbers of one problem of a batch begin; null for an operand that is left out, with no numbers at all.
  template <class T> T *at(size_t index, const std::vector<int64_t> &batch) const {
    size_t place = 0, stride = 1;
    for (int a = leading() - 1; a >= 0; a--) {
      if (dims[a] != 1) place += index % batch[a] * stride;
      index /= batch[a], stride *= dims[a];
    }
    return (T *)data + place * each();
  }
};

struct Call {
  std::vector<Operand> in, out;
  std::vector<int64_t> batch;
  size_t count = 1;

  // `axes`: how many of the last axes of each operand and result belong to one problem.
  ffi::Error decode(ffi::RemainingArgs &args, ffi::RemainingRets &rets, const std::vector<int> &axes) {
    if (args.size() + rets.size() != axes.size()) return ffi::Error::InvalidArgument("wrong number of operands");
    for (size_t i = 0; i < args.size(); i++) in.emplace_back(*args.get<ffi::AnyBuffer>(i), axes[i]);
    for (size_t i = 0; i < rets.size(); i++) out.emplace_back(**rets.get<ffi::AnyBuffer>(i), axes[args.size() + i]);
    batch.assign(out[0].dims.begin(), out[0].dims.begin() + out[0].leading());
    for (int64_t length : batch) count *= length;
    for (const auto *list : {&in, &out})
      for (const Operand &operand : *list) {
        if (operand.leading() != (int)batch.size()) return ffi::Error::InvalidArgument("batches of unequal rank");
        for (size_t a = 0; a < batch.size(); a++)
          if (operand.dims[a] != 1 && operand.dims[a] != batch[a])
            return ffi::Error::InvalidArgument("batches of unequal length");
      }
    return ffi::Error::Success();
  }
};

// Operands of a problem: query features, key features, values, log-weights, positions of both (with no numbers where
// there is no band), and (power, least, most, slope, scale).
const int PROBLEM = 7;

template <class T> Problem<T> problem_at(const Call &call, size_t i, int64_t inner, int64_t profile) {
  const auto at = [&](int operand) { return (const T *)call.in[operand].at<T>(i, call.batch); };
  const Operand &queries = call.in[0], &values = call.in[2];
  const bool banded = call.in[5].axis(1) > 0;
  const T *numbers = at(6);
  return {(int)queries.axis(2), (int)values.axis(2), (int)queries.axis(1), (int)inner, (int)values.axis(1),
          (Profile)profile, at(0), at(1), at(2), at(3), banded ? at(4) : nullptr, banded ? at(5) : nullptr,
          numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], nullptr, nullptr, nullptr};
}

Workers workers_of(ffi::ThreadPool &pool) {
  return {(int)std::max<int64_t>(1, pool.num_threads()),
          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }};
}

ffi::Error told(bool done) {
  return done ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory left for a sum");
}

template <class T> ffi::Error moments(const Call &call, ffi::ThreadPool &pool, int64_t inner, int64_t profile) {
  std::vector<Problem<T>> problems;
  for (size_t i = 0; i < call.count; i++) {
    Problem<T> problem = problem_at<T>(call, i, inner, profile);
    problem.mass = call.out[0].at<T>(i, call.batch), problem.shift = call.out[1].at<T>(i, call.batch);
    problem.mean = call.out[2].at<T>(i, call.batch);
    problems.push_back(problem);
  }
  return told(sum_all(problems, workers_of(pool)));
}

template <class T>
ffi::Error adjoint(const Call &call, ffi::ThreadPool &pool, int64_t inner, int64_t profile, bool with_values) {
  std::vector<Adjoint<T>> adjoints;
  for (size_t i = 0; i < call.count; i++) {
    const auto at = [&](int operand) { return (const T *)call.in[PROBLEM + operand].at<T>(i, call.batch); };
    const auto to = [&](int result) { return call.out[result].at<T>(i, call.batch); };
    adjoints.push_back({problem_at<T>(call, i, inner, profile), at(0), at(1), at(2), at(3), at(4), to(0), to(1),
                        with_values ? to(2) : nullptr, to(3)});
  }
  return told(pull_all(adjoints, workers_of(pool)));
}

template <class Function> ffi::Error guarded(Function function) {
  try {
    return function();
  } catch (const std::bad_alloc &) {
    return told(false);
  }
}

ffi::Error handle_moments(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t inner,
                          int64_t profile) {
  return guarded([&] {
    Call call;
    ffi::Error error = call.decode(args, rets, {2, 2, 2, 1, 1, 1, 1, 1, 1, 2});
    if (error.failure()) return error;
    return rets.get<ffi::AnyBuffer>(0).value()->element_type() == ffi::F32
               ? moments<float>(call, pool, inner, profile)
               : moments<double>(call, pool, inner, profile);
  });
}

ffi::Error handle_adjoint(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t inner,
                          int64_t profile, bool with_values) {
  return guarded([&] {
    Call call;
    ffi::Error error = call.decode(args, rets, {2, 2, 2, 1, 1, 1, 1, 1, 2, 1, 1, 2, 2, 1, 2, 2});
    if (error.failure()) return error;
    return rets.get<ffi::AnyBuffer>(0).value()->element_type() == ffi::F32
               ? adjoint<float>(call, pool, inner, profile, with_values)
               : adjoint<double>(call, pool, inner, profile, with_values);
  });
}

}  // namespace
}  // namespace particleflow

XLA_FFI_DEFINE_HANDLER_SYMBOL(particleflow_moments, particleflow::handle_moments,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("inner")
                                  .Attr<int64_t>("profile"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(particleflow_adjoint, particleflow::handle_adjoint,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("inner")
                                  .Attr<int64_t>("profile")
                                  .Attr<bool>("with_values"));
