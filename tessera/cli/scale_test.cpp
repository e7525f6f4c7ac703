#include "tessera/cli/scale.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/cli/networks.h"

namespace tessera {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// In characters, of UTF-8.
size_t length_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    lines.push_back(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), lines.back().size() + 1));
  }
  return lines;
}

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "taken";
}

ScaleReport report_of(std::string_view nodes, double step = 0.25, int64_t samples = 64) {
  GradientBuckets gradients = buckets_of_parameters(11700000);
  ScaleReport report{.workload = {.step_seconds = step, .buckets = std::move(gradients.buckets)},
                     .cluster = {.network = network_named("ethernet10").link,
                                 .local = network_named("loopback").link},
                     .source = "as given",
                     .assumed = "evenly",
                     .samples = samples};
  price_all(report, parse_nodes(nodes));
  return report;
}

TEST(Scale, ReadsListsOfNodes) {
  const std::vector<int64_t> doubled = {1, 2, 4, 8, 16};
  EXPECT_EQ(parse_nodes("1,2,4,...,16"), doubled);
  EXPECT_EQ(parse_nodes("1,...,16"), doubled);
  EXPECT_EQ(parse_nodes("3,...,10"), (std::vector<int64_t>{3, 6, 10}));
  EXPECT_EQ(parse_nodes("7"), (std::vector<int64_t>{7}));
  for (const char* text : {"", "0", "-1", "1,1", "2,1", "1,,2", "1,x", "1.5", "...,4",
                           "1,...,...,4", "100000", "1 2", "1,2,"}) {
    EXPECT_TRUE(contains(refusal([&] { parse_nodes(text); }), "is no list of nodes")) << text;
  }
  EXPECT_EQ(refusal([] { parse_nodes("1,..."); }),
            "'1,...' does not say where the doubling of nodes ends");
}

TEST(Scale, TellsTheTableAndFitsATerminal) {
  const std::string text = scale_as_text(report_of("1,2,4,...,256"));
  for (const char* part :
       {"one instance: 250 ms a step, 64 samples\n", "gradients: 46.8 MB in 45 buckets, as given\n",
        "network: 30 us, 10 Gbit/s; chunks of 256 KiB at most, along a chain\n",
        "overlap: evenly\n",
        "    1         1  250.0 ms       256     1.00    100.0 %         -      - compute\n",
        " 98 % compute\n", " latency\n"}) {
    EXPECT_TRUE(contains(text, part)) << part << text;
  }
  const auto lines = lines_of(text);
  for (size_t i = 0; i + 1 < lines.size(); ++i) {  // all but the sentence at the end
    EXPECT_LE(length_of(lines[i]), 84U) << lines[i];
  }
}

TEST(Scale, PlotsAnyNumbers) {
  std::string all = "1";
  for (int nodes = 2; nodes <= 32; ++nodes) all += "," + std::to_string(nodes);
  for (const std::string& nodes :
       {std::string("1"), std::string("1,2,3"), all, std::string("5,...,65536")}) {
    for (const double step : {1e-6, 0.25}) {
      const std::string text = scale_as_text(report_of(nodes, step));
      std::string plot = text.substr(text.find("speed-up, and"));
      plot.resize(plot.find("\n\n"));
      const auto lines = lines_of(plot);
      EXPECT_LE(lines.size(), 20U) << plot;
      for (const auto line : lines) EXPECT_LE(length_of(line), 80U) << plot;
      EXPECT_TRUE(contains(plot, "\u2588")) << plot;
    }
  }
}

TEST(Scale, SaysWhatWouldHelp) {
  EXPECT_EQ(advice(report_of("1")), "One instance has nobody to send anything to.");
  EXPECT_EQ(advice(report_of("1,2,4")),
            "Communication is hidden up to 4 nodes; only a faster step would help.");
  EXPECT_TRUE(contains(advice(report_of("1,...,256")),
                       "latency bounds the step on 256 nodes, where only fewer nodes would help"));
  const std::string short_step = advice(report_of("1,...,8", 0.05));
  EXPECT_TRUE(contains(short_step, "; bandwidth bounds the step on 8 nodes, where ")) << short_step;
  EXPECT_TRUE(contains(short_step, "times the samples a second, twice the ")) << short_step;
  EXPECT_TRUE(
      advice(report_of("1,2,4", 1e-3))
          .starts_with("Communication is noticed on 2 nodes already; bandwidth bounds the step"));
}

TEST(Scale, TellsTheSameAsJson) {
  const std::string json = scale_as_json(report_of("1,2"));
  for (const char* part :
       {R"("step_seconds": 0.25,)", R"("samples": 64,)", R"("chunk_bytes": 262144,)",
        R"("network": {"latency_seconds": 3e-05, "bandwidth_bytes_per_second": 1250000000})",
        R"({"bytes": 1048576, "ready": )", R"({"nodes": 2, "instances": 2, "step_seconds": 0.25)",
        R"("bound": "compute", "samples_per_second": 256})", R"("advice": "Communication is)"}) {
    EXPECT_TRUE(contains(json, part)) << part << json;
  }
  EXPECT_TRUE(contains(scale_as_json(report_of("1", 0.25, 0)), R"("samples": null)"));
}

TEST(Scale, DrawsAPictureOfItsOwn) {
  const std::string picture = scale_as_svg(report_of("1,...,256"));
  EXPECT_TRUE(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
  for (const char* part : {">nodes</text>", ">speed-up</text>", ">ideal</text>", ">256</text>",
                           ">bound by latency</text>", ">100 %</text>"}) {
    EXPECT_TRUE(contains(picture, part)) << part;
  }
  for (const char* never : {"nan", "inf", "href", "<script"}) {
    EXPECT_FALSE(contains(picture, never)) << never;
    EXPECT_FALSE(contains(scale_as_svg(report_of("7")), never)) << never;
  }
}

TEST(Scale, WritesThePictureOrSaysWhyNot) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("tessera_scale_" + std::to_string(getpid()));
  write_plot(path, report_of("1,2"));
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), scale_as_svg(report_of("1,2")));
  std::filesystem::remove(path);
  EXPECT_EQ(refusal([] { write_plot("/no/such/folder/a.svg", report_of("1")); }),
            "cannot write the plot to '/no/such/folder/a.svg': No such file or directory");
}

TEST(Scale, RefusesWhatMakesNoSense) {
  const auto with = [](auto change) {
    ScaleReport report = report_of("1");
    change(report);
    return refusal([&] { price_all(report, {1}); });
  };
  EXPECT_EQ(with([](ScaleReport& r) { r.cluster.instances_per_node = 0; }),
            "the number of instances on a node must be from 1 to 1024, not 0");
  EXPECT_EQ(with([](ScaleReport& r) { r.cluster.chunk_bytes = 0; }),
            "a chunk's bytes must be from 1 to 1099511627776, not 0");
  EXPECT_EQ(with([](ScaleReport& r) {
              r.workload.buckets = {{0, 1}};
            }),
            "a bucket must have at least one byte, not 0");
  EXPECT_EQ(with([](ScaleReport& r) { r.cluster.network.bandwidth = 0; }),
            "the bandwidth between nodes must be at least one byte a second");
  EXPECT_EQ(with([](ScaleReport& r) { r.workload.step_seconds = 1e9; }),
            "the step's time must be from 1e-09 to 1000000 seconds, not 1000000000");
  EXPECT_EQ(with([](ScaleReport& r) { r.samples = -1; }),
            "the number of samples must be from 1 to 1099511627776, not -1");
}

TEST(Networks, HaveNamesAndSources) {
  for (const Network& network : networks()) {
    EXPECT_EQ(network_named(network.name).name, network.name);
    EXPECT_TRUE(contains(list_of_networks(), network.name));
    EXPECT_FALSE(network.source.empty());
    EXPECT_GT(network.link.latency, 0);
  }
  EXPECT_EQ(refusal([] { network_named("pigeons"); }).substr(0, 56),
            "there is no network 'pigeons'; there are ethernet10, eth");
}

}  // namespace
}  // namespace tessera
