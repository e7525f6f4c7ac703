#include "tessera/backend/cpu/kernels/x86/gemm/gemm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tessera/base/cpu_level_for_test.h"

namespace tessera::cpu {
namespace {

// Memory that ends where a protected page begins: reading or writing beyond it is noticed.
class Guarded {
 public:
  Guarded() {
    void* begin =
        mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = begin == MAP_FAILED ? nullptr : static_cast<std::byte*>(begin);
    if (begin_) mprotect(begin_ + bytes, page, PROT_NONE);
  }
  ~Guarded() {
    if (begin_) munmap(begin_, bytes + page);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  float* last(int64_t floats) const { return reinterpret_cast<float*>(begin_ + bytes) - floats; }

 private:
  static constexpr size_t bytes = size_t{12} << 20, page = size_t{64} << 10;
  std::byte* begin_ = nullptr;
};

int64_t extent_of(const GemmShape& shape, bool left) {
  int64_t last = left ? (shape.rows - 1) * shape.a_row + (shape.depth - 1) * shape.a_depth
                      : (shape.depth - 1) * shape.b_depth + (shape.columns - 1) * shape.b_column;
  for (const auto& one : shape.batch) last += (one.size - 1) * (left ? one.a_stride : one.b_stride);
  return last + 1;
}

int64_t batch_of(const GemmShape& shape) {
  int64_t batch = 1;
  for (const auto& one : shape.batch) batch *= one.size;
  return batch;
}

class GemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "generated code needs AVX2";
  }

  void fill(const GemmShape& shape) {
    a_ = left_.last(extent_of(shape, true));
    b_ = right_.last(extent_of(shape, false));
    bias_ = bias_memory_.last(shape.columns);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < extent_of(shape, true); ++i) a_[i] = uniform(random_);
    for (int64_t i = 0; i < extent_of(shape, false); ++i) b_[i] = uniform(random_);
    for (int64_t i = 0; i < shape.columns; ++i) bias_[i] = uniform(random_);
  }

  std::vector<double> expected(const GemmShape& shape) const {
    std::vector<double> all;
    for (int64_t batch = 0; batch < batch_of(shape); ++batch) {
      const float *a = a_, *b = b_;
      int64_t rest = batch;
      for (size_t d = shape.batch.size(); d-- > 0;) {
        a += rest % shape.batch[d].size * shape.batch[d].a_stride;
        b += rest % shape.batch[d].size * shape.batch[d].b_stride;
        rest /= shape.batch[d].size;
      }
      for (int64_t i = 0; i < shape.rows; ++i) {
        for (int64_t j = 0; j < shape.columns; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < shape.depth; ++k)
            sum += double{a[i * shape.a_row + k * shape.a_depth]} *
                   double{b[k * shape.b_depth + j * shape.b_column]};
          if (shape.bias) sum += double{bias_[j]};
          all.push_back(shape.relu && sum < 0 ? 0 : sum);
        }
      }
    }
    return all;
  }

  std::vector<float> result(const GemmShape& shape, int threads = 1,
                            const Epilogue& epilogue = {}) {
    const Gemm gemm(shape);
    const int64_t count = batch_of(shape) * shape.rows * shape.columns;
    out_ = out_memory_.last(count);
    std::fill(out_, out_ + count, NAN);
    workspace_.assign(static_cast<size_t>(gemm.workspace_bytes()), std::byte{0xff});
    ThreadPool pool(threads, level_for_test());
    gemm.run(a_, b_, shape.bias ? bias_ : nullptr, out_, pool, workspace_, epilogue);
    return {out_, out_ + count};
  }

  double error(const GemmShape& shape) {
    fill(shape);
    const auto wanted = expected(shape);
    const auto got = result(shape);
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::isnan(got[i])) return 1e9;
      worst = std::max(worst, std::abs(wanted[i] - double{got[i]}));
    }
    return worst / (1 + std::sqrt(static_cast<double>(shape.depth)));
  }

  Guarded left_, right_, bias_memory_, out_memory_;
  std::vector<std::byte> workspace_;
  float *a_ = nullptr, *b_ = nullptr, *bias_ = nullptr, *out_ = nullptr;
  std::mt19937 random_{5};
};

enum Way { plain, left_turned, right_turned, both_turned, apart, odd, ways };

GemmShape shape_of(int64_t rows, int64_t columns, int64_t depth, int way) {
  GemmShape shape{.rows = rows, .columns = columns, .depth = depth};
  const bool a_turned = way == left_turned || way == both_turned;
  const bool b_turned = way == right_turned || way == both_turned;
  const int64_t gap = way == apart ? 3 : 0, factor = way == odd ? 2 : 1;
  shape.a_row = a_turned ? 1 : factor * depth + gap;
  shape.a_depth = a_turned ? rows : factor;
  shape.b_depth = b_turned ? 1 : factor * columns + gap;
  shape.b_column = b_turned ? depth : factor;
  return shape;
}

std::string text(const GemmShape& s) {
  return std::to_string(s.rows) + "x" + std::to_string(s.depth) + "x" + std::to_string(s.columns) +
         " strides " + std::to_string(s.a_row) + "," + std::to_string(s.a_depth) + " " +
         std::to_string(s.b_depth) + "," + std::to_string(s.b_column) + (s.bias ? " bias" : "") +
         (s.relu ? " relu" : "");
}

constexpr double most_error = 1e-6;

TEST_F(GemmTest, SmallSizes) {
  for (int64_t rows = 1; rows <= 20; ++rows) {
    for (int64_t columns = 1; columns <= 20; ++columns) {
      for (int64_t depth = 1; depth <= 20; ++depth) {
        // Each size in one way; neighbours take the others.
        const int64_t turn = rows + 2 * columns + 5 * depth;
        GemmShape shape = shape_of(rows, columns, depth, static_cast<int>(turn % ways));
        shape.bias = turn / ways % 3 == 0;
        shape.relu = turn / ways % 2 == 0;
        ASSERT_LT(error(shape), most_error) << text(shape);
      }
    }
  }
}

TEST_F(GemmTest, VectorsAlongTheDepth) {
  for (int64_t rows = 1; rows <= 13; ++rows) {
    for (const int64_t columns : {1, 2, 3, 4, 5, 7, 11, 12, 13, 27}) {
      for (const int64_t depth : {32, 33, 39, 64, 71, 100}) {
        const int64_t turn = rows + columns + depth;
        GemmShape shape = shape_of(rows, columns, depth, turn % 2 ? right_turned : both_turned);
        shape.bias = turn % 3 == 0;
        shape.relu = turn % 4 == 0;
        ASSERT_LT(error(shape), most_error) << text(shape);
      }
    }
  }
}

std::vector<GemmShape> layer_shapes() {
  return {shape_of(16, 100, 972, right_turned), shape_of(16, 972, 100, plain),
          shape_of(100, 972, 16, left_turned),  shape_of(1, 100, 972, right_turned),
          shape_of(1, 972, 100, plain),         shape_of(100, 972, 1, left_turned),
          shape_of(100, 1, 972, plain),         shape_of(100, 1, 972, left_turned),
          shape_of(64, 128, 784, right_turned), shape_of(64, 200, 512, plain),
          shape_of(128, 140, 64, left_turned),  shape_of(64, 10, 512, right_turned),
          shape_of(97, 61, 800, plain),         shape_of(70, 61, 800, both_turned),
          shape_of(70, 61, 500, apart),         shape_of(50, 61, 70, odd),
          shape_of(12, 200, 512, right_turned), shape_of(3, 5, 3000, right_turned),
          shape_of(3, 50, 3000, left_turned)};
}

TEST_F(GemmTest, SizesOfLayers) {
  for (GemmShape shape : layer_shapes()) {
    EXPECT_LT(error(shape), most_error) << text(shape);
    shape.bias = shape.relu = true;
    EXPECT_LT(error(shape), most_error) << text(shape);
  }
}

TEST_F(GemmTest, Batches) {
  GemmShape heads = shape_of(20, 24, 32, plain);  // [2, 20, 3 heads of 32] viewed by head
  heads.batch = {{2, 20 * 96, 24 * 96}, {3, 32, 32}};
  heads.a_row = 96;
  heads.b_depth = 1;
  heads.b_column = 96;
  EXPECT_LT(error(heads), most_error);
  GemmShape tall = heads;
  tall.rows = 60;
  tall.batch[0].a_stride = 60 * 96;
  EXPECT_LT(error(tall), most_error);
  for (const int way : {plain, left_turned, right_turned, both_turned}) {
    for (const int64_t rows : {3, 40}) {
      GemmShape shape = shape_of(rows, 50, 33, way);
      shape.batch = {{5, rows * 33, 33 * 50}};
      EXPECT_LT(error(shape), most_error) << text(shape);
      shape.batch = {{5, 0, 33 * 50}};
      EXPECT_LT(error(shape), most_error) << text(shape) << ", one left matrix";
      shape.batch = {{5, rows * 33, 0}};
      EXPECT_LT(error(shape), most_error) << text(shape) << ", one right matrix";
    }
  }
  GemmShape large = shape_of(100, 120, 128, plain);
  large.batch = {{3, 100 * 128, 128 * 120}};
  EXPECT_LT(error(large), most_error);
}

TEST_F(GemmTest, SameBitsForAnyNumberOfThreads) {
  auto shapes = layer_shapes();
  GemmShape batched = shape_of(60, 64, 128, left_turned);
  batched.batch = {{7, 60 * 128, 64 * 128}};
  shapes.push_back(batched);
  for (const GemmShape& shape : shapes) {
    fill(shape);
    const auto one = result(shape, 1);
    EXPECT_EQ(result(shape, 2), one) << text(shape);
    EXPECT_EQ(result(shape, 3), one) << text(shape);
  }
}

TEST_F(GemmTest, EpilogueSeesEveryFinishedElementOnce) {
  auto shapes = layer_shapes();
  GemmShape batched = shape_of(60, 64, 128, plain);
  batched.batch = {{3, 60 * 128, 64 * 128}, {2, 0, 0}};
  shapes.push_back(batched);
  for (const GemmShape& shape : shapes) {
    fill(shape);
    const auto wanted = result(shape);
    for (const int threads : {1, 3}) {
      const auto doubled = [&](const Box& box) {
        const size_t rank = shape.batch.size();
        int64_t batch = 0;
        for (size_t d = 0; d < rank; ++d) {
          EXPECT_EQ(box.end[d], box.begin[d] + 1);
          batch = batch * shape.batch[d].size + box.begin[d];
        }
        float* out = out_ + batch * shape.rows * shape.columns;
        for (int64_t i = box.begin[rank]; i < box.end[rank]; ++i)
          for (int64_t j = box.begin[rank + 1]; j < box.end[rank + 1]; ++j)
            out[i * shape.columns + j] *= 2;
      };
      const auto got = result(shape, threads, Epilogue(doubled));
      size_t wrong = 0;
      for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != 2 * wanted[i];
      EXPECT_EQ(wrong, 0U) << text(shape);
    }
  }
}

TEST_F(GemmTest, NanAndInfinityGoWhereTheyBelong) {
  for (const GemmShape& base : {shape_of(7, 21, 40, plain), shape_of(7, 21, 43, right_turned),
                                shape_of(40, 21, 40, both_turned)}) {
    GemmShape shape = base;
    shape.relu = shape.bias = true;
    fill(shape);
    const int64_t k = shape.depth - 1;
    a_[2 * shape.a_row + k * shape.a_depth] = NAN;
    b_[k * shape.b_depth + 20 * shape.b_column] = std::numeric_limits<float>::infinity();
    a_[3 * shape.a_row + k * shape.a_depth] = 1;
    a_[4 * shape.a_row + k * shape.a_depth] = -1;
    const auto got = result(shape);
    const auto at = [&](int64_t i, int64_t j) {
      return got[static_cast<size_t>(i * shape.columns + j)];
    };
    EXPECT_TRUE(std::isinf(at(3, 20)));
    EXPECT_EQ(at(4, 20), 0);
    for (int64_t i = 0; i < shape.rows; ++i) {
      for (int64_t j = 0; j < shape.columns; ++j) {
        const float value = at(i, j);
        EXPECT_EQ(std::isnan(value), i == 2) << i << "," << j;
        EXPECT_EQ(std::isinf(value), j == 20 && i != 2 && value > 0);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
