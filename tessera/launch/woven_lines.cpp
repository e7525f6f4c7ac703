#include "tessera/launch/woven_lines.h"

namespace tessera {
namespace {

constexpr size_t longest_begun = 65536;  // a line without end is not kept for ever

}  // namespace

std::string WovenLines::add(const std::string& tag, std::string_view text, Time now) {
  std::string shown;
  Begun& begun = begun_[tag];
  begun.changed = now;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    shown += lead_to(tag) + begun.text + std::string(text.substr(0, end + 1));
    begun.text.clear();
    is_open_ = false;
  }
  begun.text += text;
  if (begun.text.empty()) begun_.erase(tag);
  return shown;
}

std::string WovenLines::add_line(std::string_view line) {
  std::string shown = lead_to("") + std::string(line) + "\n";
  is_open_ = false;
  return shown;
}

std::string WovenLines::show_begun(Time since) {
  std::string shown;
  std::erase_if(begun_, [&](const auto& entry) {
    const auto& [tag, begun] = entry;
    if (begun.changed > since && begun.text.size() < longest_begun) return false;
    shown += lead_to(tag) + begun.text;
    is_open_ = true;
    open_tag_ = tag;
    return true;
  });
  return shown;
}

std::string WovenLines::lead_to(const std::string& tag) {
  if (!is_open_) return tag;
  return tag == open_tag_ ? "" : "\n" + tag;
}

}  // namespace tessera
