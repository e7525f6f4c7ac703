// The lines of several instances in one stream, each whole and with its tag in front. A line that
// takes long to come to its end, such as a progress bar, is shown as far as it came; whoever writes
// next begins a new one.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

class WovenLines {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Takes what an instance wrote; the tag is the instance's. Returns the text to show.
  std::string add(const std::string& tag, std::string_view text, Time now);

  // A line of its own, without a tag.
  std::string add_line(std::string_view line);

  // The text to show of lines that are not over, and to which nothing was added since.
  std::string show_begun(Time since);
  bool has_begun() const { return !begun_.empty(); }

 private:
  struct Begun {
    std::string text;
    Time changed;
  };

  // What leads to the place where a text with this tag goes on.
  std::string lead_to(const std::string& tag);

  std::map<std::string, Begun> begun_;  // by tag; not shown yet
  bool is_open_ = false;                // the last line that is shown is not over
  std::string open_tag_;
};

}  // namespace tessera
