// Workers: the caller's threads, and how work is shared out among them.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <sched.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace particleflow {

// Numbers below the smallest normal one count as 0 while this lives: they would cost a hundred cycles each.
struct FlushedDenormals {
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  FlushedDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushedDenormals() { _mm_setcsr(before); }
#endif
};

// Below so many cycles, roughly, another thread costs more than it saves. A sum by itself is often one of many after each
// other, between which other threads stay awake (256 points in three dimensions, AVX-512, double precision: 82e3 cycles,
// 29 instead of 41 us at best). Beside a batch, which may have one member, other cores often have batches of their own.
constexpr double WORTH_SHARING = 70e3, BATCH_WORTH_SHARING = 120e3;

// How to hand a task to another thread, and how many there are, this one included.
struct Workers {
  int count;
  std::function<void(std::function<void()>)> schedule;
  double worth_sharing = WORTH_SHARING;

  // Do items 0 ... items - 1, each once. The caller works, too, and waits only for items that have been begun: it
  // cannot wait for ever, whatever the other threads are busy with. False if an item fails.
  bool share(int items, const std::function<bool(int)> &work) const {
    if (std::min(count, items) == 1) {
      FlushedDenormals flushed;
      bool done = true;
      for (int item = 0; item < items; item++) done &= work(item);
      return done;
    }
    struct Shared {
      std::atomic<int> next{0}, done{0};
      std::atomic<bool> failed{false};
    };
    auto shared = std::make_shared<Shared>();
    // A task that comes too late finds no item left and touches nothing but `shared`.
    auto some = [shared, items, &work]() {
      FlushedDenormals flushed;
      for (int item; (item = shared->next.fetch_add(1, std::memory_order_relaxed)) < items;) {
        if (!work(item)) shared->failed.store(true, std::memory_order_relaxed);
        shared->done.fetch_add(1, std::memory_order_release);
      }
    };
    for (int thread = 1; thread < std::min(count, items); thread++) schedule(some);
    some();
    for (int spin = 0; shared->done.load(std::memory_order_acquire) < items; spin++)
      if (spin > 2000) sched_yield();
    return !shared->failed.load();
  }

  // Rows 0 ... count - 1, a stretch an item.
  template <class Work> void rows(int count, Work work) const {
    constexpr int STRETCH = 4096;
    share((count + STRETCH - 1) / STRETCH, [&](int item) {
      work(item * STRETCH, std::min(count, (item + 1) * STRETCH));
      return true;
    });
  }

  Workers alone() const { return {1, {}}; }
};

}  // namespace particleflow
