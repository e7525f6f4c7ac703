#include "tessera/ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::string_view example = R"(graph "train" {
  input data "x" %0: f32[16,1,28,28]
  input hyperparameter "learning_rate.0" %1: f32[]
  state parameter "conv1.weight" %2: f32[5,1,3,3] update %8
  state buffer "bn.running_mean" %3: f32[5] micro_batch %6 update %7
  %4, %5 = conv(%0, %2, _) {dilation = [1, 1], mode = "a\"b\\\n\x01", stride = [1, 1]} : f32[16,5,26,26], i32[2] @ "train.py":31 in "conv1"
  %6 = mul(%3, %3) : f32[5] backward @ "train.py":32 in "pool" stage 1
  update %7 = fill() {dtype = f32, shape = [5], value = 0.0} : f32[5]
  update %8 = sgd(%2, %1) {body = {%0 = mul(a0, a1) {alpha = 2.0, text = "}; out"}; %1 = gt(%0, i32(-3.0)) : bool; out %0, sum a1 over [0, 2] keepdim}, data = bytes"00ff10", empty = [], nesterov = true, none = numbers[], some = [1.0, -inf]} : f32[5,1,3,3] stage 2
  output "0" %4
  output "loss" %0
}
)";

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

std::string in_graph(std::string_view lines) {
  return fmt::format("graph \"g\" {{\n{}\n}}\n", lines);
}

void add_node(Graph& graph, std::string op, std::vector<ValueId> operands, Attrs attrs) {
  Node node;
  node.op = std::move(op);
  node.operands = std::move(operands);
  node.attrs = std::move(attrs);
  const TensorType type{DType::f32, {}};
  graph.add_node(std::move(node), {&type, 1});
}

Attr round_trip(const Attr& attr) {
  Graph graph;
  add_node(graph, "source", {}, {{"a", attr}});
  return *parse(print(graph)).nodes().at(0).attrs.find("a");
}

TEST(Text, PrintsBackWhatItParsed) { EXPECT_EQ(print(parse(example)), example); }

TEST(Text, ParsesEveryPart) {
  const Graph graph = parse(example);
  EXPECT_EQ(graph.name, "train");
  ASSERT_EQ(graph.inputs().size(), 2U);
  EXPECT_EQ(graph.inputs()[1].kind, InputKind::hyperparameter);
  EXPECT_EQ(graph.type(graph.inputs()[0].value), (TensorType{DType::f32, {16, 1, 28, 28}}));
  const State* mean = graph.find_state("bn.running_mean");
  ASSERT_NE(mean, nullptr);
  EXPECT_EQ(mean->kind, StateKind::buffer);
  EXPECT_EQ(mean->after_micro_batch, graph.nodes()[1].results[0]);
  EXPECT_EQ(mean->after_update, graph.nodes()[2].results[0]);
  EXPECT_EQ(graph.states()[0].after_micro_batch, graph.states()[0].initial);
  const Node& conv = graph.nodes()[0];
  EXPECT_FALSE(conv.operands.at(2).valid());
  EXPECT_EQ(conv.attrs.text("mode"), "a\"b\\\n\x01");
  EXPECT_EQ(conv.origin, (Origin{"train.py", 31, "conv1", false}));
  EXPECT_EQ(graph.nodes()[1].origin, (Origin{"train.py", 32, "pool", true}));
  EXPECT_EQ(graph.nodes()[1].stage, 1);
  EXPECT_EQ(graph.nodes()[3].phase, Phase::update);
  EXPECT_EQ(graph.nodes()[3].attrs.blob("data")->size(), 3U);
  EXPECT_TRUE(graph.nodes()[3].attrs.integers("empty").empty());
  EXPECT_TRUE(graph.nodes()[3].attrs.numbers("none").empty());
}

TEST(Text, KeepsTypeAndBitsOfAttributes) {
  const double smallest = std::numeric_limits<double>::denorm_min();
  const Attr attrs[] = {true,
                        false,
                        int64_t{3},
                        std::numeric_limits<int64_t>::min(),
                        2.0,
                        -0.0,
                        0.1,
                        1e300,
                        1e16,
                        smallest,
                        std::numeric_limits<double>::max(),
                        static_cast<double>(0.1F),
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        std::bit_cast<double>(0x7ff8000000000000),
                        std::bit_cast<double>(0xfff8000000000123),
                        std::string(),
                        std::string("f32 \"\\ \x7f \t \xc3\xa9"),
                        DType::f32,
                        DType::boolean,
                        DType::i64,
                        std::vector<int64_t>{},
                        std::vector<int64_t>{-1, 2},
                        std::vector<double>{},
                        std::vector<double>{1, std::bit_cast<double>(0xfff8000000000000), -0.0}};
  for (const Attr& attr : attrs) {
    const Attr again = round_trip(attr);
    EXPECT_TRUE(equal(attr, again))
        << "of type " << name_of(type_of(attr)) << " became " << name_of(type_of(again));
  }
}

TEST(Text, KeepsFusedBodies) {
  for (const char* text :
       {"%0 = mul(a0, a1); %1 = add(%0, 0.5) {alpha = 2.0}; out %1",
        "%0 = gelu(a0) {approximate = \"tanh\"}; %1 = gt(%0, -inf) : bool; out %0, %1",
        "%0 = exp(a0); out %0, sum %0 over [0, 2, 3] keepdim, sum a1 over []",
        "out sum a0 over [1]",
        "%0 = where(bool(1.0), i32(nan), i32(2.0)) : i32; %1 = mul(nan, nan:fff8000000000123); out "
        "%1",
        "%0 = \"an odd name\"(); out %0"}) {
    EXPECT_EQ(print_body(parse_body(text)), text);
    EXPECT_TRUE(equal(body_attr(parse_body(text)), round_trip(body_attr(parse_body(text)))))
        << text;
  }
  EXPECT_EQ(print_body(parse_body("  %0=relu( a0 ) ;%1 = add(%0,2){b = 1, a = 2}; out  %1")),
            "%0 = relu(a0); %1 = add(%0, 2.0) {a = 2, b = 1}; out %1");
  EXPECT_FALSE(equal(body_attr(parse_body("%0 = f(0.0); out %0")),
                     body_attr(parse_body("%0 = f(-0.0); out %0"))));
}

TEST(Text, WhatIsNoFusedBodyIsRefused) {
  std::string many = "%0 = f(a0); ", wide = "%0 = f(a0";
  for (int i = 1; i < 300; ++i) many += fmt::format("%{} = f(a0); ", i), wide += ", a0";
  for (const std::string& text : {std::string(),
                                  std::string("out"),
                                  std::string("out a0"),
                                  std::string("out 1.0"),
                                  std::string("out %0"),
                                  std::string("%0 = f(a0)"),
                                  std::string("%0 = f(a0); out %1"),
                                  std::string("%1 = f(a0); out %1"),
                                  std::string("%0 = f(%0); out %0"),
                                  std::string("%0 = f(a0); out %0 %0"),
                                  std::string("%0 = f(a99999999999999999999); out %0"),
                                  std::string("%0 = f(a65536); out %0"),
                                  std::string("%0 = f(a-1); out %0"),
                                  std::string("%0 = f(%-1); out %0"),
                                  std::string("%0 = f(a0); out sum %0"),
                                  std::string("%0 = f(a0); out sum %0 over [-1]"),
                                  std::string("out sum a0 over [64]"),
                                  std::string("%0 = f(a0) : f64; out %0"),
                                  std::string("%0 = f(a0) : thing; out %0"),
                                  std::string("%0 = f(i64(1.0)); out %0"),
                                  std::string("%0 = f(i32(a0)); out %0"),
                                  std::string("%0 = f(a0) {b = {out sum a0 over []}}; out %0"),
                                  std::string("%0 = f(a0);\nout %0"),
                                  many + "out %0",
                                  wide + "); out %0"}) {
    EXPECT_THROW(parse_body(text), Error) << text;
    EXPECT_THROW(parse(in_graph("%0 = g() {b = {" + text + "}} : f32[]")), Error) << text;
  }
  EXPECT_EQ(error_of(in_graph("%0 = g() {b = {%0 = f(%3); out %0}} : f32[]")),
            "line 2: %3 is used before it is made");
}

TEST(Text, KeepsRandomNumbers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto value = std::bit_cast<double>(random());
    EXPECT_TRUE(equal(value, round_trip(value)));
  }
}

TEST(Text, NumbersValuesByAppearance) {
  Graph graph;
  const TensorType type{DType::f32, {}};
  const ValueId x = graph.add_input(InputKind::data, "x", type);
  add_node(graph, "neg", {x}, {});
  graph.add_input(InputKind::data, "late", type);
  EXPECT_EQ(print(graph),
            "graph \"step\" {\n"
            "  input data \"x\" %0: f32[]\n"
            "  input data \"late\" %1: f32[]\n"
            "  %2 = neg(%0) : f32[]\n"
            "}\n");
  EXPECT_EQ(print(parse(print(graph))), print(graph));
}

TEST(Text, AcceptsAnyNumbersCommentsAndBlankLines) {
  const Graph graph = parse(
      "// a comment\n\n graph \"g\" { // here\n\n  input data \"x\" %70: f32[2]\r\n\n"
      "  %9=neg(%70):f32[2]  // there\n  output \"0\" %9\n}\n\n// done");
  EXPECT_EQ(print(graph),
            in_graph("  input data \"x\" %0: f32[2]\n  %1 = neg(%0) : f32[2]\n  output \"0\" %1"));
}

TEST(Text, KeepsOddNamesAndNodesWithoutResults) {
  const std::string text = in_graph("  = \"an op\"() {\"a b\" = 1}");
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, LeavesOriginsAndLongBlobsOut) {
  const Graph graph = parse(example);
  const std::string text = print(graph, {.origins = false, .elide_blobs_over = 2});
  EXPECT_EQ(text.find("train.py"), std::string::npos);
  EXPECT_EQ(text.find("backward"), std::string::npos);
  EXPECT_NE(text.find("stage 1"), std::string::npos);
  EXPECT_NE(text.find("bytes<3>"), std::string::npos);
  EXPECT_EQ(error_of(text), "line 9: these bytes were left out when the text was written");
}

TEST(Text, ConstantsMayLieBesideIt) {
  const std::string whole = in_graph(
      "%0 = f() {a = bytes\"0102\", b = {%0 = f(a0) {c = bytes\"03\"}; out %0}} : f32[]\n"
      "  %1 = f() {a = bytes\"\"} : f32[]");
  const Graph graph = parse(whole);
  BlobTable blobs;
  const std::string text = print(graph, {.blobs = &blobs});
  EXPECT_NE(text.find("bytes[0]"), std::string::npos) << text;
  EXPECT_EQ(text.find("bytes\""), std::string::npos) << text;
  EXPECT_EQ(blobs.blobs().size(), 3U);
  EXPECT_EQ(print(parse(text, blobs.blobs())), print(graph));
  const Graph again = parse(text, blobs.blobs());
  EXPECT_EQ(again.node({0}).attrs.blob("a"), blobs.blobs()[0]);  // shared, not copied
  EXPECT_EQ(error_of(text), "line 2: there is no bytes[0]: 0 came with the text");
  EXPECT_THROW(parse(in_graph("%0 = f() {a = bytes[-1]} : f32[]"), blobs.blobs()), Error);
}

TEST(Text, HasNoMoreAttributesThanAnOperatorCouldHave) {
  std::string attributes = "a = 1";
  for (int i = 0; i < 1000; ++i) attributes += fmt::format(", a{} = 1", i);
  EXPECT_EQ(error_of(in_graph("%0 = f() {" + attributes + "} : f32[]")),
            "line 2: there are more than 1000 attributes");
}

TEST(Text, PrintsOneNode) {
  const Graph graph = parse(example);
  EXPECT_EQ(print_node(graph, graph.nodes()[1]),
            "%6 = mul(%3, %3) : f32[5] backward @ \"train.py\":32 in \"pool\" stage 1");
}

TEST(Text, ErrorsNameTheLine) {
  const auto error_in = [](std::string_view lines) { return error_of(in_graph(lines)); };
  EXPECT_EQ(error_of(""), "line 1: expected 'graph', found the end of the text");
  EXPECT_EQ(
      error_of("\ngraph \"g\" {\n"),
      "line 3: expected 'input', 'state', 'output', a node or '}', found the end of the text");
  EXPECT_EQ(error_in("input data \"x\" %0: f32[2]\n%1 = neg(%7) : f32[2]"),
            "line 3: %7 is used before it is made");
  EXPECT_EQ(error_in("input data \"x\" %0: f32[2]\ninput data \"y\" %0: f32[2]"),
            "line 3: %0 is made twice");
  EXPECT_EQ(error_in("input data \"x\" %0: f33[2]"), "line 2: 'f33' is not an element type");
  EXPECT_EQ(error_in("input data \"x\" %0: i64[2]"), "line 2: graphs do not hold i64; use i32");
  EXPECT_EQ(error_in("input date \"x\" %0: f32[2]"), "line 2: 'date' is no kind of input or state");
  EXPECT_EQ(error_in("input data \"x\" %0: f32[-2]"), "line 2: a size is negative: -2");
  EXPECT_EQ(error_in("input data \"x\" %0: f32[4294967296,4294967296,0]"),
            "line 2: a tensor is larger than any memory");
  EXPECT_EQ(error_in("input data \"x\" %0: f32[99999999999999999999]"),
            "line 2: '99999999999999999999' is not a number, or one too large");
  EXPECT_EQ(error_in("%0 = f() {a = 1, a = 2} : f32[]"),
            "line 2: expected each attribute once, found '='");
  EXPECT_EQ(error_in("%0 = f() {a = [1, 2.0]} : f32[]"),
            "line 2: a list holds integers and numbers; write every number with a decimal point");
  EXPECT_EQ(error_in("%0 = f() {a = f99} : f32[]"), "line 2: 'f99' is not a value");
  EXPECT_EQ(error_in("%0, %1 = f() : f32[]"),
            "line 2: expected one type for each result, found the end of the line");
  EXPECT_EQ(error_in("state buffer \"b\" %0: f32[] update %3"), "line 2: there is no %3");
  EXPECT_EQ(error_in("state buffer \"b\" %0: f32[] update %1\n%1 = f() : f32[1]"),
            "line 2: state 'b' is f32[] but takes %1, which is f32[1]");
  EXPECT_EQ(error_in("update %0 = f() : f32[]\n%1 = f(%0) : f32[]"),
            "line 3: value %0 exists only after an update but a micro-batch uses it");
  EXPECT_EQ(error_in("update %0 = f() : f32[]\noutput \"0\" %0"),
            "line 3: value %0 exists only after an update but a micro-batch uses it");
  EXPECT_EQ(error_of(in_graph("") + "x"),
            "line 4: expected the end of the text after the closing '}', found 'x'");
}

TEST(Text, RefusesTooManyDimensions) {
  std::string type = "f32[1";
  for (int i = 0; i < 64; ++i) type += ",1";
  EXPECT_EQ(error_of(in_graph("input data \"x\" %0: " + type + "]")),
            "line 2: a tensor has more than 64 dimensions");
}

// Whatever parses must also print and parse again; everything else must be an Error.
void expect_error_or_graph(const std::string& text) {
  std::optional<Graph> graph;
  try {
    graph = parse(text);
  } catch (const Error& error) {
    EXPECT_TRUE(error.message().starts_with("line ")) << error.message();
    return;
  }
  const std::string printed = print(*graph);
  EXPECT_EQ(print(parse(printed)), printed);
}

TEST(Text, SurvivesTruncation) {
  for (size_t i = 0; i <= example.size(); ++i) {
    expect_error_or_graph(std::string(example.substr(0, i)));
  }
}

TEST(Text, SurvivesDamage) {
  std::mt19937 random(3);
  const auto below = [&](size_t limit) { return random() % limit; };
  for (int i = 0; i < 3000; ++i) {
    std::string text(example);
    for (size_t flips = 1 + below(3); flips > 0; --flips) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + below(4));
          break;
        case 2:
          text.insert(at, 1, text[below(text.size())]);
          break;
        default:
          text[at] = text[below(text.size())];
      }
    }
    expect_error_or_graph(text);
  }
}

}  // namespace
}  // namespace tessera
