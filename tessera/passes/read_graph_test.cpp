// What a graph from a file must not bring in.
#include "tessera/passes/read_graph.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

std::string refusal(const std::string& statements) {
  try {
    read_graph("graph \"g\" {\n" + statements + "}\n");
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
}

TEST(ReadGraph, RefusesHostCallsThatAreNotKnownToBeSafe) {
  const std::string input = "input data \"x\" %0 : f32[3,3]\n";
  const auto call = [&](const std::string& overload) {
    return input + "%1 = aten(%0) {arguments = \"$0\", overload = \"" + overload +
           "\", results = \"f32[3,3]\"} : f32[3,3]\noutput \"y\" %1\n";
  };
  EXPECT_EQ(refusal(call("aten::erfinv")), "none");
  for (const char* overload : {"aten::from_file", "aten::as_strided", "aten::set_"}) {
    EXPECT_NE(refusal(call(overload)).find("a graph from a file may not"), std::string::npos);
    const std::string text = "graph \"g\" {\n" + call(overload) + "}\n";
    EXPECT_NO_THROW(read_graph(text, FromFile::any_host_call)) << "for tools that only look";
  }
}

TEST(ReadGraph, TakesHalves) {
  EXPECT_EQ(refusal("input data \"x\" %0 : f16[2]\noutput \"y\" %0\n"), "none");
  EXPECT_EQ(refusal("input data \"x\" %0 : f32[2]\n%1 = cast(%0) {dtype = f16} : f16[2]\n"
                    "%2 = fill() {dtype = f16, shape = [2], value = 0.5} : f16[2]\n"
                    "%3 = cat(%1, %2) : f16[4]\noutput \"y\" %3\n"),
            "none");
  EXPECT_EQ(refusal("input data \"x\" %0 : f16[2]\n%1 = relu(%0) : f16[2]\noutput \"y\" %1\n"),
            "none");
}

TEST(ReadGraph, RefusesNumbersThatDoNotFit) {
  EXPECT_NE(refusal("input data \"x\" %0 : f32[4]\ninput data \"s\" %1 : f32[2,2]\n"
                    "%2 = write_view(%0, %1) {strides = [4611686018427387904, "
                    "9223372036854775807]} : f32[4]\noutput \"y\" %2\n")
                .find("reach outside"),
            std::string::npos);
  EXPECT_NE(refusal("%0 = fill() {dtype = f32, shape = [4294967296, 4294967296], value = 1.0} : "
                    "f32[2]\noutput \"y\" %0\n")
                .find("larger than any memory"),
            std::string::npos);
  EXPECT_NE(refusal("input data \"x\" %0 : f32[4]\n%1 = sum(%0) {dim = [9999999999]} : f32[]\n"
                    "output \"y\" %1\n")
                .find("beyond the largest possible"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
