#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/cli/quantities.h"
#include "tessera/cli/scale_report.h"

namespace tessera {
namespace {

constexpr double width = 720, height = 460, left = 70, right = 690, top = 76, bottom = 400,
                 inset = 26;
constexpr std::string_view ink = "#212529", soft = "#6c757d", grid = "#dee2e6";

std::string_view color_of(Bound bound) {
  switch (bound) {
    case Bound::latency:
      return "#d9822b";
    case Bound::bandwidth:
      return "#b83a4b";
    case Bound::compute:
      break;
  }
  return "#3b6ea5";
}

// Places on an axis that doubles from mark to mark; both ends lie a little outside of it.
struct Axis {
  int first, last;  // marks, as powers of two
  double from, to;  // where these are, in the picture

  Axis(double least, double most, double from, double to)
      : first(static_cast<int>(std::floor(std::log2(least)))),
        last(std::max(first + 1, static_cast<int>(std::ceil(std::log2(most))))),
        from(from),
        to(to) {}

  double at(double value) const {
    return from + (to - from) * (std::log2(value) - first) / (last - first);
  }
  // All marks, or as many as have room for their numbers.
  int stride() const { return (last - first) / 12 + 1; }
};

Axis axis_of_nodes(const ScaleReport& report) {
  return {static_cast<double>(report.points.front().nodes),
          static_cast<double>(report.points.back().nodes), left + inset, right - inset};
}

Axis axis_of_speed(const ScaleReport& report) {
  double least = static_cast<double>(report.points.front().instances);
  double most = static_cast<double>(report.points.back().instances);
  for (const ScalePoint& point : report.points) {
    least = std::min(least, point.speed_up);
    most = std::max(most, point.speed_up);
  }
  return {least, most, bottom - inset, top};
}

std::string text_at(double x, double y, std::string_view more, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, text);
}

std::string line(double x1, double y1, double x2, double y2, std::string_view more) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" {}/>\n", x1, y1, x2, y2, more);
}

std::string title(const ScaleReport& report) {
  int64_t bytes = 0;
  for (const Bucket& bucket : report.workload.buckets) bytes += bucket.bytes;
  const std::string about =
      fmt::format("{} a step of one instance, {} of gradients; {} and {} between nodes",
                  seconds_text(report.workload.step_seconds), bytes_text(bytes),
                  seconds_text(report.cluster.network.latency),
                  bandwidth_text(report.cluster.network.bandwidth));
  return text_at(16, 26, " class=\"title\"",
                 report.cluster.strong ? "Speed-up over one instance, on paper; one batch shared"
                                       : "Speed-up over one instance, on paper") +
         text_at(16, 46, " class=\"soft\"", about);
}

std::string axes(const Axis& nodes, const Axis& speed) {
  const std::string pale = fmt::format("stroke=\"{}\"", grid);
  std::string out;
  for (int mark = speed.first; mark <= speed.last; mark += speed.stride()) {
    const double value = std::exp2(mark), y = speed.at(value);
    out += line(left, y, right, y, pale);
    out +=
        text_at(left - 8, y + 4, " class=\"soft\" text-anchor=\"end\"", fmt::format("{:g}", value));
  }
  for (int mark = nodes.first; mark <= nodes.last; mark += nodes.stride()) {
    const double value = std::exp2(mark), x = nodes.at(value);
    out += line(x, top, x, bottom, pale);
    out += text_at(x, bottom + 20, " class=\"soft\" text-anchor=\"middle\"",
                   fmt::format("{:g}", value));
  }
  const std::string dark = fmt::format("stroke=\"{}\"", ink);
  out += line(left, bottom, right, bottom, dark) + line(left, top, left, bottom, dark);
  out += text_at((left + right) / 2, bottom + 42, " text-anchor=\"middle\"", "nodes");
  return out + text_at(0, 0,
                       fmt::format(" text-anchor=\"middle\" transform=\"translate(20 {}) "
                                   "rotate(-90)\"",
                                   (top + bottom) / 2),
                       "speed-up");
}

std::string ideal(const ScaleReport& report, const Axis& nodes, const Axis& speed) {
  const ScalePoint &first = report.points.front(), &last = report.points.back();
  return line(
      nodes.at(static_cast<double>(first.nodes)), speed.at(static_cast<double>(first.instances)),
      nodes.at(static_cast<double>(last.nodes)), speed.at(static_cast<double>(last.instances)),
      fmt::format("stroke=\"{}\" stroke-dasharray=\"5 4\" fill=\"none\"", soft));
}

std::string dot(double x, double y, Bound bound) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n", x, y,
                     color_of(bound));
}

// The points, joined, each with its efficiency.
std::string curve(const ScaleReport& report, const Axis& nodes, const Axis& speed) {
  std::string way, dots;
  for (const ScalePoint& point : report.points) {
    const double x = nodes.at(static_cast<double>(point.nodes)), y = speed.at(point.speed_up);
    way += fmt::format("{}{:.1f} {:.1f}", way.empty() ? "M" : "L", x, y);
    dots += dot(x, y, point.bound);
    dots += text_at(x, y + 20, " class=\"soft\" text-anchor=\"middle\"",
                    fmt::format("{:.0f} %", 100 * point.efficiency));
  }
  return fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"2\" fill=\"none\"/>\n", way,
                     ink) +
         dots;
}

// In the corner above the ideal, where nothing else can be.
std::string legend() {
  const double x = left + inset + 6;
  double y = top + 22;
  std::string out = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"176\" height=\"114\" fill=\"#ffffff\" stroke=\"{}\"/>\n",
      x - 12, y - 18, grid);
  out += line(x - 4, y - 4, x + 20, y - 4,
              fmt::format("stroke=\"{}\" stroke-dasharray=\"5 4\"", soft));
  out += text_at(x + 30, y, " class=\"soft\"", "ideal");
  for (const Bound bound : {Bound::compute, Bound::latency, Bound::bandwidth}) {
    y += 22;
    out += dot(x + 8, y - 4, bound);
    out += text_at(x + 30, y, " class=\"soft\"", fmt::format("bound by {}", name_of(bound)));
  }
  out += text_at(x + 8, y + 22, " class=\"soft\" text-anchor=\"middle\"", "%");
  return out + text_at(x + 30, y + 22, " class=\"soft\"", "efficiency");
}

}  // namespace

std::string scale_as_svg(const ScaleReport& report) {
  const Axis nodes = axis_of_nodes(report), speed = axis_of_speed(report);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\">\n"
             "<style>text {{ font: 14px sans-serif; fill: {2} }} "
             ".soft {{ font-size: 12px; fill: {3} }} .title {{ font-weight: bold }}</style>\n"
             "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
             width, height, ink, soft) +
         title(report) + axes(nodes, speed) + ideal(report, nodes, speed) +
         curve(report, nodes, speed) + legend() + "</svg>\n";
}

}  // namespace tessera
