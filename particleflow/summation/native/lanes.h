// Lanes: the vectors of this processor, and exp x, log x and sqrt x of all the numbers in one.
//
// Pure arithmetic on the vector extensions of GCC and clang, for float and double: AVX-512, AVX2, SSE2 and NEON are the
// same source with another width. Never compile it with -ffast-math: that undoes the rounding trick below, and hides NaN.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__AVX512F__)
#include <immintrin.h>  // half a second of building, so only where one of its functions is used
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define REGISTERS 32
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define REGISTERS 16
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define REGISTERS 32
#else
#define VECTOR_BYTES 16
#define REGISTERS 16
#endif

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))  // a tile compiled once instead of at every call: a third of the build

// A vector that is used several times stays in its register: left to itself, GCC reads it from memory at every use, and
// loads, not multiply-adds, bound the loop (two thirds of the processor's bound with AVX2 in place of nine tenths).
#if defined(__AVX512F__)
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#elif defined(__x86_64__)
#define IN_REGISTER(vector) __asm__("" : "+x"(vector))
#elif defined(__aarch64__)
#define IN_REGISTER(vector) __asm__("" : "+w"(vector))
#else
#define IN_REGISTER(vector)
#endif

namespace particleflow {

template <class T> struct Lane;

template <> struct Lane<float> {
  typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
  typedef uint32_t Bits __attribute__((vector_size(VECTOR_BYTES)));  // may wrap around
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float round = 12582912.f;  // 1.5 * 2^23: adding it rounds to whole numbers
  static constexpr float lowest = -87.f;      // e^lowest is a normal number, and what is below counts as 0
  static constexpr float nothing = -1e37f;    // less than any logit
};

template <> struct Lane<double> {
  typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef int64_t Integers __attribute__((vector_size(VECTOR_BYTES)));
  typedef uint64_t Bits __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double lowest = -708.0;
  static constexpr double nothing = -1e307;
};

template <class T> using Vector = typename Lane<T>::Vector;
template <class T> using Integers = typename Lane<T>::Integers;
template <class T> using Bits = typename Lane<T>::Bits;
template <class T> constexpr int WIDTH = VECTOR_BYTES / sizeof(T);

template <class T> INLINE Vector<T> all(T number) { return Vector<T>{} + number; }

// 2^f = 1 + f q(f) for |f| <= 1/2, the highest power first; the relative errors are 2.6e-9 (float) and 1.8e-17 (double).
template <class T> struct PowerOfFraction;
template <> struct PowerOfFraction<float> {
  static constexpr int terms = 7;
  static constexpr float terms_of[terms] = {0.00015594678f, 0.0013406644f, 0.009617693f, 0.055503106f,
                                            0.24022653f, 0.693147215f, 1.0f};
};
template <> struct PowerOfFraction<double> {
  static constexpr int terms = 12;
  static constexpr double terms_of[terms] = {
      4.0780719302031378593e-10, 7.0725704163471912551e-9, 1.0180647659749310871e-7, 1.3215442675312180038e-6,
      1.5252727385191290589e-5,  1.5403530441572159228e-4, 1.3333558153439968963e-3, 9.6181291076070023624e-3,
      5.5504108664790394527e-2,  2.4022650695910098007e-1, 6.9314718055994569675e-1, 1.0};
};

constexpr double LOG2E = 1.44269504088896340736, LN2 = 0.69314718055994530942;

#if defined(__AVX512F__)
// e^x = 2^n 2^(k/16) 2^r with the sixteen powers in two registers: degree 6 in place of 11 saves a sixth of a whole sum.
// An entry is the bits of 2^(k/16) less k << 48, so that adding (16 n + k) << 48 makes the exponent n.
struct Sixteenths {
  alignas(64) double entries[16];
  Sixteenths() {
    for (int k = 0; k < 16; k++) {
      const double power = std::exp2(k / 16.0);
      int64_t bits;
      std::memcpy(&bits, &power, 8);
      bits -= (int64_t)k << 48;
      std::memcpy(entries + k, &bits, 8);
    }
  }
};
static const Sixteenths sixteenths;

// ROUGH: degree 3, with a relative error of 1.6e-9.
template <int V, bool CUT, bool ROUGH> INLINE void exp_by_table(Vector<double> *x) {
  UNROLL for (int v = 0; v < V; v++) {
    const double round = Lane<double>::round / 16;
    const Vector<double> rounded = x[v] * LOG2E + round;
    const Vector<double> r = x[v] * LOG2E - (rounded - round);
    const Bits<double> index = (Bits<double>)rounded;
    const __m512d *halves = (const __m512d *)sixteenths.entries;
    const __m512d entry = _mm512_permutex2var_pd(halves[0], (__m512i)index, halves[1]);
    const Vector<double> base = (Vector<double>)((Bits<double>)entry + (index << 48));
    Vector<double> p;
    if constexpr (ROUGH) {
      p = r * 5.550213649372448e-2 + 2.402342880137504e-1;
      p = p * r + 6.931471826666386e-1;
    } else {
      p = r * 1.5404211699471880366e-4 + 1.3333820232867723017e-3;
      p = p * r + 9.6181291020536217323e-3;
      p = p * r + 5.5504108651954580929e-2;
      p = p * r + 2.4022650695910167029e-1;
      p = p * r + 6.9314718055994688866e-1;
    }
    const Vector<double> value = base * (p * r) + base;
    x[v] = CUT ? (x[v] < all<double>(Lane<double>::lowest) ? Vector<double>{} : value) : value;
  }
}
#endif

// x = e^x for V vectors, for x below 80 (float) or 700 (double). Rounding x log2 e to a whole number leaves it in the low
// bits of the sum, where a shift makes it the exponent; the fused product with log2 e loses nothing. CUT: all that is
// below `lowest`, -infinity included, gives exactly 0; without it such numbers must not come. NaN stays NaN: a comparison
// is false. The vectors go side by side, so that a coefficient is loaded once for all of them. ROUGH: as precise as single
// precision would be, a relative error of at most ROUGHNESS, for sums that are allowed more.
constexpr double ROUGHNESS = 3e-9;

template <class T, int V, bool CUT, bool ROUGH = false> INLINE void exp_lanes(Vector<T> *x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 8) return exp_by_table<V, CUT, ROUGH>(x);
#endif
  typedef PowerOfFraction<std::conditional_t<ROUGH, float, T>> Power;
  const T log2e = T(LOG2E);
  Vector<T> rounded[V], f[V], power[V];
  UNROLL for (int v = 0; v < V; v++) {
    rounded[v] = x[v] * log2e + Lane<T>::round;
    f[v] = x[v] * log2e - (rounded[v] - Lane<T>::round);
    power[v] = all<T>(T(Power::terms_of[0]));
  }
  UNROLL for (int k = 1; k < Power::terms; k++) {
    Vector<T> term = all<T>(T(Power::terms_of[k]));
    IN_REGISTER(term);
    UNROLL for (int v = 0; v < V; v++) power[v] = power[v] * f[v] + term;
  }
  UNROLL for (int v = 0; v < V; v++) {
    const Vector<T> value = (Vector<T>)((Bits<T>)power[v] + ((Bits<T>)rounded[v] << Lane<T>::mantissa));
    x[v] = CUT ? (x[v] < all<T>(Lane<T>::lowest) ? Vector<T>{} : value) : value;
  }
}

// Terms of atanh(t)/t = 1 + t^2/3 + t^4/5 + ... for |t| <= 0.1716, to 1e-9 (float) and 2e-18 (double).
template <class T> constexpr int ATANH_TERMS = sizeof(T) == 4 ? 6 : 11;

// log x for x > 0, normal; -infinity for 0 and below; NaN for NaN. x = 2^e m with m in [1/sqrt 2, sqrt 2), and
// log m = 2 atanh((m - 1)/(m + 1)).
template <class T> INLINE Vector<T> log_lanes(Vector<T> x) {
  const T root = T(0.70710678118654752440);
  const Integers<T> exponent = (Integers<T>)((Bits<T>)x - (Bits<T>)all<T>(root)) >> Lane<T>::mantissa;
  const Vector<T> m = (Vector<T>)((Bits<T>)x - ((Bits<T>)exponent << Lane<T>::mantissa));
  const Vector<T> t = (m - T(1)) / (m + T(1)), square = t * t;
  Vector<T> series = all<T>(T(1) / (2 * ATANH_TERMS<T> - 1));
  UNROLL for (int k = ATANH_TERMS<T> - 1; k >= 1; k--) series = series * square + T(1) / (2 * k - 1);
  const Vector<T> whole = __builtin_convertvector(exponent, Vector<T>);
  const Vector<T> value = whole * T(LN2) + T(2) * (t * series);
  return x > Vector<T>{} ? value : (x == x ? all<T>(-INFINITY) : x);
}

template <class T> INLINE Vector<T> sqrt_lanes(Vector<T> x) {
  Vector<T> root;
  UNROLL for (int i = 0; i < WIDTH<T>; i++) root[i] = std::sqrt(x[i]);
  return root;
}

// The vector of those lanes of a and b (b's come after a's) that `Pick` names, one for every lane.
template <class T, class Pick, size_t... LANE>
INLINE Vector<T> picked(Vector<T> a, Vector<T> b, std::index_sequence<LANE...>) {
  return __builtin_shufflevector(a, b, Pick::of(LANE)...);
}

// One half of an exchange: lanes with the bit STEP come from the other vector, STEP lanes away.
template <int WIDTH_, size_t STEP, bool UPPER> struct Exchange {
  static constexpr int of(size_t lane) {
    if (UPPER) return lane & STEP ? (int)lane + WIDTH_ : (int)(lane + STEP);
    return lane & STEP ? (int)(lane - STEP) + WIDTH_ : (int)lane;
  }
};

template <class T, size_t STEP> INLINE void exchange(Vector<T> *x) {
  if constexpr (STEP < (size_t)WIDTH<T>) {
    constexpr auto lanes = std::make_index_sequence<WIDTH<T>>{};
    UNROLL for (size_t i = 0; i < (size_t)WIDTH<T>; i++) {
      if (i & STEP) continue;
      const Vector<T> a = x[i], b = x[i + STEP];
      x[i] = picked<T, Exchange<WIDTH<T>, STEP, false>>(a, b, lanes);
      x[i + STEP] = picked<T, Exchange<WIDTH<T>, STEP, true>>(a, b, lanes);
    }
    exchange<T, 2 * STEP>(x);
  }
}

// Rows become columns: lane j of vector i and lane i of vector j change places, for as many vectors as there are lanes.
template <class T> INLINE void transpose(Vector<T> *x) { exchange<T, 1>(x); }

template <class T> INLINE Vector<T> loaded(const T *numbers) {
  Vector<T> x;
  std::memcpy(&x, numbers, sizeof x);
  return x;
}

// Whether some lane of a comparison holds.
template <class T> INLINE bool any(Integers<T> holds) {
  bool some = false;
  UNROLL for (int i = 0; i < WIDTH<T>; i++) some |= holds[i] != 0;
  return some;
}

// The largest of the lanes.
template <class T> INLINE T highest(Vector<T> x) {
  T largest = x[0];
  UNROLL for (int i = 1; i < WIDTH<T>; i++) largest = largest < x[i] ? x[i] : largest;
  return largest;
}

// total + lost is the sum so far: TwoSum (Knuth) keeps what each addition rounds off.
template <class T> INLINE void add_exactly(Vector<T> &total, Vector<T> &lost, Vector<T> more) {
  const Vector<T> sum = total + more, added = sum - total;
  lost += (total - (sum - added)) + (more - added);
  total = sum;
}

}  // namespace particleflow
