#include "tessera/cli/quantities.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

template <typename Parse>
std::string refusal(Parse parse, std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.message();
  }
  return "taken";
}

TEST(Quantities, HaveUnits) {
  EXPECT_DOUBLE_EQ(parse_seconds("12.5ms"), 12.5e-3);
  EXPECT_DOUBLE_EQ(parse_seconds("20us"), 20e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("7ns"), 7e-9);
  EXPECT_DOUBLE_EQ(parse_seconds("0s"), 0);
  EXPECT_EQ(parse_bytes("4MiB"), 4 << 20);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
  EXPECT_EQ(parse_bytes("4MB"), 4000000);
  EXPECT_EQ(parse_bytes("12B"), 12);
  EXPECT_DOUBLE_EQ(parse_bandwidth("10Gbit/s"), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("10GB/s"), 10e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1MiB/s"), 1 << 20);
  EXPECT_EQ(parse_count("11.7M"), 11700000);
  EXPECT_EQ(parse_count("512"), 512);
}

TEST(Quantities, AreReadStrictly) {
  for (const char* text : {"", "12", "ms", "12 ms", " 12ms", "12ms ", "12msec", "12MS", "-1ms",
                           "-0s", "infs", "nans", "1e3s", "0x1s", "1,5ms", "1_000ms"}) {
    EXPECT_NE(refusal(parse_seconds, text), "taken") << text;
  }
  for (const char* text : {"4Mb", "4mib", "4M", "4", "4kiB", "10Gbit/s"}) {
    EXPECT_NE(refusal(parse_bytes, text), "taken") << text;
  }
  for (const char* text : {"10Gb/s", "10Gbps", "10Gbit", "10G", "10"}) {
    EXPECT_NE(refusal(parse_bandwidth, text), "taken") << text;
  }
}

TEST(Quantities, RefusalsSayWhatWasWanted) {
  EXPECT_EQ(refusal(parse_seconds, "20"),
            "'20' is no time; a number was wanted, and right behind it one of ns, us, ms, s, such "
            "as 12.5ms");
  EXPECT_EQ(refusal(parse_bandwidth, "10Gbps").substr(0, 70),
            "'10Gbps' is no bandwidth; a number was wanted, and right behind it one");
  EXPECT_EQ(refusal(parse_bytes, "0.5B"), "'0.5B' is no whole number of bytes");
  EXPECT_EQ(refusal(parse_count, "2000000000000000"),
            "'2000000000000000' is too much; at most 1e+15 can be counted");
}

TEST(Quantities, AreToldInTheUnitThatSuits) {
  EXPECT_EQ(seconds_text(12.5e-3), "12.5 ms");
  EXPECT_EQ(seconds_text(30e-6), "30 us");
  EXPECT_EQ(seconds_text(0), "0 ns");
  EXPECT_EQ(seconds_column(12.5e-3), "12.50 ms");
  EXPECT_EQ(seconds_column(0.1234567), "123.5 ms");
  EXPECT_EQ(seconds_column(2), "2.000 s");
  EXPECT_EQ(bytes_text(46800000), "46.8 MB");
  EXPECT_EQ(bytes_text(256 << 10), "256 KiB");
  EXPECT_EQ(bytes_text(3 << 19), "1.5 MiB");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bandwidth_text(1.25e9), "10 Gbit/s");
  EXPECT_EQ(bandwidth_text(12.5e9), "100 Gbit/s");
}

}  // namespace
}  // namespace tessera
